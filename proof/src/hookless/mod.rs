//! Remotes that run no hook: git's compare-and-swap is all there is.
//!
//! Two runs want the same lease, and each writes its own branch with it. Whoever finds the lease may take
//! it at any time, whether it has expired or not: that costs work, and must never cost more.

use crate::{
    client::{Eyes, belief, concluded},
    report::Latches,
    world::Answer,
};
use git_fence_core::{
    Life, Mark, Note, Purpose, PushingEnd, Sight, Taking, TakingAnswer, TakingEnd, TakingNext, TakingRefusal, Token,
    Whereabouts, next_token,
};
use stateright::{Model, Property};

mod promises;

pub use promises::{BELIEF, COUNTER, NOT_BOTH, ONE_HOLDER};

/// How the client pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushStyle {
    /// With `--atomic`.
    pub atomic: bool,
    /// With a nonce in every commit of a lease.
    pub nonce: bool,
    /// With a lease that moves in every push.
    pub moves_lease: bool,
    /// With a `+` on its refspecs.
    pub plus: bool,
}

impl PushStyle {
    /// As git-fence pushes.
    pub const WHOLE: PushStyle = PushStyle { atomic: true, nonce: true, moves_lease: true, plus: false };

    /// The ways to push that leave something out, and what they are called.
    pub const HOLES: [(&'static str, PushStyle); 4] = [
        ("without --atomic", PushStyle { atomic: false, ..PushStyle::WHOLE }),
        ("without the nonce", PushStyle { nonce: false, ..PushStyle::WHOLE }),
        ("with a lease that does not move", PushStyle { moves_lease: false, ..PushStyle::WHOLE }),
        ("with a + on the refspec", PushStyle { plus: true, ..PushStyle::WHOLE }),
    ];
}

/// A remote that runs no hook.
#[derive(Debug)]
pub struct Hookless {
    /// How its clients push.
    pub how: PushStyle,
    pub(crate) latches: Latches,
}

/// What each run does, one after the other. That one of them takes the lease again after a lost answer is enough: with
/// both there are more states than anybody waits for.
const PROGRAM: [[Op; 5]; RUNS] = [
    [Op::Acquire, Op::AcquireAgain, Op::Push, Op::Settle, Op::Push],
    [Op::Acquire, Op::None, Op::Push, Op::Settle, Op::Push],
];
const LENGTH: usize = PROGRAM[0].len();
const RUNS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// Nothing at all.
    None,
    Acquire,
    /// After a lost answer: sends the very same once more.
    AcquireAgain,
    Push,
    /// After a lost answer: moves the lease on from where it was held.
    Settle,
}

/// The commit of a lease. Two that are equal are the same object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwapRecord {
    token: u8,
    /// What makes it unlike all others: the push that made it.
    nonce: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SwapPhase {
    Idle,
    /// It has read the lease, and expects it so.
    Read(Option<SwapRecord>),
    /// Its receive-pack has got it.
    Sent,
    /// Its refs have moved or will not, and its client has not heard of it.
    Report,
    Gone,
}

/// A push of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwapPush {
    phase: SwapPhase,
    /// What it expects the lease to be.
    expected: Option<SwapRecord>,
    /// What it would make of the lease.
    new: Option<SwapRecord>,
    /// Where it says that the lease is, if it moves it.
    lease: Option<Option<SwapRecord>>,
    /// Where it says that the branch is, if it moves it.
    branch: Option<u8>,
    refused: bool,
    answer: Answer,
    /// What its client has found out after a lost answer.
    belief: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SwapHeld {
    record: SwapRecord,
    pending: Option<usize>,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SwapRemote {
    lease: Option<SwapRecord>,
    /// How often the branch of each run has moved.
    branches: [u8; RUNS],
    pushes: [SwapPush; RUNS * LENGTH],
    held: [Option<SwapHeld>; RUNS],
    /// How far the taking of the lease has come, and what is to be done next.
    taking: [Option<(Taking, TakingNext)>; RUNS],
    /// The pushes that moved the lease (`false`) or a branch (`true`), in order.
    moves: Vec<(bool, usize)>,
}

/// One step of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapStep {
    /// A client reads the lease.
    Read(usize),
    /// It connects, looks at what the remote shows, and sends its push.
    Send(usize),
    /// Git moves the refs, or does not.
    Land(usize),
    /// The client hears of it.
    Hear(usize),
    /// It never does.
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

/// Whether it takes the lease.
fn is_grant(p: usize) -> bool {
    matches!(op_of(p), Op::Acquire | Op::AcquireAgain)
}

impl PushStyle {
    fn is_next(remote: &SwapRemote, p: usize) -> bool {
        let first = run_of(p) * LENGTH;
        remote.pushes[p].phase == SwapPhase::Idle
            && (first..p).all(|before| remote.pushes[before].answer != Answer::None)
    }

    /// What the client expects the lease to be, and what it would make of it; nothing where it has none.
    fn wish(self, remote: &SwapRemote, p: usize, seen: Option<SwapRecord>) -> Option<(Option<SwapRecord>, SwapRecord)> {
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
        let Some((expected, new)) = self.wish(remote, p, seen) else {
            remote.pushes[p] = SwapPush { phase: SwapPhase::Gone, answer: Answer::No, ..remote.pushes[p] };
            return;
        };
        // What is up to date is not sent; what is not as expected is not either, unless `+` says so.
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
        let lease = push.lease.is_none_or(|said| remote.lease == said);
        let branch = push.branch.is_none_or(|said| remote.branches[run_of(p)] == said);
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

    fn hear(remote: &mut SwapRemote, p: usize, answer: Answer) {
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

    /// The run has read the lease: the client's machine says that it may be taken, whoever has it.
    fn begin(remote: &mut SwapRemote, p: usize) {
        let sight = Sight {
            life: if remote.lease.is_some() { Life::Expired } else { Life::Free },
            is_held: remote.lease.is_some(),
            exists: remote.lease.is_some(),
            gate: false,
            is_unchanged: false,
        };
        let (taking, _) = Taking::start(Purpose::Hold);
        remote.taking[run_of(p)] = Some(taking.step(TakingAnswer::Seen(sight)));
    }

    /// What the client's machine makes of the answer to its taking the lease.
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

    /// What the client's machine makes of the answer to its push, or to the swap that settles a lost one.
    fn pushed(remote: &mut SwapRemote, p: usize, held: Option<SwapHeld>, answer: Answer) -> Option<SwapHeld> {
        let held = held?;
        let settles = op_of(p) == Op::Settle;
        let push = if settles { held.pending? } else { p };
        let is_last_mover = |(is_branch, q): &&(bool, usize)| !is_branch && run_of(*q) == run_of(p);
        let last_move = remote.moves.iter().rev().find(|(is_branch, _)| !is_branch);
        let eyes = Eyes {
            at: match remote.lease {
                now if now == Some(held.record) => Whereabouts::BeforePush,
                now if now == remote.pushes[push].new => Whereabouts::AfterPush,
                _ if last_move.as_ref().is_some_and(is_last_mover) => Whereabouts::Elsewhere,
                _ => Whereabouts::NotOurs,
            },
            in_history: remote.moves.contains(&(false, push)),
            all_there: remote.moves.contains(&(true, push)),
        };
        let (note, end) = concluded(settles, answer, eyes);
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
                SwapPhase::Report => steps.push(SwapStep::Hear(p)),
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
            SwapStep::Hear(p) => {
                remote.pushes[p].phase = SwapPhase::Gone;
                let answer = if remote.pushes[p].refused { Answer::No } else { Answer::Landed };
                PushStyle::hear(&mut remote, p, answer);
            }
            SwapStep::Lose(p) => PushStyle::hear(&mut remote, p, Answer::Lost),
            SwapStep::Kill(p) => {
                remote.pushes[p].phase = SwapPhase::Gone;
                PushStyle::hear(&mut remote, p, Answer::Lost);
            }
        }
        Some(remote)
    }

    fn properties(&self) -> Vec<Property<Hookless>> {
        promises::all()
    }
}

/// A step in words.
pub fn line(step: SwapStep) -> String {
    let who = |p: usize| format!("run {}, {:<13}", run_of(p), format!("{:?}:", op_of(p)).to_lowercase());
    match step {
        SwapStep::Read(p) => format!("{} reads the lease", who(p)),
        SwapStep::Send(p) => format!("{} connects and sends its push", who(p)),
        SwapStep::Land(p) => format!("{} git moves what it may", who(p)),
        SwapStep::Hear(p) => format!("{} the client hears the answer", who(p)),
        SwapStep::Lose(p) => format!("{} the answer is lost", who(p)),
        SwapStep::Kill(p) => format!("{} its receive-pack is killed", who(p)),
    }
}
