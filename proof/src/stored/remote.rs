//! The remote: git's transaction, the gate before it, and the liar.

use super::{
    Stored,
    client::Reply,
    promises::{self, Sight},
    rules::GateRules,
    store::{byte, ownership_in, proof_of, token_in},
    world::{Carries, Flight, Kept, LIAR, MarkVersion, Progress, Proof, StoredWorld},
};
use git_fence_core::{
    Accept, FenceEntry, LeaseId, LeaseState, Mark, MarkRecord, Ownership, Token, next_token, nonce_of,
};

/// What the liar pushes. It knows everything but the holders' secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Refs and a mark one higher, in the holder's name, without a proof.
    NoProof,
    /// The same with the proof that this version of the mark has published.
    OldProof(usize),
    /// The same in a name that nobody knows.
    Stranger,
    /// A barrier for the holder, without a proof.
    Barrier,
    /// The same with the proof that this version of the mark has published.
    OldBeat(usize),
    /// A touch.
    Touch,
}

/// The nonce of the mark that push number `push` makes.
pub(super) fn mark_nonce(push: usize) -> String {
    nonce_of([byte(push); 16])
}

impl MarkVersion {
    /// A version with this record.
    pub fn new(
        record: MarkRecord,
        push: usize,
        run: usize,
        owner: Option<usize>,
        carries: Carries,
        proof: Option<Proof>,
    ) -> MarkVersion {
        let key = (record.token, record.by.clone(), record.nonce.clone());
        MarkVersion { record: Kept::new(record, key), push, run, owner, carries, proof }
    }
}

impl Stored {
    /// Whether push `flight` needs the gate's answer before it may move anything.
    pub(super) fn is_to_be_admitted(&self, flight: &Flight) -> bool {
        self.rules.gate.is_some() && flight.progress != Progress::InSlot
    }

    /// Whether the gate asks the store about it first.
    pub(super) fn is_to_be_asked(&self, flight: &Flight) -> bool {
        let asks = self.rules.gate.is_some_and(|gate| gate.asks);
        asks && flight.progress == Progress::Arrived && flight.makes.carries != Carries::Touch
    }

    /// The gate decides about push `f`, with what the store has answered, and with its own mark, under its lock.
    pub(super) fn admit(&self, world: &mut StoredWorld, f: usize) {
        let (Some(gate), flight) = (self.rules.gate, &world.flights[f]) else { return };
        let next = flight.makes.record.get();
        let mark = world.mark().record.get();
        let is_as_claimed = flight.expects == world.tip() || !self.rules.compares_mark;
        let is_touch = next.token == mark.token && next.by == mark.by;
        let may = match flight.makes.carries {
            Carries::Touch => is_touch,
            Carries::Barrier => gate.asks && barrier_counts(world, flight, gate),
            Carries::Refs => self.counts(world, flight) && is_the_holders(world, flight, gate),
        };
        if may && is_as_claimed {
            world.flights[f].progress = Progress::InSlot;
        } else {
            if flight.makes.run == LIAR && flight.makes.carries == Carries::Refs {
                promises::see(world, Sight::LieRefused);
            }
            self.leave(world, f, Reply::Refused);
        }
    }

    fn counts(&self, world: &StoredWorld, flight: &Flight) -> bool {
        let next = flight.makes.record.get();
        let (Ok(token), Some(by)) = (Token::try_from(next.token.get()), &next.by) else { return false };
        self.admits(world.mark().record.get(), token, by)
    }

    /// Git's transaction: all refs of push `f` move, or none.
    pub(super) fn land(&self, world: &mut StoredWorld, f: usize) {
        let flight = &world.flights[f];
        if self.rules.compares_mark && flight.expects != world.tip() {
            return self.leave(world, f, Reply::Refused);
        }
        let makes = flight.makes.clone();
        if makes.carries == Carries::Refs {
            promises::written(world, &makes);
        }
        world.marks.push(makes);
        self.leave(world, f, Reply::Landed);
    }

    /// Push `f` is over.
    pub(super) fn leave(&self, world: &mut StoredWorld, f: usize, reply: Reply) {
        let Flight { makes, .. } = world.flights.remove(f);
        if makes.run != LIAR && world.runs[makes.run].awaits == Some(makes.push) {
            self.receive(world, makes.run, reply);
        }
    }

    /// Pushes that can never move anything, and whose reply nobody waits for, are forgotten.
    pub(super) fn forget_dead(&self, world: &mut StoredWorld) {
        if self.rules.compares_mark {
            let (tip, runs) = (world.tip(), &world.runs);
            let is_awaited = |makes: &MarkVersion| makes.run != LIAR && runs[makes.run].awaits == Some(makes.push);
            world.flights.retain(|flight| flight.expects == tip || is_awaited(&flight.makes));
        }
    }

    /// The liar pushes.
    pub(super) fn lie(world: &mut StoredWorld, lie: Lie) -> Option<()> {
        let mark = world.mark().record.get();
        let shown = world.now.map(|now| world.entry(now));
        let by = shown.and_then(ownership_in);
        let push = 32 * LIAR + usize::from(world.lies);
        let nonce = mark_nonce(push);
        let token = next_token(None, mark.token)?;
        let (record, carries) = match lie {
            Lie::NoProof | Lie::OldProof(_) => (mark.written(token, Some(by?), "liar", nonce), Carries::Refs),
            Lie::Stranger => {
                let by = Ownership { lease: LeaseId::of([0xee; 16]), first: token };
                (mark.written(token, Some(by), "liar", nonce), Carries::Refs)
            }
            Lie::Barrier | Lie::OldBeat(_) => {
                (mark.raised(barrier_in(shown?)?, Some(by?), "liar", nonce), Carries::Barrier)
            }
            Lie::Touch => (mark.touched(nonce), Carries::Touch),
        };
        let proof = match lie {
            Lie::OldProof(at) | Lie::OldBeat(at) => Some(world.marks.get(at)?.proof?),
            _ => None,
        };
        let makes = MarkVersion::new(record, push, LIAR, None, carries, proof);
        world.flights.push(Flight { makes, expects: world.tip(), progress: Progress::Arrived });
        world.lies += 1;
        Some(())
    }
}

/// How far the gate lets a barrier for the lease in `entry` raise the mark: below its token while it is held.
fn barrier_in(entry: &FenceEntry) -> Option<Mark> {
    let lease = &entry.lease.as_ref()?.lease;
    Some(match lease.state {
        LeaseState::Held => Accept::Above.mark_before(lease.token),
        LeaseState::Released | LeaseState::Halted | LeaseState::Moved => lease.token.into(),
    })
}

/// Whether a push that raises the mark alone is for the lease that the store has shown, shows the proof of its beat, and does
/// not revive it: a store that has rolled back may show one that was overtaken.
fn barrier_counts(world: &StoredWorld, flight: &Flight, gate: GateRules) -> bool {
    let Progress::Asked(Some(record)) = flight.progress else { return false };
    let (entry, next, mark) = (world.entry(record), flight.makes.record.get(), world.mark().record.get());
    let Some(token) = token_in(entry) else { return false };
    let is_proven = flight.makes.proof == Some(Proof::Beat(world.records[record].owner));
    let is_raised_too_far = barrier_in(entry).is_none_or(|most| next.token > most);
    let is_current = mark.by == next.by || mark.admits(token, next.by.as_ref());
    next.by == ownership_in(entry)
        && (is_proven || !gate.proves || !gate.barrier_shows_beat)
        && !is_raised_too_far
        && (is_current || !gate.knows_overtaken)
}

/// Whether the store has shown the lease of this push, held, with its token, and the proof is its holder's.
fn is_the_holders(world: &StoredWorld, flight: &Flight, gate: GateRules) -> bool {
    if !gate.asks {
        return true;
    }
    let Progress::Asked(Some(record)) = flight.progress else { return false };
    let (entry, next) = (world.entry(record), flight.makes.record.get());
    let Some(lease) = entry.lease.as_ref().map(|stored| &stored.lease) else { return false };
    let is_held = next.by.as_ref().is_some_and(|by| token_in(entry).is_some_and(|t| entry.is_held_by(&by.lease, t)));
    let is_token = token_in(entry).is_some_and(|token| next.token == token.into());
    let shown = match flight.makes.proof {
        Some(Proof::Lease(record)) => Some(proof_of(world.records[record].owner, record)),
        Some(Proof::Beat(_)) | None => None,
    };
    let is_proven = shown.is_some_and(|proof| proof.holder() == lease.holder);
    is_held && is_token && (is_proven || !gate.proves)
}
