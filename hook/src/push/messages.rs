//! What the pusher sees: a sentence for people, a line of JSON for programs.
//!
//! Git shows it with the prefix `remote:`. It is written after the lock was released: a client that does not read its
//! input blocks only its own push.

use crate::push::verdict::{Admission, Refusal, Verdict};
use git_fence_core::{FenceName, Halt, HeldBy, Mark, Reject, Tick, Token, text};
use serde::Serialize;
use std::{io::Write as _, time::Duration};

#[derive(Serialize)]
struct RefusalJson<'a> {
    verdict: &'static str,
    code: git_fence_core::Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<&'a FenceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a HeldBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    halt: Option<&'a Halt>,
    /// The fences that there are, if the push names none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    fences: Option<&'a [FenceName]>,
    /// The ref that has moved: fetch before retrying.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    moved: Option<String>,
    /// The gate's clock, if a tick is in its future.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Tick>,
    retryable: bool,
}

#[derive(Serialize)]
struct Granted<'a> {
    verdict: &'static str,
    fence: &'a FenceName,
    token: Token,
    mark: Mark,
}

/// Prints the verdict.
pub(crate) fn print(verdict: &Verdict) {
    match verdict {
        Verdict::Admitted(admission) => admitted(admission),
        Verdict::Refused(refusal) => refused(refusal),
        Verdict::Observed(refusal) => overruled(refusal),
    }
}

/// Prints nothing for most pushes.
fn admitted(Admission { overruled: refusal, granted, waited: wait }: &Admission) {
    refusal.iter().for_each(overruled);
    for (fence, token, mark) in granted {
        write(&grant(fence, *token, *mark));
    }
    wait.iter().copied().for_each(waited);
}

/// One line, for programs: it tells the client that a gate has judged its request for a lease.
fn grant(fence: &FenceName, token: Token, mark: Mark) -> String {
    let json = serde_json::to_string(&Granted { verdict: "granted", fence, token, mark }).unwrap_or_default();
    format!("fence: {json}\n")
}

/// Three lines: what is wrong, what to do, and the same as JSON.
pub(crate) fn refused(refusal: &Refusal) {
    write(&lines("error", "rejected", &refusal.reject.hint(), refusal));
}

/// In observe mode nothing is refused, but the gate reports what it would have refused.
fn overruled(refusal: &Refusal) {
    write(&lines("warning", "observed", "this fence only observes: the push was admitted", refusal));
}

/// The push has landed, but its companion could not record it.
pub(crate) fn not_recorded(why: &str) {
    write(&format!(
        "warning: git-fence could not record what this push has moved: {why}\n\
         hint: the push has landed, and the next push records it. If this happens again, ask the server's operator to run  git-fence-hook doctor\n"
    ));
}

/// Printed only if the push really waits.
pub(crate) fn waiting(holder: &str, most: Duration) {
    write(&format!("note: waiting up to {:.0} s for {holder}\n", most.as_secs_f64().ceil()));
}

/// The wait is over.
fn waited(time: Duration) {
    write(&format!("note: waited {:.1} s for another push\n", time.as_secs_f64()));
}

fn lines(level: &str, verdict: &'static str, hint: &str, refusal: &Refusal) -> String {
    let Refusal { reject, fence, token, mark } = refusal;
    let for_programs = RefusalJson {
        verdict,
        code: reject.code(),
        fence: fence.as_ref(),
        token: *token,
        mark: *mark,
        holder: match reject {
            Reject::LeaseHeld { by, .. } => Some(by),
            _ => None,
        },
        halt: match reject {
            Reject::Halted { halt, .. } => Some(halt),
            _ => None,
        },
        fences: match reject {
            Reject::NoSuchFence { fences, .. } => Some(fences),
            _ => None,
        },
        moved: match reject {
            Reject::Moved { moved, .. } => Some(text::one_line(moved.name.to_string().as_bytes(), 300)),
            _ => None,
        },
        now: match reject {
            Reject::TickAhead { ahead, .. } => Some(ahead.now),
            _ => None,
        },
        retryable: reject.is_retryable(),
    };
    let json = serde_json::to_string(&for_programs).unwrap_or_default();
    format!("{level}: {} {reject}\nhint: {hint}\nfence: {json}\n", reject.code())
}

/// In a single write. Ignores a pusher that has disconnected.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::TokenKind;

    #[test]
    fn grant_is_one_line_and_a_refusal_names_the_holder() {
        let five = Token::parse(b"5").unwrap();
        assert_eq!(
            grant(&FenceName::repo(), five, Mark::at(4).unwrap()),
            "fence: {\"verdict\":\"granted\",\"fence\":\"repo\",\"token\":5,\"mark\":4}\n"
        );
        let lease = git_fence_core::LeaseId::of([7; 16]);
        let by = HeldBy {
            owner: "agent".to_owned(),
            lease,
            token: five,
            since: Some("2026-01-01T00:00:00.000Z".to_owned()),
            expires_in_ms: 61_500,
            progress: None,
        };
        let held = Refusal::from(Reject::LeaseHeld { fence: FenceName::repo(), by: Box::new(by) });
        let text = lines("error", "rejected", "", &held);
        assert!(text.contains("is held by 'agent', with token 5, for another 62 s"), "{text}");
        let holder = format!(
            r#""holder":{{"owner":"agent","lease":"{}","token":5,"since":"2026-01-01T00:00:00.000Z","expires_in_ms":61500}}"#,
            "07".repeat(16)
        );
        assert!(text.contains(&holder), "{text}");
    }

    #[test]
    fn text_and_json_agree() {
        let token = Token::parse(b"41").unwrap();
        let mark = Mark::from(Token::parse(b"42").unwrap());
        let reject = Reject::Stale { fence: FenceName::repo(), token, mark, kind: Some(TokenKind::Lease) };
        let refusal = Refusal { token: Some(token), mark: Some(mark), ..Refusal::from(reject) };
        assert_eq!(
            lines("error", "rejected", &refusal.reject.hint(), &refusal),
            "error: FENCE-STALE token 41 is not above 42, the mark of fence 'repo'\n\
             hint: a newer run has written here: stop. Another number will not help; to start over, run again under a new lease:  git fence run\n\
             fence: {\"verdict\":\"rejected\",\"code\":\"FENCE-STALE\",\"fence\":\"repo\",\"token\":41,\"mark\":42,\"retryable\":false}\n"
        );
    }
}
