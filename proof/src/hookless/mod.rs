//! Remotes without a hook: git's compare-and-swap is the only protection.
//!
//! Two runs want the same lease, and each writes its own branch under it. A run that finds the lease may take it at any
//! time, expired or not: that wastes work, but must never do more harm.

use crate::{
    client::{Observation, belief, concluded},
    report::Latches,
    world::Answer,
};
use git_fence_core::{
    Life, Mark, Note, Purpose, PushingEnd, Sight, Taking, TakingAnswer, TakingEnd, TakingNext, TakingRefusal, Token,
    Whereabouts, next_token,
};
use stateright::{Model, Property};

mod promises;
mod words;

pub use promises::{BELIEF, COUNTER, NOT_BOTH, ONE_HOLDER};
pub use words::line;

/// How the client pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushStyle {
    /// With `--atomic`.
    pub atomic: bool,
    /// With a nonce in every lease commit.
    pub nonce: bool,
    /// With a lease that moves in every push.
    pub moves_lease: bool,
    /// With a `+` on its refspecs.
    pub plus: bool,
}

impl PushStyle {
    /// As git-fence pushes.
    pub const WHOLE: PushStyle = PushStyle { atomic: true, nonce: true, moves_lease: true, plus: false };

    /// Ways to push with an omission, and their names.
    pub const HOLES: [(&'static str, PushStyle); 4] = [
        ("without --atomic", PushStyle { atomic: false, ..PushStyle::WHOLE }),
        ("without the nonce", PushStyle { nonce: false, ..PushStyle::WHOLE }),
        ("with a lease that does not move", PushStyle { moves_lease: false, ..PushStyle::WHOLE }),
        ("with a + on the refspec", PushStyle { plus: true, ..PushStyle::WHOLE }),
    ];
}

/// A remote without a hook.
#[derive(Debug)]
pub struct Hookless {
    /// How its clients push.
    pub how: PushStyle,
    pub(crate) latches: Latches,
}

/// The operations of each run, in order. It suffices that one of them acquires the lease again after a lost answer: with
/// both, there are too many states.
const PROGRAM: [[Op; 5]; RUNS] = [
    [Op::Acquire, Op::AcquireAgain, Op::Push, Op::Settle, Op::Push],
    [Op::Acquire, Op::None, Op::Push, Op::Settle, Op::Push],
];
const LENGTH: usize = PROGRAM[0].len();
const RUNS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// No operation.
    None,
    Acquire,
    /// After a lost answer: sends the same push again.
    AcquireAgain,
    Push,
    /// After a lost answer: advances the lease from the record that was held.
    Settle,
}

/// A lease commit. Two equal ones are the same object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwapRecord {
    token: u8,
    /// What distinguishes it from all others: the push that created it.
    nonce: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SwapPhase {
    Idle,
    /// It has read the lease, and expects this value.
    Read(Option<SwapRecord>),
    /// Its receive-pack has received it.
    Sent,
    /// Its refs have moved, or will not, but its client has not been told.
    Report,
    Gone,
}

/// A push of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwapPush {
    phase: SwapPhase,
    /// The value that it expects of the lease.
    expected: Option<SwapRecord>,
    /// The new value of the lease.
    new: Option<SwapRecord>,
    /// The old value that it claims for the lease, if it moves it.
    lease: Option<Option<SwapRecord>>,
    /// The old value that it claims for the branch, if it moves it.
    branch: Option<u8>,
    refused: bool,
    answer: Answer,
    /// What its client has concluded after a lost answer.
    belief: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SwapHeld {
    record: SwapRecord,
    pending: Option<usize>,
}

/// The whole state at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SwapRemote {
    lease: Option<SwapRecord>,
    /// How often the branch of each run has moved.
    branches: [u8; RUNS],
    pushes: [SwapPush; RUNS * LENGTH],
    held: [Option<SwapHeld>; RUNS],
    /// The progress of acquiring the lease, and the next action.
    taking: [Option<(Taking, TakingNext)>; RUNS],
    /// The pushes that moved the lease (`false`) or a branch (`true`), in order.
    moves: Vec<(bool, usize)>,
}

/// One step of a client or of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapStep {
    /// A client reads the lease.
    Read(usize),
    /// It connects, reads the remote's refs, and sends its push.
    Send(usize),
    /// Git moves the refs, or does not.
    Land(usize),
    /// The client receives the answer.
    Receive(usize),
    /// The answer is lost.
    Lose(usize),
    /// Receive-pack is killed.
    Kill(usize),
}

fn run_of(p: usize) -> usize {
    p / LENGTH
}

fn op_of(p: usize) -> Op {
    PROGRAM[run_of(p)][p % LENGTH]
}

/// Whether it acquires the lease.
fn is_grant(p: usize) -> bool {
    matches!(op_of(p), Op::Acquire | Op::AcquireAgain)
}

impl PushStyle {
    fn is_next(remote: &SwapRemote, p: usize) -> bool {
        let first = run_of(p) * LENGTH;
        remote.pushes[p].phase == SwapPhase::Idle
            && (first..p).all(|before| remote.pushes[before].answer != Answer::None)
    }

    /// The expected and the new value of the lease; `None` if the client sends nothing.
    fn proposal(
        self,
        remote: &SwapRemote,
        p: usize,
        seen: Option<SwapRecord>,
    ) -> Option<(Option<SwapRecord>, SwapRecord)> {
        let after = |last: Option<SwapRecord>| {
            let last = last.and_then(|last| Token::try_from(u64::from(last.token)).ok());
            let token = u8::try_from(next_token(last, Mark::default())?.get()).ok()?;
            Some(SwapRecord { token, nonce: self.nonce.then_some(p) })
        };
        let held = remote.held[run_of(p)];
        match op_of(p) {
            Op::Acquire => Some((seen, after(seen)?)),
            Op::None => None,
            Op::AcquireAgain => {
                let wants_to = matches!(remote.taking[run_of(p)], Some((_, TakingNext::SwapAgain)));
                let first = remote.pushes[p - 1];
                wants_to.then_some((first.expected, first.new?))
            }
            Op::Push => {
                let held = held.filter(|held| held.pending.is_none())?.record;
                Some((Some(held), if self.moves_lease { after(Some(held))? } else { held }))
            }
            Op::Settle => {
                let held = held.filter(|held| held.pending.is_some())?.record;
                Some((Some(held), after(Some(held))?))
            }
        }
    }

    fn send(self, remote: &mut SwapRemote, p: usize, seen: Option<SwapRecord>) {
        let shown = remote.lease;
        let Some((expected, new)) = self.proposal(remote, p, seen) else {
            remote.pushes[p] = SwapPush { phase: SwapPhase::Gone, answer: Answer::No, ..remote.pushes[p] };
            return;
        };
        // A ref that is up to date is not sent. Neither is one with an unexpected value, unless `+` is given.
        let is_up_to_date = shown == Some(new);
        let is_refused = !is_up_to_date && shown != expected && !self.plus;
        let lease = (!is_up_to_date && !is_refused).then_some(shown);
        let branch = (op_of(p) == Op::Push && !(is_refused && self.atomic)).then_some(remote.branches[run_of(p)]);
        let phase = if lease.is_none() && branch.is_none() { SwapPhase::Report } else { SwapPhase::Sent };
        let new = Some(new);
        remote.pushes[p] = SwapPush { phase, expected, new, lease, branch, refused: is_refused, ..remote.pushes[p] };
    }

    fn land(self, remote: &mut SwapRemote, p: usize) {
        let push = remote.pushes[p];
        let lease = push.lease.is_none_or(|claimed| remote.lease == claimed);
        let branch = push.branch.is_none_or(|claimed| remote.branches[run_of(p)] == claimed);
        let all = lease && branch;
        if push.lease.is_some() && (all || (lease && !self.atomic)) {
            remote.lease = push.new;
            remote.moves.push((false, p));
        }
        if push.branch.is_some() && (all || (branch && !self.atomic)) {
            remote.branches[run_of(p)] += 1;
            remote.moves.push((true, p));
        }
        remote.pushes[p].refused |= !all;
        remote.pushes[p].phase = SwapPhase::Report;
    }

    fn receive(remote: &mut SwapRemote, p: usize, answer: Answer) {
        if remote.pushes[p].answer != Answer::None {
            return;
        }
        remote.pushes[p].answer = answer;
        let held = remote.held[run_of(p)];
        remote.held[run_of(p)] = match op_of(p) {
            Op::Acquire | Op::AcquireAgain => PushStyle::taken(remote, p, answer).or(held),
            Op::Push | Op::Settle => PushStyle::pushed(remote, p, held, answer),
            Op::None => held,
        };
    }

    /// The run has read the lease: according to the client's state machine it may acquire it, whoever holds it.
    fn begin(remote: &mut SwapRemote, p: usize) {
        let sight = Sight {
            is_halted: false,
            life: if remote.lease.is_some() { Life::Expired } else { Life::Free },
            is_held: remote.lease.is_some(),
            exists: remote.lease.is_some(),
            gate: false,
            is_unchanged: false,
        };
        let (taking, _) = Taking::start(Purpose::Hold);
        remote.taking[run_of(p)] = Some(taking.step(TakingAnswer::Seen(sight)));
    }

    /// The client's state machine processes the answer to an attempt to acquire the lease.
    fn taken(remote: &mut SwapRemote, p: usize, answer: Answer) -> Option<SwapHeld> {
        let (taking, next) = remote.taking[run_of(p)]?;
        let is_due = match op_of(p) {
            Op::AcquireAgain => next == TakingNext::SwapAgain,
            _ => next == TakingNext::Propose,
        };
        let record = remote.pushes[p].new.filter(|_| is_due)?;
        let (mut taking, mut next) = taking.step(match answer {
            Answer::Landed => TakingAnswer::Won,
            Answer::Lost => TakingAnswer::Unknown { most: 1 },
            Answer::None | Answer::No => TakingAnswer::Refused(TakingRefusal::ByStore { crowded: false }),
        });
        if next == TakingNext::Check {
            (taking, next) = taking.step(TakingAnswer::IsThere(remote.lease == Some(record)));
        }
        remote.taking[run_of(p)] = Some((taking, next));
        (next == TakingNext::End(TakingEnd::Ours)).then_some(SwapHeld { record, pending: None })
    }

    /// The client's state machine processes the answer to a push, or to the swap that settles a lost one.
    fn pushed(remote: &mut SwapRemote, p: usize, held: Option<SwapHeld>, answer: Answer) -> Option<SwapHeld> {
        let held = held?;
        let settles = op_of(p) == Op::Settle;
        let push = if settles { held.pending? } else { p };
        let is_last_mover = |(is_branch, q): &&(bool, usize)| !is_branch && run_of(*q) == run_of(p);
        let last_move = remote.moves.iter().rev().find(|(is_branch, _)| !is_branch);
        let observed = Observation {
            at: match remote.lease {
                now if now == Some(held.record) => Whereabouts::BeforePush,
                now if now == remote.pushes[push].new => Whereabouts::AfterPush,
                _ if last_move.as_ref().is_some_and(is_last_mover) => Whereabouts::Elsewhere,
                _ => Whereabouts::NotOurs,
            },
            in_history: remote.moves.contains(&(false, push)),
            all_there: remote.moves.contains(&(true, push)),
        };
        let (note, end) = concluded(settles, answer, observed);
        if settles {
            remote.pushes[push].belief = end.and_then(belief);
        }
        let moved = |record| SwapHeld { record, pending: None };
        match (note, end) {
            (_, Some(PushingEnd::Lost { .. } | PushingEnd::LandedThenLost | PushingEnd::LostOnTheWay)) => None,
            (Note::Nothing, None) => Some(SwapHeld { pending: Some(push), ..held }),
            (Note::Nothing, Some(_)) => Some(held),
            (Note::Unmoved, _) => Some(moved(held.record)),
            (Note::MovedByPush, _) => remote.pushes[push].new.map(moved),
            (Note::MovedBySettling, _) => remote.pushes[p].new.map(moved),
            (Note::MovedToSeen, _) => remote.lease.map(moved),
        }
    }
}

impl Model for Hookless {
    type State = SwapRemote;
    type Action = SwapStep;

    fn init_states(&self) -> Vec<SwapRemote> {
        let idle = SwapPush {
            phase: SwapPhase::Idle,
            expected: None,
            new: None,
            lease: None,
            branch: None,
            refused: false,
            answer: Answer::None,
            belief: None,
        };
        let nothing = SwapPush { phase: SwapPhase::Gone, answer: Answer::No, ..idle };
        let mut pushes = [idle; RUNS * LENGTH];
        (0..pushes.len()).filter(|p| op_of(*p) == Op::None).for_each(|p| pushes[p] = nothing);
        vec![SwapRemote {
            lease: None,
            branches: [0; RUNS],
            pushes,
            held: [None; RUNS],
            taking: [None; RUNS],
            moves: Vec::new(),
        }]
    }

    fn actions(&self, remote: &SwapRemote, steps: &mut Vec<SwapStep>) {
        for (p, push) in remote.pushes.iter().enumerate() {
            match push.phase {
                SwapPhase::Idle if PushStyle::is_next(remote, p) => steps.push(SwapStep::Read(p)),
                SwapPhase::Read(_) => steps.push(SwapStep::Send(p)),
                SwapPhase::Sent => steps.extend([SwapStep::Land(p), SwapStep::Kill(p)]),
                SwapPhase::Report => steps.push(SwapStep::Receive(p)),
                _ => {}
            }
            if push.answer == Answer::None && matches!(push.phase, SwapPhase::Sent | SwapPhase::Report) {
                steps.push(SwapStep::Lose(p));
            }
        }
    }

    fn next_state(&self, before: &SwapRemote, step: SwapStep) -> Option<SwapRemote> {
        let mut remote = before.clone();
        match step {
            SwapStep::Read(p) => {
                remote.pushes[p].phase = SwapPhase::Read(remote.lease);
                if op_of(p) == Op::Acquire {
                    PushStyle::begin(&mut remote, p);
                }
            }
            SwapStep::Send(p) => {
                let SwapPhase::Read(seen) = remote.pushes[p].phase else { return None };
                self.how.send(&mut remote, p, seen);
            }
            SwapStep::Land(p) => self.how.land(&mut remote, p),
            SwapStep::Receive(p) => {
                remote.pushes[p].phase = SwapPhase::Gone;
                let answer = if remote.pushes[p].refused { Answer::No } else { Answer::Landed };
                PushStyle::receive(&mut remote, p, answer);
            }
            SwapStep::Lose(p) => PushStyle::receive(&mut remote, p, Answer::Lost),
            SwapStep::Kill(p) => {
                remote.pushes[p].phase = SwapPhase::Gone;
                PushStyle::receive(&mut remote, p, Answer::Lost);
            }
        }
        Some(remote)
    }

    fn properties(&self) -> Vec<Property<Hookless>> {
        promises::all()
    }
}
