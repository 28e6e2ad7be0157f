//! The gate: the same calls of the core, in the same order, as in `hook/src/push/gate/` and next to it.

use crate::{
    log::{ACCEPTED, Log, id_of, push_of},
    numbers::{FenceNo, LEASE, NONE, NOWHERE, REPO, fence_of, is_branch},
    protocol::Protocol,
    records::{beat_of, token, who},
    world::World,
};
use git_fence_core::{
    Claim, Decision, Event, Evidence, Format, FoundLease, InFlight, Lease, LeaseAsk, LeaseId, LeaseState, Mark, Plan,
    Proposal, Push, PushId, Reason, ReceivePack, RefUpdate, Reject, Renewed, Source, Stake, Stamp, Standing, View,
    decide, landed_so_far, next_token, refs_say_over, settle, settle_as_reported,
};
use std::sync::Arc;

/// The gate's decision.
#[derive(Debug)]
pub enum Ruling {
    /// The push is admitted.
    Accepted,
    /// The push has to wait.
    Wait,
    /// The push is refused.
    Refused(Reject),
}

/// The log under the lock: lines appended here are written all at once, or not at all.
pub struct LogWriter<'a> {
    world: &'a World,
    push: usize,
    /// The appended lines, each with all lines before it.
    pub appended: Vec<Arc<Log>>,
}

impl LogWriter<'_> {
    fn log(&self) -> &Log {
        self.appended.last().map_or(self.world.now(), |log| log)
    }

    fn append(&mut self, event: &Event) {
        let log = self.log().with(event, self.push);
        self.appended.push(Arc::new(log));
    }
}

impl Protocol {
    /// The hook of push `p`, once, under the lock (`Gate::admit`, `Gate::renew`). The appended lines are written unless it
    /// waits.
    pub fn judge(&self, world: &World, p: usize) -> (Vec<Arc<Log>>, Ruling) {
        let mut writer = LogWriter { world, push: p, appended: Vec::new() };
        let ask = self.ask_of(world, p);
        let touches = |fence: FenceNo| self.commands(world, p).iter().any(|(on, _)| fence_of(*on) == fence);
        let claims: Vec<Claim<'_>> = self
            .fences
            .iter()
            .enumerate()
            .filter(|(fence, _)| touches(*fence))
            .map(|(fence, rules)| {
                let mut of_fence = self.commands(world, p).into_iter().filter(|(on, _)| fence_of(*on) == fence);
                let guarded = of_fence.any(|(on, _)| is_branch(on));
                let token = world.pushes[p].tokens[fence].filter(|_| guarded).map(token);
                let exempt = self.scenario.pushes[p].exempt;
                Claim { rules, token, exempt, guarded, lease: ask.as_ref().filter(|_| fence == REPO) }
            })
            .collect();
        let ruling = if self.scenario.naive {
            naive(&mut writer, &claims)
        } else if self.scenario.pushes[p].is_beat() {
            self.renew(&mut writer, &claims)
        } else {
            self.admit(&mut writer, p, &claims)
        };
        if let Ruling::Refused(reject) = &ruling {
            let log = writer.log().refusing(p, reject);
            writer.appended.push(Arc::new(log));
        }
        (writer.appended, ruling)
    }

    /// The gate's decision on a push with this claim, which is not made, and the fence's mark then.
    pub fn would_decide(&self, world: &World, claim: Claim<'_>) -> (Decision, u64) {
        let (log, claims) = (self.as_next_push_sees(world, claim), [claim]);
        let decision = decide(&log.state, &claims, &self.now(world));
        (decision, log.state.fence(&claim.rules.fence).mark.get())
    }

    /// Whether a new client would be granted the lease of `repo` after some time.
    pub fn would_grant(&self, world: &World) -> bool {
        let rules = &self.fences[REPO];
        let claim = Claim { rules, token: None, exempt: false, guarded: false, lease: None };
        let log = self.as_next_push_sees(world, claim);
        let fence = log.state.fence(&rules.fence);
        let reason = match fence.lease {
            None | Some(Standing { commit: None, .. }) => Reason::First,
            Some(standing) if standing.lease.state == LeaseState::Released => Reason::Released,
            Some(_) => Reason::Expired,
        };
        let id = LeaseId::of([0xee; 16]);
        let lease = Lease {
            format: Format::OneUse,
            id: id.clone(),
            token: next_token(fence.lease.map(|standing| standing.lease.token), fence.mark).expect("a next token"),
            owner: "stranger".to_owned(),
            state: LeaseState::Held,
            ttl: self.ttl,
            reason,
            words: None,
            since: None,
            jobs: git_fence_core::Jobs::default(),
            holder: self.asked(0, 0, NOWHERE),
            nonce: String::new(),
        };
        let parents = fence.lease.and_then(|standing| standing.commit.clone()).into_iter().collect();
        let commit = self.object(NOWHERE).expect("an object");
        let beat = Some(beat_of(id, self.asked(1, 0, NOWHERE)));
        let proposal = Proposal { commit, parents, lease, proof: None };
        let ask = LeaseAsk { lease: Some(proposal), beat, ..LeaseAsk::default() };
        let now = self.now(world);
        let later = Stamp { uptime_ms: now.uptime_ms + 60_000, unix_ms: now.unix_ms + 60_000, ..now };
        matches!(decide(&log.state, &[Claim { lease: Some(&ask), ..claim }], &later), Decision::Admit { .. })
    }

    fn as_next_push_sees(&self, world: &World, claim: Claim<'_>) -> Arc<Log> {
        let mut writer = LogWriter { world, push: 0, appended: Vec::new() };
        self.settle_finished(&mut writer, &[claim]);
        self.reread_refs(&mut writer, &[claim]);
        let last = writer.appended.pop().or_else(|| world.log.last().cloned());
        last.expect("a log is never without its synced part")
    }

    fn admit(&self, writer: &mut LogWriter<'_>, p: usize, claims: &[Claim<'_>]) -> Ruling {
        let found_landed = self.settle_finished(writer, claims);
        self.reread_refs(writer, claims);
        let world = writer.world;
        let leases = match decide(&writer.log().state, claims, &self.now(world)) {
            Decision::Wait(_) => {
                // A waiting push writes only what has landed.
                if !found_landed {
                    writer.appended.clear();
                }
                return Ruling::Wait;
            }
            Decision::Refuse(reject) => return Ruling::Refused(reject),
            Decision::Admit { leases, .. } => leases,
        };
        if !world.pushes[p].phase.has_receive_pack() {
            return Ruling::Refused(Reject::Unseen { why: "the receive-pack of this push is gone".to_owned() });
        }
        let stake = |claim: &Claim<'_>| Stake {
            fence: claim.rules.fence.clone(),
            token: claim.token,
            mark: writer.log().state.fence(&claim.rules.fence).mark,
        };
        let mut stakes: Vec<Stake> = claims.iter().map(stake).collect();
        let accepted = Event::PushAccepted {
            push: PushId(id_of(p)),
            stake: stakes.remove(0),
            also: stakes,
            leases,
            marks: Vec::new(),
            code: None,
            reason: None,
            source: Source::Option,
            who: who(),
            plan: Plan::of(self.planned(world, p)),
            receive_pack: Some(ReceivePack { pid: u32::try_from(id_of(p)).unwrap_or(0), start: 0, pidfd: None }),
            place: self.here(world),
            elapsed_us: 0,
        };
        writer.append(&accepted);
        Ruling::Accepted
    }

    fn renew(&self, writer: &mut LogWriter<'_>, claims: &[Claim<'_>]) -> Ruling {
        self.settle_finished(writer, claims);
        self.catch_up(writer, claims);
        for claim in claims {
            let fence = writer.log().state.fence(&claim.rules.fence);
            let asked = claim.lease.expect("a heartbeat comes to a lease");
            let renewed = match fence.judge(claim.rules, asked, &self.now(writer.world)) {
                Ok(change) => change.standing,
                Err(reject) => return Ruling::Refused(reject),
            };
            writer.append(&Event::LeaseRenewed(Renewed {
                fence: claim.rules.fence.clone(),
                lease: renewed.lease.id,
                token: renewed.lease.token,
                heard: renewed.heard,
                progress: None,
                holder: renewed.beat,
                who: who(),
            }));
        }
        Ruling::Accepted
    }

    /// Settles pushes that are over (`settling::settle_finished`). Returns whether a push that is not over has newly landed
    /// something.
    fn settle_finished(&self, writer: &mut LogWriter<'_>, claims: &[Claim<'_>]) -> bool {
        let mut found_landed = false;
        for flight in writer.log().state.in_flight.clone() {
            let state = &writer.log().state;
            let matters = claims.iter().any(|claim| state.is_in_the_way(&flight, &claim.rules.fence));
            let over = self.is_over(writer.world, &flight);
            if !matters && !matches!(over, Some(Evidence::ReceivePackGone | Evidence::Rebooted)) {
                continue;
            }
            let plan = &flight.plan.refs;
            let seen = self.seen(writer.world, plan);
            let events = match over {
                Some(evidence) => settle(&flight, plan, &seen).on_record(&flight, state, plan.len(), evidence),
                None => {
                    let Some(landed) = landed_so_far(&flight, plan, &seen) else { continue };
                    found_landed = true;
                    landed.so_far(&flight, state, plan.len())
                }
            };
            events.iter().for_each(|event| writer.append(event));
        }
        found_landed
    }

    /// The companion of push `p`, under the lock (`post_receive::record`): git's report is written, not synced.
    pub fn companion(&self, world: &World, p: usize) -> Vec<Arc<Log>> {
        let mut writer = LogWriter { world, push: p, appended: Vec::new() };
        let in_flight = &world.now().state.in_flight;
        let Some(flight) = in_flight.iter().find(|flight| flight.push == PushId(id_of(p))) else {
            return writer.appended;
        };
        let commands = self.commands(world, p).into_iter().zip(&world.pushes[p].claimed).enumerate();
        let listed = commands.filter(|(n, _)| world.pushes[p].listed & (1 << n) != 0);
        let updated = listed.map(|(_, ((on, new), claimed))| RefUpdate {
            name: self.names[on].clone(),
            claimed: self.object(*claimed),
            new: self.object(new),
        });
        let updated = Push { commands: updated.collect() };
        let plan = &flight.plan.refs;
        let settlement = settle_as_reported(flight, plan, &updated);
        for event in settlement.on_record(flight, &world.now().state, plan.len(), Evidence::Reported) {
            writer.append(&event);
        }
        writer.appended
    }

    /// Whether a push in flight is over, and how that is known (`slot::state_of`).
    pub fn is_over(&self, world: &World, flight: &InFlight) -> Option<Evidence> {
        match self.here(world).view_of(&flight.place, true) {
            View::Rebooted => return Some(Evidence::Rebooted),
            View::Hidden => unreachable!("there is one machine and one namespace"),
            View::Clear => {}
        }
        let phase = world.pushes[push_of(flight.push.0)].phase;
        if !phase.has_receive_pack() {
            return Some(Evidence::ReceivePackGone);
        }
        refs_say_over(&flight.plan.refs, &self.seen(world, &flight.plan.refs)).then_some(Evidence::RefsMoved)
    }

    fn reread_refs(&self, writer: &mut LogWriter<'_>, claims: &[Claim<'_>]) {
        let is_free = |claim: &Claim<'_>| !writer.log().state.fence(&claim.rules.fence).is_occupied();
        if claims.iter().all(is_free) {
            self.catch_up(writer, claims);
        }
    }

    fn catch_up(&self, writer: &mut LogWriter<'_>, claims: &[Claim<'_>]) {
        for rules in claims.iter().map(|claim| claim.rules) {
            let log = writer.log();
            let mut in_flight = log.state.in_flight.iter().flat_map(|flight| &flight.leases);
            if in_flight.any(|change| change.fence == rules.fence) {
                continue;
            }
            let at = if rules.fence == self.fences[REPO].fence { writer.world.refs[LEASE] } else { NONE };
            let fence = log.state.fence(&rules.fence);
            if fence.lease_is_at(self.objects[usize::from(at)].as_ref()) {
                continue;
            }
            let found = match at {
                NONE => FoundLease::Nothing,
                at => FoundLease::Record(Box::new(self.proposal(writer.world, at))),
            };
            if let Some(line) = fence.lease_found(rules, found, &self.now(writer.world), "") {
                writer.append(&Event::LeaseFound(line));
            }
        }
    }
}

/// The gate as everyone writes it first (`fixtures/naive-hook.sh`): compare, advance the mark, exit.
fn naive(writer: &mut LogWriter<'_>, claims: &[Claim<'_>]) -> Ruling {
    for claim in claims {
        let fence = claim.rules.fence.clone();
        let mark = writer.log().state.fence(&fence).mark;
        match claim.token {
            None => return Ruling::Refused(Reject::Missing { fence, name: None, kind: None }),
            Some(token) if token.get() <= mark.get() => {
                return Ruling::Refused(Reject::Stale { fence, token, mark, kind: None });
            }
            Some(_) => {}
        }
    }
    let log = writer.log().clone();
    let mut state = log.state;
    for claim in claims {
        let mark = claim.token.map_or(Mark::default(), Mark::from);
        let raised =
            Event::MarkRaised { fence: claim.rules.fence.clone(), mark, reason: String::new(), pusher: String::new() };
        state.apply(0, "", &raised).expect("marks can be raised");
    }
    let mut recorded = log.recorded;
    recorded[writer.push] |= ACCEPTED;
    writer.appended.push(Arc::new(Log::of(state, recorded)));
    Ruling::Accepted
}
