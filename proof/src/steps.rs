//! Every step that somebody can take, and what comes of it.

use crate::{
    gate::Ruling,
    promises,
    report::Latches,
    scenarios::{Claimed, Kind, Scenario, To},
    world::{
        ACCEPTED, Answer, BEAT, Held, LEASE, Log, Move, NONE, NOWHERE, Object, Phase, Pushing, REFUSED, Rec, Ref,
        SETTLED, START, Why, World, fence_of, id_of, is_branch, made_by, maker_of,
    },
};
use git_fence_core::{
    FenceName, Holder, InFlight, LeasePart, ObjectId, RefName, Reject, Rules, Secret, Ttl, next_token, nonce_of,
};
use stateright::{Model, Property};
use std::sync::Arc;

/// The server, its gate and a scenario.
pub struct Protocol {
    /// Who comes with what.
    pub scenario: Scenario,
    /// The rules of the fences.
    pub fences: [Rules; 2],
    pub(crate) names: Vec<RefName>,
    pub(crate) objects: Vec<Option<ObjectId>>,
    /// What the move after each object shows, by whose ownership it is: of leases, and of beats.
    pub(crate) proofs: [Vec<Vec<(Secret, Holder)>>; 2],
    pub(crate) owners: Vec<String>,
    pub(crate) boots: Vec<String>,
    pub(crate) ttl: Ttl,
    pub(crate) latches: Latches,
}

/// One step of somebody. A push that is stalled is one that takes none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The client connects, reads what the refs are at, and sends its push.
    Connect(usize),
    /// The hook takes the lock, decides, and writes.
    Judge(usize),
    /// The hook has waited for as long as it may.
    GiveUp(usize),
    /// The hook syncs what it has written, and exits.
    Sync(usize),
    /// Git updates the next ref, or all in one transaction.
    Update(usize),
    /// Git declines to: an update hook, a deny rule.
    Decline(usize),
    /// Receive-pack tells its client, and ends unless it has something for `post-receive`.
    Exit(usize),
    /// The companion writes down what git has updated.
    Companion(usize),
    /// A local writer, who asks no gate, puts a ref back to where it was before its last move.
    PutBack(Ref),
    /// The client's connection is gone. The server goes on.
    Lose(usize),
    /// The hook is killed.
    KillHook(usize),
    /// Receive-pack is killed.
    KillReceivePack(usize),
    /// Receive-pack is killed in the midst of a transaction, when so many refs have been renamed.
    Tear(usize, usize),
    /// The machine loses power. So many of the lines that were not synced are there afterwards, and
    /// these refs (as bits) are not.
    Restart(usize, u8),
    /// Time passes: every lease that is not renewed from here on expires.
    Tick,
}

impl Protocol {
    /// The server with this scenario.
    pub fn of(scenario: Scenario) -> Protocol {
        let deploy = Rules {
            fence: FenceName::parse(b"deploy").expect("a name"),
            refs: vec!["refs/heads/deploy/*".to_owned()],
            ..Rules::for_repo()
        };
        let count = u8::try_from(scenario.pushes.len()).unwrap_or(u8::MAX);
        let object = |n: u8| ObjectId::parse(format!("{n:040x}").as_bytes()).expect("40 digits");
        let objects = 8 + 4 * count;
        let proofs = [LeasePart::Lease, LeasePart::Beat].map(|part| {
            let proof = |master: u8, object: u8| {
                let proof = Secret::of([master; 32]).of_record(part, &nonce_of([object; 16]));
                (proof.clone(), proof.holder())
            };
            (0..count).map(|master| (0..objects).map(|object| proof(master, object)).collect()).collect()
        });
        Protocol {
            fences: [Rules::for_repo(), deploy],
            names: crate::world::NAMES.iter().map(|name| RefName::new(*name)).collect(),
            objects: (0..objects).map(object).collect(),
            proofs,
            owners: (0..count).map(|n| format!("run-{n}")).collect(),
            boots: (0..=scenario.crashes).map(|n| format!("boot-{n}")).collect(),
            ttl: Ttl::of_seconds(1).expect("a TTL"),
            latches: Latches::default(),
            scenario,
        }
    }

    /// The refs that push `p` names, and what it would have them show.
    pub fn commands(&self, world: &World, p: usize) -> Vec<(Ref, Object)> {
        let script = &self.scenario.pushes[p];
        let own = |on| (on, made_by(p, on, world.pushes[p].again));
        let mut commands = match script.kind {
            Kind::Plain => Vec::new(),
            Kind::Acquire => vec![own(LEASE), own(BEAT)],
            Kind::Fenced | Kind::Release | Kind::Settle => vec![own(LEASE)],
            Kind::Beat => vec![own(BEAT)],
        };
        commands.extend(script.commands.iter().map(|command| match command.to {
            To::Own => own(command.on),
            To::Nothing => (command.on, NONE),
            To::Start => (command.on, START),
        }));
        commands
    }

    /// The client makes its push of what it reads and of what it holds; nothing where it cannot.
    fn connect(&self, world: &World, p: usize) -> Option<Pushing> {
        let script = &self.scenario.pushes[p];
        let held = world.held[script.client];
        let mut push = Pushing { phase: Phase::Hook, tokens: script.tokens, ..Pushing::idle() };
        let mut swaps = [world.refs[LEASE], world.refs[BEAT]];
        match script.kind {
            Kind::Plain => {}
            Kind::Acquire => {
                let seen = Some(world.refs[LEASE]).filter(|at| *at != NONE);
                let before = seen.and_then(|at| world.pushes[maker_of(at)].rec);
                let reason = match before {
                    None => Why::First,
                    Some(before) if before.released => Why::Released,
                    Some(_) => Why::Expired,
                };
                let last = before.map(|before| crate::gate::token(before.token));
                let token = next_token(last, git_fence_core::Mark::default())?.get();
                let token = u8::try_from(token).ok()?;
                let parent = world.refs[LEASE];
                push.rec = Some(Rec { grant: p, token, released: false, reason, parent });
            }
            Kind::Beat => {
                let held = held?;
                push.rec = Some(held.rec);
                swaps[1] = held.pulse;
            }
            Kind::Fenced | Kind::Release | Kind::Settle => {
                let held = held.filter(|held| held.pending.is_some() == (script.kind == Kind::Settle))?;
                let released = script.kind == Kind::Release;
                let token = if released { held.rec.token } else { held.rec.token + 1 };
                push.rec = Some(Rec { token, released, ..held.rec });
                if script.kind == Kind::Fenced {
                    push.tokens[0] = Some(held.rec.token);
                }
                swaps[0] = held.commit;
            }
        }
        if script.forced {
            swaps = [world.refs[LEASE], world.refs[BEAT]];
        }
        let said = |on: Ref| match on {
            LEASE => swaps[0],
            BEAT => swaps[1],
            on => match script.commands.iter().find(|command| command.on == on).map(|command| command.said) {
                Some(Claimed::Nothing) => NONE,
                Some(Claimed::Nonsense) => NOWHERE,
                _ => world.refs[on],
            },
        };
        push.said = self.commands(world, p).into_iter().map(|(on, _)| said(on)).collect();
        // Git's client sends nothing where it sees another value than it expects. Others do.
        Some(push)
    }

    /// What the client makes of an answer.
    fn hear_answer(&self, world: &mut World, p: usize, answer: Answer) {
        if world.pushes[p].answer != Answer::None {
            return;
        }
        world.pushes[p].answer = answer;
        let script = &self.scenario.pushes[p];
        let push = &world.pushes[p];
        let (rec, own) = (push.rec, |on| made_by(p, on, push.again));
        let (commit, pulse) = (own(LEASE), own(BEAT));
        let mut held = world.held[script.client];
        match (script.kind, answer) {
            (Kind::Acquire, Answer::Landed) => {
                held = rec.map(|rec| Held { rec, commit, pulse, pending: None });
            }
            (Kind::Beat, Answer::Landed) => {
                if let Some(held) = &mut held {
                    held.pulse = pulse;
                }
            }
            (Kind::Release, Answer::Landed) => held = None,
            (Kind::Fenced, Answer::Landed) => {
                held = held.zip(rec).map(|(held, rec)| Held { rec, commit, ..held });
            }
            (Kind::Fenced, Answer::Lost) => {
                if let Some(held) = &mut held {
                    held.pending = Some(p);
                }
            }
            (Kind::Settle, Answer::Landed) => {
                if let Some(lost) = held.and_then(|held| held.pending) {
                    world.pushes[lost].belief = Some(false);
                }
                held = held.zip(rec).map(|(held, rec)| Held { rec, commit, pending: None, ..held });
            }
            (Kind::Settle, Answer::No) => held = self.read_what_became(world, held),
            _ => {}
        }
        world.held[script.client] = held;
    }

    /// The client's `settle`, after its advance was refused: what the lease's ref shows says whether the
    /// push landed whose answer was lost.
    fn read_what_became(&self, world: &mut World, held: Option<Held>) -> Option<Held> {
        let before = held?;
        let lost = before.pending?;
        let at = world.refs[LEASE];
        let rec = Some(at).filter(|at| *at != NONE).and_then(|at| world.pushes[maker_of(at)].rec)?;
        if rec.grant != before.rec.grant {
            return None;
        }
        if at == made_by(lost, LEASE, false) {
            // The lease is there; what else the push was to move is looked at before anything is said.
            let is_whole = self.commands(world, lost).into_iter().all(|(on, new)| world.refs[on] == new);
            world.pushes[lost].belief = is_whole.then_some(true);
        } else if at == before.commit {
            return held;
        } else {
            world.pushes[lost].belief = Some(false);
        }
        Some(Held { rec, commit: at, pending: None, ..before })
    }

    /// Moves the refs of push `p` from `first` on, as long as `most` and git's own check allow.
    fn update(&self, world: &mut World, p: usize, first: usize, most: usize) {
        let said = world.pushes[p].said.clone();
        let commands = self.commands(world, p).into_iter().zip(said).enumerate();
        for (n, ((on, new), said)) in commands.skip(first).take(most) {
            let before = world.refs[on];
            if !git_allows(before, new, said) {
                world.pushes[p].declined = true;
                continue;
            }
            world.pushes[p].listed |= 1 << n;
            if before != new {
                world.refs[on] = new;
                world.moves[fence_of(on)].push(Move { on, by: p, before });
            }
        }
    }

    fn git_allows_all(&self, world: &World, p: usize) -> bool {
        let commands = self.commands(world, p).into_iter().zip(&world.pushes[p].said);
        commands.into_iter().all(|((on, new), said)| git_allows(world.refs[on], new, *said))
    }

    /// A receive-pack whose client is gone dies while it reports, and runs nothing.
    fn report(&self, world: &mut World, p: usize) {
        let push = &world.pushes[p];
        let has_word = self.scenario.companion && push.listed != 0 && !self.scenario.pushes[p].is_beat();
        let is_alone = push.answer == Answer::Lost;
        world.pushes[p].phase = if has_word && !is_alone { Phase::Post } else { Phase::Gone };
        if is_alone {
            self.no_word(world, p);
        }
        let answer = if world.pushes[p].declined { Answer::No } else { Answer::Landed };
        self.hear_answer(world, p, answer);
    }

    /// Git will never say what push `p` has moved. If somebody has put that back and nobody has written it down, that
    /// is what is not promised.
    fn no_word(&self, world: &mut World, p: usize) {
        world.pushes[p].wordless = true;
        world.excused |= world.put_back & (1 << p) != 0 && !is_known(world, p);
    }

    /// The push whose work a local writer may put back, and where to. Not under the hands of a push that is still to move
    /// the ref, whose own doing it would then seem to be; and not what nobody knows or will know of.
    fn to_put_back(&self, world: &World, on: Ref) -> Option<Move> {
        let last = *world.moves[fence_of(on)].iter().rfind(|moved| moved.on == on)?;
        let is_there = world.refs[on] != last.before && world.pushes[last.by].listed != 0;
        let name = &self.names[on];
        let mut others = world.now().state.in_flight.iter().filter(|flight| flight.push.0 != id_of(last.by));
        let is_planned = others.any(|flight| flight.plan.refs.iter().any(|planned| planned.name == *name));
        let will_be_known = is_known(world, last.by) || !world.pushes[last.by].wordless;
        (is_there && !is_planned && will_be_known).then_some(last)
    }

    fn may_connect(&self, world: &World, p: usize) -> bool {
        let client = self.scenario.pushes[p].client;
        let before = (0..p).filter(|q| self.scenario.pushes[*q].client == client);
        world.pushes[p].phase == Phase::Idle && before.into_iter().all(|q| world.pushes[q].answer != Answer::None)
    }

    fn restart(&self, world: &mut World, kept: usize, lost: u8) {
        // After a power loss it is as the surviving refs show, and those somebody has put back.
        world.excused |= world.undone > 0 && kept + 1 < world.log.len();
        world.log.truncate(kept + 1);
        world.log.drain(..kept);
        for on in (0..5).filter(|on| lost & (1 << on) != 0) {
            let moves = &mut world.moves[fence_of(on)];
            if let Some(last) = moves.iter().rposition(|moved| moved.on == on) {
                world.refs[on] = moves.remove(last).before;
                world.has_lost_moves = true;
            }
        }
        world.boots += 1;
        world.booted_at = world.ticks;
        for p in 0..world.pushes.len() {
            if world.pushes[p].phase != Phase::Idle {
                world.pushes[p].phase = Phase::Gone;
                self.no_word(world, p);
                self.hear_answer(world, p, Answer::Lost);
            }
        }
    }

    fn take(&self, world: &mut World, step: &Step) -> Option<()> {
        match *step {
            Step::Connect(p) => match self.connect(world, p) {
                Some(push) => world.pushes[p] = push,
                None => world.pushes[p] = Pushing { phase: Phase::Gone, answer: Answer::No, ..Pushing::idle() },
            },
            Step::Judge(p) => {
                let (appended, ruling) = self.judge(world, p);
                let is_beat = self.scenario.pushes[p].is_beat();
                match ruling {
                    Ruling::Wait if appended.is_empty() => return None,
                    // What has landed is synced.
                    Ruling::Wait => world.log = appended.last().cloned().into_iter().collect(),
                    Ruling::Accepted => {
                        world.log.extend(appended);
                        if world.pushes[p].rec.is_some() {
                            world.pushes[p].judged = world.ticks;
                        }
                        world.pushes[p].phase = match world.pushes[p].phase {
                            // A heartbeat is not synced, and nobody asks whether its receive-pack lives.
                            Phase::Orphan if is_beat => Phase::Gone,
                            _ if is_beat => Phase::Update(0),
                            _ => Phase::Written,
                        };
                    }
                    Ruling::Refused(reject) => {
                        world.log.extend(appended);
                        self.refused(world, p, &reject);
                    }
                }
            }
            Step::GiveUp(p) => {
                let (_, Ruling::Wait) = self.judge(world, p) else { return None };
                let busy = Reject::Busy { fence: None, holder: String::new(), waited: std::time::Duration::ZERO };
                let log = world.now().refusing(p, &busy);
                world.log.push(Arc::new(log));
                self.refused(world, p, &busy);
            }
            Step::Sync(p) => {
                let last = world.log.len() - 1;
                world.log.drain(..last);
                let is_orphan = world.pushes[p].phase == Phase::OrphanWritten;
                world.pushes[p].phase = if is_orphan { Phase::Gone } else { Phase::Update(0) };
            }
            Step::Update(p) => {
                let Phase::Update(next) = world.pushes[p].phase else { return None };
                let count = world.pushes[p].said.len();
                if !self.scenario.pushes[p].atomic {
                    self.update(world, p, next, 1);
                    world.pushes[p].phase = if next + 1 == count { Phase::Report } else { Phase::Update(next + 1) };
                } else {
                    if self.git_allows_all(world, p) {
                        self.update(world, p, 0, count);
                    } else {
                        world.pushes[p].declined = true;
                    }
                    world.pushes[p].phase = Phase::Report;
                }
            }
            Step::Decline(p) => {
                let Phase::Update(next) = world.pushes[p].phase else { return None };
                world.declines += 1;
                world.pushes[p].declined = true;
                let is_last = self.scenario.pushes[p].atomic || next + 1 == world.pushes[p].said.len();
                world.pushes[p].phase = if is_last { Phase::Report } else { Phase::Update(next + 1) };
            }
            Step::Exit(p) => self.report(world, p),
            Step::Companion(p) => {
                let appended = self.companion(world, p);
                world.log.extend(appended);
                world.pushes[p].phase = Phase::Gone;
            }
            Step::PutBack(on) => {
                let last = self.to_put_back(world, on)?;
                world.undone += 1;
                world.put_back |= 1 << last.by;
                world.refs[on] = last.before;
            }
            Step::Lose(p) => {
                world.lost += 1;
                self.hear_answer(world, p, Answer::Lost);
            }
            Step::KillHook(p) => {
                world.crashes += 1;
                if matches!(world.pushes[p].phase, Phase::Post | Phase::OrphanPost) {
                    world.pushes[p].phase = Phase::Gone;
                    self.no_word(world, p);
                    return Some(());
                }
                world.pushes[p].declined = true;
                match world.pushes[p].phase {
                    Phase::Hook => self.report(world, p),
                    Phase::Written => world.pushes[p].phase = Phase::Report,
                    _ => world.pushes[p].phase = Phase::Gone,
                }
            }
            Step::KillReceivePack(p) => {
                world.crashes += 1;
                world.pushes[p].phase = match world.pushes[p].phase {
                    Phase::Hook => Phase::Orphan,
                    Phase::Written => Phase::OrphanWritten,
                    Phase::Post => Phase::OrphanPost,
                    _ => Phase::Gone,
                };
                self.no_word(world, p);
                self.hear_answer(world, p, Answer::Lost);
            }
            Step::Tear(p, renamed) => {
                world.crashes += 1;
                self.update(world, p, 0, renamed);
                world.pushes[p].torn = true;
                world.pushes[p].phase = Phase::Gone;
                self.no_word(world, p);
                self.hear_answer(world, p, Answer::Lost);
            }
            Step::Restart(kept, lost) => {
                world.crashes += 1;
                self.restart(world, kept, lost);
            }
            Step::Tick => world.ticks += 1,
        }
        Some(())
    }

    /// A grant whose token is too low is tried once more, with what the refusal says.
    fn refused(&self, world: &mut World, p: usize, reject: &Reject) {
        let is_orphan = world.pushes[p].phase == Phase::Orphan;
        let is_first_try = self.scenario.pushes[p].kind == Kind::Acquire && !world.pushes[p].again && !is_orphan;
        if let (Reject::Stale { mark, .. }, true) = (reject, is_first_try) {
            let token = u8::try_from(mark.get() + 1).unwrap_or(u8::MAX);
            world.pushes[p].rec = world.pushes[p].rec.map(|rec| Rec { token, ..rec });
            world.pushes[p].again = true;
            let log = world.now().forgetting(p);
            world.log.push(Arc::new(log));
            return;
        }
        world.pushes[p].declined = true;
        if is_orphan {
            world.pushes[p].phase = Phase::Gone;
        } else if self.scenario.pushes[p].kind == Kind::Plain {
            self.report(world, p);
        } else {
            world.pushes[p].phase = Phase::Refused;
        }
    }
}

/// Git's own check of the old value, under its lock on the ref. A deletion with an old value that it
/// does not know deletes whatever is there.
fn git_allows(now: Object, new: Object, said: Object) -> bool {
    now == said || (new == NONE && now != NONE && said == NOWHERE)
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let count = self.scenario.pushes.len();
        vec![World {
            refs: [START, START, START, NONE, NONE],
            log: vec![Arc::new(Log::begin(count, self.scenario.raised))],
            pushes: vec![Pushing::idle(); count],
            held: vec![None; count],
            moves: [Vec::new(), Vec::new()],
            has_lost_moves: false,
            undone: 0,
            put_back: 0,
            excused: false,
            crashes: 0,
            declines: 0,
            lost: 0,
            boots: 0,
            ticks: 0,
            booted_at: 0,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let may_crash = world.crashes < self.scenario.crashes;
        // Whoever is about to sync has the lock.
        let is_locked = world.pushes.iter().any(|push| matches!(push.phase, Phase::Written | Phase::OrphanWritten));
        for (p, push) in world.pushes.iter().enumerate() {
            match push.phase {
                Phase::Idle if self.may_connect(world, p) => steps.push(Step::Connect(p)),
                Phase::Hook | Phase::Orphan if !is_locked => {
                    steps.push(Step::Judge(p));
                    if self.scenario.gives_up {
                        steps.push(Step::GiveUp(p));
                    }
                }
                Phase::Written | Phase::OrphanWritten => steps.push(Step::Sync(p)),
                Phase::Update(_) => {
                    steps.push(Step::Update(p));
                    if world.declines < self.scenario.declines {
                        steps.push(Step::Decline(p));
                    }
                    if may_crash && self.scenario.pushes[p].atomic && self.git_allows_all(world, p) {
                        steps.extend((1..push.said.len()).map(|renamed| Step::Tear(p, renamed)));
                    }
                }
                Phase::Report | Phase::Refused => steps.push(Step::Exit(p)),
                Phase::Post | Phase::OrphanPost if !is_locked => steps.push(Step::Companion(p)),
                _ => {}
            }
            if may_crash && push.phase.has_hook() {
                steps.push(Step::KillHook(p));
            }
            if may_crash && push.phase.has_receive_pack() {
                steps.push(Step::KillReceivePack(p));
            }
            let is_unheard = push.answer == Answer::None && push.phase.has_receive_pack();
            if is_unheard && world.lost < self.scenario.lost {
                steps.push(Step::Lose(p));
            }
        }
        if may_crash {
            let volatile = if self.scenario.volatile { world.moves.concat() } else { Vec::new() };
            let volatile = volatile.iter().fold(0u8, |bits, moved| bits | 1 << moved.on);
            let lost = (0..=volatile).filter(|bits| bits & !volatile == 0);
            steps.extend(lost.flat_map(|lost| (0..world.log.len()).map(move |kept| Step::Restart(kept, lost))));
        }
        if world.undone < self.scenario.undone && !is_locked {
            let branches = (0..5).filter(|on| is_branch(*on) && self.to_put_back(world, *on).is_some());
            steps.extend(branches.map(Step::PutBack));
        }
        if world.ticks < self.scenario.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        self.take(&mut world, &step)?;
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        promises::of(&self.scenario)
    }
}

/// Whether what push `p` has moved is on record, of all its fences.
fn is_known(world: &World, p: usize) -> bool {
    let flight = world.now().state.in_flight.iter().find(|flight| flight.push.0 == id_of(p));
    let has_landed = |flight: &InFlight| flight.stakes.iter().all(|stake| flight.landed.spent.contains(&stake.fence));
    world.now().said[p] & SETTLED != 0 || flight.is_some_and(has_landed)
}

/// Whether the log says that push `p` was decided.
pub(crate) fn is_decided(log: &Log, p: usize) -> bool {
    log.said[p] & (ACCEPTED | REFUSED) != 0
}
