//! Refusals, as they stand in the log.
//!
//! Asking for a lease is not pushing: what was asked of leases alone has its own event, so that a skipped run does not look
//! like a refused push. In logs of earlier versions both are `push.rejected`, and are told apart by their refs.

use crate::{Code, Event, FenceName, JobName, Mark, Plan, Source, Token, Who, text};
use serde::{Deserialize, Serialize};

/// A refusal, or what would have been one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why, for programs.
    pub code: Code,
    /// Why, for people.
    pub reason: String,
    /// The fence that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceName>,
    /// The token for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Where the tokens were found, if they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The scheduled job that it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobName>,
    /// Who pushed.
    #[serde(flatten)]
    pub who: Who,
    /// The refs it asked to move; `old` is what the pusher claimed.
    pub refs: Vec<AskedRef>,
    /// How many refs it asked to move.
    pub count: usize,
    /// How long the decision took, including waiting.
    pub elapsed_us: u64,
}

impl Refused {
    /// Whether it asked for nothing but a change of leases.
    fn is_only_about_leases(&self) -> bool {
        let is_of_lease = |asked: &AskedRef| asked.name == LEASES || asked.name.starts_with(BELOW_LEASES);
        !self.refs.is_empty() && self.refs.len() == self.count && self.refs.iter().all(is_of_lease)
    }

    /// The event that records it.
    pub fn on_record(self) -> Event {
        if self.is_only_about_leases() { Event::LeaseRefused(self) } else { Event::PushRejected(self) }
    }
}

impl Event {
    /// The refusal of a push that would have moved more than leases, if it is one.
    pub fn refused_push(&self) -> Option<&Refused> {
        match self {
            Event::PushRejected(refused) if !refused.is_only_about_leases() => Some(refused),
            _ => None,
        }
    }

    /// The refusal of a request that was only about leases, if it is one.
    pub fn refused_lease(&self) -> Option<&Refused> {
        match self {
            Event::LeaseRefused(refused) => Some(refused),
            Event::PushRejected(refused) if refused.is_only_about_leases() => Some(refused),
            _ => None,
        }
    }
}

/// Where leases live.
const LEASES: &str = "refs/fence";
const BELOW_LEASES: &str = "refs/fence/";

/// How much of an unchecked name is recorded.
const LONGEST_NAME: usize = 300;

/// A ref of a refused push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRef {
    /// The name that the pusher used, cut to this length. Git may not allow it.
    pub name: String,
    /// The old value that the pusher claimed.
    pub old: Option<crate::ObjectId>,
    /// The new value.
    pub new: Option<crate::ObjectId>,
}

impl AskedRef {
    /// The refs of a push of which only the names are known.
    pub fn named(names: &[String]) -> Vec<AskedRef> {
        names.iter().map(|name| AskedRef { name: name.clone(), old: None, new: None }).collect()
    }

    /// A name as it is recorded.
    pub(crate) fn shown(name: &[u8]) -> String {
        text::one_line(name, LONGEST_NAME)
    }

    /// The first commands of a refused push, as many as fit in a line.
    pub fn of(commands: &[crate::RefUpdate]) -> Vec<AskedRef> {
        let asked = |command: &crate::RefUpdate| AskedRef {
            name: AskedRef::shown(command.name.to_string().as_bytes()),
            old: command.claimed.clone(),
            new: command.new.clone(),
        };
        commands.iter().take(Plan::IN_LINE).map(asked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &[&str], count: usize) -> Refused {
        let asked = |name: &&str| AskedRef { name: (*name).to_owned(), old: None, new: None };
        Refused {
            code: Code::LeaseHeld,
            reason: String::new(),
            fence: None,
            token: None,
            mark: None,
            source: None,
            job: None,
            who: Who::default(),
            refs: names.iter().map(asked).collect(),
            count,
            elapsed_us: 0,
        }
    }

    #[test]
    fn request_that_is_only_about_leases_is_no_push() {
        for (names, count, is_of_lease) in [
            (&["refs/fence/repo/lease", "refs/fence/repo/beat"][..], 2, true),
            (&["refs/fence/repo/lease/ask"], 1, true),
            (&["refs/fence"], 1, true),
            (&["refs/fences/x"], 1, false),
            (&["refs/heads/main", "refs/fence/repo/lease"], 2, false),
            (&["refs/fence/repo/lease"], 65, false),
            (&[], 0, false),
        ] {
            let refused = refused(names, count);
            let written = refused.clone().on_record();
            assert_eq!(matches!(written, Event::LeaseRefused(_)), is_of_lease, "{names:?}");
            // Lines of earlier versions are told apart in the same way.
            for event in [written, Event::PushRejected(refused)] {
                assert_eq!(event.refused_lease().is_some(), is_of_lease, "{names:?}");
                assert_eq!(event.refused_push().is_some(), !is_of_lease, "{names:?}");
            }
        }
    }
}
