//! A fence of a remote, and what can be done with its lease.
//!
//! Every operation is one push with a compare-and-swap for each ref of the lease that it moves. So
//! whoever comes second fails, whatever either believes; and an answer that was lost is not guessed:
//! the next compare-and-swap says what became of the push.

use crate::{
    clock::{self, Clock},
    failure::Failure,
    git::{
        How,
        local::{Local, Remote},
    },
    lease::held::HeldLease,
    random,
    store::{
        answer::{NotSent, RefAnswer},
        reading::Mirror,
    },
};
use git_fence_core::{
    Beat, Code, FenceName, GateAnswer, Lease, LeasePart, LeaseSnapshot, LeaseState, Reason, Stamp, StoredLease,
    SwapRefused, text,
};
use std::sync::{Arc, atomic::AtomicBool};

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
}

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
        let within = self.until.as_ref().map(|until| clock::left_until(until, &self.clock.now()));
        How { aloud: false, within, stop: self.stop.clone() }
    }

    /// Who has the lease instead of us.
    pub(crate) fn lost(&self, seen: &LeaseSnapshot) -> Failure {
        let now = seen.lease.as_ref().map(|StoredLease { lease, .. }| {
            let owner = text::in_quotes(&lease.owner);
            match lease.state {
                LeaseState::Held => format!("{owner} holds it, with token {}; {}", lease.token, how_it_came(lease)),
                LeaseState::Released if lease.is_revocation() => format!("{owner} revoked it ({})", why(lease)),
                LeaseState::Released => format!("{owner} held it last and released it"),
            }
        });
        let now = now.unwrap_or_else(|| "its ref no longer exists in the remote".to_owned());
        let by = seen.held_by(&self.clock.now()).map(Box::new);
        Failure::Lost { fence: self.fence.clone(), now, by }
    }

    pub(crate) fn unreachable(&self, why: String) -> Failure {
        Failure::Unreachable { remote: self.remote.name.clone(), why }
    }

    pub(crate) fn not_sent(&self, why: NotSent) -> Failure {
        match why {
            NotSent::FromHere(why) => Failure::NotSent { why },
            NotSent::NoConnection(why) => self.unreachable(why),
        }
    }

    pub(crate) fn busy(&self, why: impl Into<String>) -> Failure {
        Failure::Busy { fence: self.fence.clone(), why: why.into() }
    }

    /// A push that was refused, in the gate's words or in git's.
    pub(crate) fn refused(&self, refused: &SwapRefused) -> Failure {
        let code = refused.gate.as_ref().and_then(|gate| gate.code);
        let why = in_a_sentence(refused.gate.as_ref(), &refused.why);
        if code == Some(Code::Busy) { self.busy(why) } else { Failure::Refused { why, code } }
    }

    /// A lease that could not be moved although nobody else has moved it.
    pub(crate) fn refused_without_cause(&self, refused: &SwapRefused) -> Failure {
        Failure::refused(in_a_sentence(refused.gate.as_ref(), &refused.why))
    }

    pub(crate) fn refused_by(&self, verdict: &GateAnswer) -> Failure {
        let code = verdict.code.map_or_else(|| verdict.verdict.clone(), |code| code.to_string());
        let said = verdict.sentence.clone().unwrap_or(code);
        match verdict.code {
            Some(Code::Busy) => self.busy(said),
            Some(Code::LeaseInvalid) => Failure::broken(
                format!("the gate of {} says {said}", text::in_quotes(&self.remote.name)),
                "nothing changed. Fences and the longest TTL are settings of the server",
            ),
            code => Failure::Refused { why: format!("the gate says {said}"), code },
        }
    }

    pub(crate) fn may_not_revoke(&self) -> Failure {
        Failure::broken(
            format!(
                "the gate of {} does not allow you to revoke the lease of fence '{}'",
                text::in_quotes(&self.remote.name),
                self.fence
            ),
            "ask the server's operator to run  git-fence-hook revoke,  or to add you to fence.allowRevoke",
        )
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

/// Why a push was refused: in the gate's words where it has said something, or else in git's.
fn in_a_sentence(verdict: Option<&GateAnswer>, why: &[String]) -> String {
    verdict.and_then(|verdict| verdict.sentence.clone()).unwrap_or_else(|| why.join("; "))
}

/// Why refs did not move, in git's words.
pub(crate) fn reasons(refs: Vec<RefAnswer>) -> Vec<String> {
    let of = |answer: RefAnswer| Some(format!("{} {}", text::one_line(answer.name.as_bytes(), 200), answer.refused?));
    refs.into_iter().filter_map(of).collect()
}
