//! A fence of a remote, and what can be done with its lease.
//!
//! Every operation is one push with a compare-and-swap for each ref of the lease that it moves. So
//! whoever comes second fails, whatever either believes; and an answer that was lost is not guessed:
//! the next compare-and-swap says what became of the push.

use crate::{
    clock::{self, Clock},
    denied::{Denied, Said},
    failure::Failure,
    git::{
        How, Waiting,
        local::{Local, Remote},
        said::Denial,
    },
    lease::held::HeldLease,
    random,
    store::{
        answer::{NotSent, RefAnswer},
        program::StoreProgram,
        reading::Mirror,
    },
};
use git_fence_core::{
    Beat, Code, FenceName, GateAnswer, Halt, Lease, LeasePart, LeaseSnapshot, LeaseState, Reason, Stamp, StoredLease,
    SwapRefused, Swapped, text,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A fence of a remote, seen from a clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) local: Local,
    pub(crate) remote: Remote,
    pub(crate) fence: FenceName,
    pub(crate) clock: Clock,
    /// By when the remote must have answered; none waits as long as git does.
    pub(crate) until: Option<Stamp>,
    /// When this is set, it is not waited for any longer.
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// When this is set, the command was asked to end: what it asks of the remote from then on, to give back what it
    /// took, must not take long.
    pub(crate) hurry: Option<Arc<AtomicBool>>,
    /// How long one answer may take; none waits as long as git does.
    pub(crate) patience: Option<Duration>,
    /// How to name the remote while it is waited for.
    pub(crate) waiting: Option<Waiting>,
    /// The store in which the lease is kept; none if it is in the remote. Its connection is shared by all copies of this.
    pub(crate) store: Option<Arc<StoreProgram>>,
}

/// How long each answer may take after the command was asked to end.
const LAST_ANSWERS: Duration = Duration::from_secs(20);
/// How long a remote may take for one answer. A gate may let a push wait for 30 s (`fence.wait`).
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

impl Client {
    /// What the remote shows of the lease: one connection.
    pub(crate) fn read(&self) -> Result<LeaseSnapshot, Failure> {
        self.mirror()?.read(&self.how(), 1)
    }

    /// What this clone knows of the lease.
    pub(crate) fn mirror(&self) -> Result<Mirror<'_>, Failure> {
        Mirror::open(&self.local, &self.remote, &self.fence)
    }

    pub(crate) fn beat_of(&self, held: &HeldLease, progress: Option<String>, gate: bool, now: &Stamp) -> Beat {
        let deadline = Beat::deadline_at(clock::after(now, held.lease.ttl.duration()).unix_ms);
        let nonce = random::nonce();
        let holder = held.key.holder(LeasePart::Beat, &nonce);
        Beat { lease: held.lease.id.clone(), deadline, progress, gate, holder, nonce }
    }

    /// Whether git means this repository by the remote's name. What another clone calls by it is another one.
    pub(crate) fn is_named(&self) -> bool {
        let named = self.local.git.ask(["remote", "get-url", "--push", "--all", &self.remote.name]);
        named.is_ok_and(|url| url == self.remote.url)
    }

    /// What git calls it: by its name, where it has one.
    pub(crate) fn name_for_git(&self) -> &str {
        if self.is_named() { &self.remote.name } else { &self.remote.url }
    }

    pub(crate) fn how(&self) -> How {
        let left = self.until.as_ref().map(|until| clock::left_until(until, &self.clock.now()));
        let in_a_hurry = self.hurry.as_ref().is_some_and(|hurry| hurry.load(Ordering::Relaxed));
        let within = left.into_iter().chain(in_a_hurry.then_some(LAST_ANSWERS)).chain(self.patience).min();
        How { aloud: false, within, stop: self.stop.clone(), waiting: self.waiting.clone() }
    }

    /// Who has the lease instead of us.
    pub(crate) fn lost(&self, seen: &LeaseSnapshot) -> Failure {
        let now = seen.lease.as_ref().map(|StoredLease { lease, .. }| {
            let owner = text::in_quotes(&lease.owner);
            match lease.state {
                LeaseState::Held => format!("{owner} holds it, with token {}; {}", lease.token, how_it_came(lease)),
                LeaseState::Released if lease.is_revocation() => format!("{owner} revoked it ({})", why(lease)),
                LeaseState::Released => format!("{owner} held it last and released it"),
                LeaseState::Halted => lease.halt().map_or(String::new(), |halt| format!("it is {halt}")),
                LeaseState::Moved => "the leases of this fence are kept elsewhere".to_owned(),
            }
        });
        let now = now.unwrap_or_else(|| "its ref no longer exists in the remote".to_owned());
        let by = seen.held_by(&self.clock.now()).map(Box::new);
        Failure::Lost { fence: self.fence.clone(), now, by, halt: seen.halt().map(Box::new) }
    }

    /// The fence is halted, as was read or as the gate says.
    pub(crate) fn halted(&self, halt: Halt) -> Failure {
        Failure::Halted { remote: self.remote.name.clone(), fence: self.fence.clone(), halt: Box::new(halt) }
    }

    /// The same, for connections at which nobody can type.
    pub(crate) fn unattended(&self) -> Client {
        let local = Local { git: self.local.git.unattended(), ..self.local.clone() };
        Client { local, ..self.clone() }
    }

    /// The same, with the store in which this lease is kept, whatever else is set here.
    pub(crate) fn with_store_of(&self, held: &HeldLease) -> Client {
        let is_it = |program: &&Arc<StoreProgram>| held.store.as_ref().is_some_and(|kept| program.is_of(kept));
        let store = match (&held.store, self.store.as_ref().filter(is_it)) {
            (_, Some(same)) => Some(same.clone()),
            (Some(kept), None) => Some(Arc::new(StoreProgram::new(&kept.url, &kept.place.resource))),
            (None, None) => None,
        };
        Client { store, ..self.clone() }
    }

    pub(crate) fn unreachable(&self, why: String) -> Failure {
        Failure::Unreachable { remote: self.remote.name.clone(), why, said: Said::default() }
    }

    pub(crate) fn not_sent(&self, why: NotSent) -> Failure {
        match why {
            NotSent::FromHere(why) => Failure::NotSent { why },
            NotSent::NoConnection { why, said } => {
                Failure::Unreachable { remote: self.remote.name.clone(), why, said: said.into() }
            }
            NotSent::Denied { denial, said } => self.denied(denial, None, said),
        }
    }

    pub(crate) fn busy(&self, why: impl Into<String>) -> Failure {
        Failure::Busy { fence: self.fence.clone(), why: why.into() }
    }

    fn denied(&self, denial: Denial, by: Option<String>, said: Vec<String>) -> Failure {
        Failure::Denied(Box::new(Denied { remote: self.remote.name.clone(), denial, by, said: said.into() }))
    }

    /// Whether a swap was made, for those who need no more than that.
    pub(crate) fn is_done(&self, swapped: Swapped<Failure>) -> Result<(), Failure> {
        match swapped {
            Swapped::Won => Ok(()),
            Swapped::Refused(refused) => Err(self.refused(&refused)),
            Swapped::Unknown { why } => Err(Failure::Unknown { why }),
            Swapped::NotSent(failure) => Err(failure),
        }
    }

    /// A push that was refused, in the gate's words or in those of the remote and of git.
    pub(crate) fn refused(&self, refused: &SwapRefused) -> Failure {
        let code = refused.gate.as_ref().and_then(|gate| gate.code);
        if !refused.moved.is_empty() {
            let names = refused.why.iter().filter_map(|why| why.split(' ').next());
            let why = format!("{}; moved: {}", in_a_sentence(None, &refused.why), refused.moved.join(" "));
            return Failure::InPart { refs: names.map(str::to_owned).collect(), why };
        }
        if refused.denied {
            let causes = causes(&refused.why);
            let of_leases = causes.iter().all(|why| why.starts_with("refs/fence/"));
            let denial = if of_leases { Denial::Leases } else { Denial::Writing };
            return self.denied(denial, Some(in_a_sentence(None, &refused.why)), refused.said.clone());
        }
        let why = in_a_sentence(refused.gate.as_ref(), &refused.why);
        match code {
            Some(Code::Busy) => self.busy(why),
            code => Failure::Refused { why, code, said: beside_gate(&refused.said).into() },
        }
    }

    /// A refusal by the gate, and what else the remote printed.
    pub(crate) fn refused_by(&self, verdict: &GateAnswer, beside: &[String]) -> Failure {
        let code = verdict.code.map_or_else(|| verdict.verdict.clone(), |code| code.to_string());
        let said = verdict.sentence.clone().unwrap_or(code);
        if let Some(fences) = &verdict.fences {
            let (remote, fence) = (self.remote.name.clone(), self.fence.clone());
            return Failure::NoSuchFence { remote, fence, fences: fences.clone() };
        }
        match verdict.code {
            Some(Code::Busy) => self.busy(said),
            code => Failure::Refused { why: format!("the gate says {said}"), code, said: beside_gate(beside).into() },
        }
    }

    /// `verb` says what for: to revoke, to halt or to resume.
    pub(crate) fn may_not(&self, verb: &'static str) -> Failure {
        Failure::MayNotRevoke { remote: self.remote.name.clone(), fence: self.fence.clone(), verb }
    }

    pub(crate) fn no_options(&self) -> Failure {
        Failure::NoOptions { remote: self.remote.name.clone() }
    }

    pub(crate) fn no_atomic(&self) -> Failure {
        Failure::broken(
            format!(
                "the remote {} does not support atomic pushes (--atomic), and without them a lease protects nothing",
                text::in_quotes(&self.remote.name)
            ),
            "ask the server's operator to set  receive.advertiseAtomic = true",
        )
    }
}

/// What its owner said about it.
pub(crate) fn in_words(lease: &Lease) -> String {
    lease.words.as_deref().map_or(String::new(), |words| format!(": {}", text::in_quotes(words)))
}

/// Why the lease came to its owner, in a word or two.
pub(crate) fn why(lease: &Lease) -> String {
    format!("{}{}", lease.reason.as_str(), in_words(lease))
}

/// The same as a sentence about the owner before.
pub(crate) fn how_it_came(lease: &Lease) -> String {
    let how = match lease.reason {
        Reason::First => "never held before",
        Reason::Released => "the one before was released",
        Reason::Expired => "the one before expired",
        Reason::Revoked => "the one before was revoked",
    };
    format!("{how}{}", in_words(lease))
}

pub(crate) fn used_up() -> Failure {
    Failure::broken("the fence has no tokens left", "ask the server's operator to configure a new fence")
}

/// Why a push was refused: in the gate's words where it has refused it, or else in git's, with who has.
fn in_a_sentence(verdict: Option<&GateAnswer>, why: &[String]) -> String {
    let by_git = || {
        let mut all: Vec<String> = causes(why).into_iter().map(who_declined).collect();
        all.dedup();
        all.join("; ")
    };
    verdict.and_then(|verdict| verdict.sentence.clone()).unwrap_or_else(by_git)
}

/// Which hook of the remote has declined a ref, where git says so.
fn who_declined(why: &str) -> String {
    match why.split_once(" [remote rejected] ") {
        Some((name, "(hook declined)")) => format!("its update hook declined {name}"),
        Some((_, "(pre-receive hook declined)")) => "its pre-receive hook declined the push".to_owned(),
        _ => why.to_owned(),
    }
}

/// The reasons, without those of refs that did not move only because another did not.
fn causes(why: &[String]) -> Vec<&str> {
    let is_effect = |why: &&str| AS_OTHERS.iter().any(|words| why.contains(words));
    let own: Vec<&str> = why.iter().map(String::as_str).filter(|why| !is_effect(why)).collect();
    if own.is_empty() { why.iter().map(String::as_str).collect() } else { own }
}

/// What git prints for a ref of an atomic push that another ref has stopped.
const AS_OTHERS: [&str; 3] = ["(atomic push failure)", "(atomic push failed)", "(atomic transaction failed)"];

/// What the remote says beside the gate.
fn beside_gate(said: &[String]) -> Vec<String> {
    let of_gate = ["remote: error: FENCE-", "remote: hint: "];
    said.iter().filter(|line| !of_gate.iter().any(|words| line.starts_with(words))).cloned().collect()
}

/// Why refs did not move, in git's words.
pub(crate) fn reasons(refs: Vec<RefAnswer>) -> Vec<String> {
    let of = |answer: RefAnswer| Some(format!("{} {}", text::one_line(answer.name.as_bytes(), 200), answer.refused?));
    refs.into_iter().filter_map(of).collect()
}
