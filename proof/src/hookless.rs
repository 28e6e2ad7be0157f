//! Remotes that run no hook: git's compare-and-swap is all there is.
//!
//! Two runs want the same lease, and each writes its own branch with it. Whoever finds the lease may take
//! it at any time, whether it has expired or not: that costs work, and must never cost more.

use crate::{report::Latches, world::Answer};
use git_fence_core::{Mark, Token, next_token};
use stateright::{Model, Property};

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

/// Only the holder writes.
pub const ONE_HOLDER: &str = "only the holder of the lease writes";
/// Nobody shares.
pub const NOT_BOTH: &str = "two never hold the same lease";
/// Counting.
pub const COUNTER: &str = "every grant has a higher token than all before it";
/// Lost answers.
pub const BELIEF: &str = "what a client finds out after a lost answer is so";

/// What each run does, one after the other.
const PROGRAM: [Op; 4] = [Op::Acquire, Op::Push, Op::Settle, Op::Push];
const RUNS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Acquire,
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
    pushes: [SwapPush; RUNS * PROGRAM.len()],
    held: [Option<SwapHeld>; RUNS],
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
    p / PROGRAM.len()
}

fn op_of(p: usize) -> Op {
    PROGRAM[p % PROGRAM.len()]
}

impl PushStyle {
    fn is_next(remote: &SwapRemote, p: usize) -> bool {
        let first = run_of(p) * PROGRAM.len();
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
        remote.pushes[p] = SwapPush { phase, new: Some(new), lease, branch, refused: is_refused, ..remote.pushes[p] };
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
        let record = remote.pushes[p].new;
        remote.held[run_of(p)] = match (op_of(p), answer) {
            (Op::Acquire | Op::Push, Answer::Landed) => record.map(|record| SwapHeld { record, pending: None }),
            (Op::Push, Answer::Lost) => held.map(|held| SwapHeld { pending: Some(p), ..held }),
            (Op::Settle, Answer::Landed) => {
                if let Some(lost) = held.and_then(|held| held.pending) {
                    remote.pushes[lost].belief = Some(false);
                }
                record.map(|record| SwapHeld { record, pending: None })
            }
            (Op::Settle, Answer::No) => held.and_then(|held| PushStyle::read_what_became(remote, held)),
            _ => held,
        };
    }

    fn read_what_became(remote: &mut SwapRemote, held: SwapHeld) -> Option<SwapHeld> {
        let lost = held.pending?;
        let now = remote.lease?;
        if Some(now) == remote.pushes[lost].new {
            remote.pushes[lost].belief = Some(true);
            return Some(SwapHeld { record: now, pending: None });
        }
        (now == held.record).then_some(held)
    }
}

impl Model for Hookless {
    type State = SwapRemote;
    type Action = SwapStep;

    fn init_states(&self) -> Vec<SwapRemote> {
        let idle = SwapPush {
            phase: SwapPhase::Idle,
            new: None,
            lease: None,
            branch: None,
            refused: false,
            answer: Answer::None,
            belief: None,
        };
        vec![SwapRemote {
            lease: None,
            branches: [0; RUNS],
            pushes: [idle; RUNS * PROGRAM.len()],
            held: [None; RUNS],
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
            SwapStep::Read(p) => remote.pushes[p].phase = SwapPhase::Read(remote.lease),
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
        vec![
            Property::always(ONE_HOLDER, |model: &Hookless, remote: &SwapRemote| {
                model.latches.first(0, || is_written_by_its_holder(remote))
            }),
            Property::always(NOT_BOTH, |model: &Hookless, remote: &SwapRemote| {
                let [one, other] = remote.held.map(|held| held.map(|held| held.record));
                model.latches.first(1, || one.is_none() || one != other)
            }),
            Property::always(COUNTER, |model: &Hookless, remote: &SwapRemote| {
                let of_lease = remote.moves.iter().filter(|(is_branch, _)| !is_branch);
                let tokens: Vec<u8> = of_lease.filter_map(|(_, p)| Some(remote.pushes[*p].new?.token)).collect();
                model.latches.first(2, || tokens.is_sorted_by(|before, after| before < after))
            }),
            Property::always(BELIEF, |model: &Hookless, remote: &SwapRemote| {
                let has_moved = |p: usize| remote.moves.contains(&(true, p));
                let is_true = |p: usize| remote.pushes[p].belief.is_none_or(|belief| belief == has_moved(p));
                model.latches.first(3, || (0..remote.pushes.len()).all(is_true))
            }),
            Property::sometimes("takeover", |_: &Hookless, remote: &SwapRemote| {
                let grant = |r: usize| remote.moves.iter().any(|(_, p)| op_of(*p) == Op::Acquire && run_of(*p) == r);
                grant(0) && grant(1)
            }),
            Property::sometimes("a zombie is refused", |_: &Hookless, remote: &SwapRemote| {
                let is_zombie = |p: &usize| op_of(*p) == Op::Push && remote.pushes[*p].refused;
                (0..remote.pushes.len()).any(|p| is_zombie(&p))
            }),
            Property::sometimes("landed after all", |_: &Hookless, remote: &SwapRemote| {
                remote.pushes.iter().any(|push| push.belief == Some(true))
            }),
            Property::sometimes("never landed", |_: &Hookless, remote: &SwapRemote| {
                remote.pushes.iter().any(|push| push.belief == Some(false))
            }),
        ]
    }
}

fn is_written_by_its_holder(remote: &SwapRemote) -> bool {
    let mut holder = None;
    remote.moves.iter().all(|(is_branch, p)| {
        if !is_branch && op_of(*p) == Op::Acquire {
            holder = Some(run_of(*p));
        }
        !is_branch || holder == Some(run_of(*p))
    })
}

/// A step in words.
pub fn line(step: SwapStep) -> String {
    let who = |p: usize| format!("run {}, {:<8}", run_of(p), format!("{:?}:", op_of(p)).to_lowercase());
    match step {
        SwapStep::Read(p) => format!("{} reads the lease", who(p)),
        SwapStep::Send(p) => format!("{} connects and sends its push", who(p)),
        SwapStep::Land(p) => format!("{} git moves what it may", who(p)),
        SwapStep::Hear(p) => format!("{} the client hears the answer", who(p)),
        SwapStep::Lose(p) => format!("{} the answer is lost", who(p)),
        SwapStep::Kill(p) => format!("{} its receive-pack is killed", who(p)),
    }
}
