//! The result of a `git push`, parsed from the output of git and of the gate.

use crate::git::{Ran, said::Denial};
use git_fence_core::{GateAnswer, few_words, is_time, owner_name, text};

/// The result for one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefAnswer {
    /// The ref in the remote.
    pub(crate) name: String,
    /// Why it did not move.
    pub(crate) refused: Option<String>,
    /// Whether it was up to date.
    pub(crate) up_to_date: bool,
}

/// The result of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushAnswer {
    /// Everything moved.
    Landed { refs: Vec<RefAnswer>, verdict: Option<GateAnswer> },
    /// Nothing moved, and nothing will: the remote said so.
    Refused { refs: Vec<RefAnswer>, verdict: Option<GateAnswer>, said: Vec<String> },
    /// The push did not leave this machine: git rejected the refspecs, or there was no connection.
    NotSent(NotSent),
    /// The remote does not accept push options. Nothing was sent.
    NoOptions,
    /// The remote does not support atomic pushes. Nothing was sent.
    NoAtomic,
    /// The answer was lost: the push may have landed, or may still land.
    Lost { why: String },
}

/// Why a push was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// For a reason in this clone.
    FromHere(String),
    /// There was no connection: git never received the list of refs.
    NoConnection { why: String, said: Vec<String> },
    /// We have no right to push.
    Denied { denial: Denial, said: Vec<String> },
}

/// What git prints for refspecs that it cannot use. Then nothing is sent.
const NOTHING_SENT: [&str; 6] = [
    "fatal: invalid refspec ",
    "error: src refspec ",
    "error: dst refspec ",
    "error: dst ref ",
    "error: unable to delete ",
    "error: The destination you provided is not a full refname",
];

impl PushAnswer {
    /// Reads the answer of `git push --porcelain --atomic`.
    pub(crate) fn of(ran: &Ran) -> PushAnswer {
        let verdict = verdict_in(&ran.stderr);
        let refs = refs_in(&ran.stdout);
        if ran.status.success() {
            return PushAnswer::Landed { refs, verdict };
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        if said.contains("the receiving end does not support push options") {
            return PushAnswer::NoOptions;
        }
        if said.contains("the receiving end does not support --atomic push") {
            return PushAnswer::NoAtomic;
        }
        // The refspecs match nothing here: git did not contact the remote.
        let not_sent = |line: &str| NOTHING_SENT.iter().any(|words| line.starts_with(words));
        if refs.is_empty() && said.lines().any(not_sent) {
            return PushAnswer::NotSent(NotSent::FromHere(ran.complaint()));
        }
        if refs.is_empty() && (ran.has_not_begun() || ran.is_forbidden()) {
            let said = ran.said();
            return PushAnswer::NotSent(match ran.denial(Denial::Writing) {
                Some(denial) => NotSent::Denied { denial, said },
                None => NotSent::NoConnection { why: ran.complaint(), said },
            });
        }
        // Only a complete report counts, and "remote failure" means that none came.
        let is_report = ran.stdout.ends_with(b"Done\n")
            && refs.iter().any(|answer| answer.refused.is_some())
            && !refs.iter().any(|answer| answer.refused.as_ref().is_some_and(|why| why.contains("[remote failure]")));
        if is_report {
            PushAnswer::Refused { refs, verdict, said: ran.said() }
        } else {
            PushAnswer::Lost { why: ran.complaint() }
        }
    }
}

/// `<flag> TAB <from>:<to> TAB <summary>`, where `!` marks a ref that did not move.
pub(crate) fn refs_in(stdout: &[u8]) -> Vec<RefAnswer> {
    let stdout = String::from_utf8_lossy(stdout);
    let answer = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (flag, names, summary) = (fields.next()?, fields.next()?, fields.next()?);
        let name = names.rsplit_once(':').map_or(names, |(_, to)| to).to_owned();
        let refused = (flag == "!").then(|| text::one_line(summary.as_bytes(), 200));
        Some(RefAnswer { name, refused, up_to_date: flag == "=" })
    };
    stdout.lines().filter_map(answer).collect()
}

/// The last JSON line of the gate.
fn verdict_in(stderr: &[u8]) -> Option<GateAnswer> {
    let said = String::from_utf8_lossy(stderr);
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix("remote: fence: "));
    let mut verdict: GateAnswer = lines.filter_map(|json| serde_json::from_str(json.trim()).ok()).next_back()?;
    // The remote controls this text, and JSON can encode terminal control characters.
    if let Some(by) = &mut verdict.holder {
        by.owner = owner_name(&by.owner).unwrap_or_else(|| "somebody".to_owned());
        by.progress = by.progress.as_deref().and_then(few_words);
        by.since = by.since.take().filter(|time| is_time(time));
    }
    if let Some(halt) = &mut verdict.halt {
        halt.by = owner_name(&halt.by).unwrap_or_else(|| "somebody".to_owned());
        halt.reason = halt.reason.as_deref().and_then(few_words);
        halt.since = halt.since.take().filter(|time| is_time(time));
    }
    let sentence = said.lines().filter_map(|line| line.trim().strip_prefix("remote: error: FENCE-")).next_back();
    verdict.sentence = sentence.map(|text| format!("FENCE-{}", text::one_line(text.trim().as_bytes(), 300)));
    Some(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::{Code, Mark};
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    fn answer(code: i32, stdout: &str, stderr: &str) -> PushAnswer {
        let status = ExitStatus::from_raw(code << 8);
        PushAnswer::of(&Ran { status, stdout: stdout.into(), stderr: stderr.into(), gave_up_after: None })
    }

    #[test]
    fn only_a_whole_report_says_that_nothing_moved() {
        let refused = "To x\n!\tHEAD:refs/heads/main\t[remote rejected] (pre-receive hook declined)\nDone\n";
        assert!(matches!(answer(1, refused, ""), PushAnswer::Refused { .. }));
        for (code, stdout) in [
            (128, ""),
            (128, "To x\n"),
            (1, "To x\n!\tHEAD:refs/heads/main\t[remote failure] (remote failed to report status)\nDone\n"),
            (1, "To x\n!\tHEAD:refs/heads/main\t[remote rejected] (x)\n"),
        ] {
            assert!(
                matches!(answer(code, stdout, "fatal: gone"), PushAnswer::Lost { why } if why == "gone"),
                "{stdout}"
            );
        }
        let landed = "To x\n*\tHEAD:refs/heads/main\t[new branch]\nDone\n";
        assert!(matches!(answer(0, landed, ""), PushAnswer::Landed { refs, .. } if refs[0].name == "refs/heads/main"));
        let from_here = |why: &str| PushAnswer::NotSent(NotSent::FromHere(why.to_owned()));
        assert_eq!(answer(1, "", "error: src refspec x matches none\n"), from_here("src refspec x matches none"));
        assert_eq!(answer(128, "", "fatal: invalid refspec 'a b'\n"), from_here("invalid refspec 'a b'"));
        let nobody = "ssh: no route\nfatal: Could not read from remote repository.\n";
        let (why, said) = ("ssh: no route".to_owned(), vec!["ssh: no route".to_owned()]);
        let no_connection = PushAnswer::NotSent(NotSent::NoConnection { why, said });
        assert_eq!(answer(128, "", nobody), no_connection);
        // What the server's hooks say is not said of this connection, which then was cut.
        let theirs = "remote: fatal: Could not read from remote repository.\nerror: cut\n";
        assert!(matches!(answer(1, "", theirs), PushAnswer::Lost { .. }));
        let both = format!("{theirs}fatal: Could not read from remote repository.\n");
        assert!(matches!(answer(1, "", &both), PushAnswer::Lost { .. }));
        assert_eq!(answer(128, "", "fatal: the receiving end does not support push options\n"), PushAnswer::NoOptions);
    }

    #[test]
    fn the_gate_is_heard_behind_gits_prefix() {
        let said = "remote: error: FENCE-STALE token 1 is not above 4        \n\
                    remote: fence: {\"verdict\":\"rejected\",\"code\":\"FENCE-STALE\",\"fence\":\"repo\",\"token\":1,\"mark\":4,\"retryable\":false}        \n";
        let verdict = verdict_in(said.as_bytes()).unwrap();
        assert_eq!((verdict.code, verdict.mark), (Some(Code::Stale), Mark::at(4)));
        assert_eq!(verdict.sentence.as_deref(), Some("FENCE-STALE token 1 is not above 4"));
        assert_eq!(verdict_in(b"remote: fence: nonsense\n"), None);
        let no_mark = b"remote: fence: {\"verdict\":\"rejected\",\"mark\":9223372036854775808}\n";
        assert_eq!(verdict_in(no_mark), None, "no mark is that high");
    }

    #[test]
    fn a_remote_that_names_a_holder_moves_no_cursor() {
        let said = |more: &str| {
            format!(
                r#"remote: fence: {{"verdict":"rejected","holder":{{"owner":"\u001b[2J\u202ebot\n","lease":"{}","token":5,{more}}}}}"#,
                "0".repeat(32)
            )
        };
        let holder = |more: &str| verdict_in(said(more).as_bytes()).unwrap().holder.unwrap();
        let hostile = holder(r#""expires_in_ms":1,"since":"2026-01-01\u001b","progress":"\u001b[2Jdone""#);
        assert_eq!((&*hostile.owner, hostile.since, hostile.progress.as_deref()), ("[2Jbot", None, Some("[2Jdone")));
        let fine = holder(r#""expires_in_ms":1,"since":"2026-01-01T00:00:00.123Z""#);
        assert_eq!(fine.since.as_deref(), Some("2026-01-01T00:00:00.123Z"));
        assert_eq!(holder(r#""left_ms":7"#).expires_in_ms, 7, "as gates called it before");
    }
}
