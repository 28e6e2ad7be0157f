//! A push that git's own compare-and-swap stopped before a gate could see it, as its pusher reports it.
//!
//! The report is the message of the commit with which the client asks the gate, so that the gate can record what was
//! wanted. It proves nothing and changes nothing. Gates that do not know it take it for a question.

use crate::{AskedRef, FenceName, LeaseId, Plan, RefName, Token, lease::trailers::digits};
use std::fmt::Write as _;

/// Names beyond this are left out of a report; all are counted.
const MOST_BYTES: usize = 16 * 1024;
const LEASE: &str = "Fence-Lease: ";
const TOKEN: &str = "Fence-Token: ";
const COUNT: &str = "Fence-Count: ";
const REF: &str = "Fence-Ref: ";

/// A push that was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedPush {
    /// The lease that it was made under.
    pub lease: LeaseId,
    /// Its token.
    pub token: Token,
    /// The refs that it was to move, by name; the first of them if there are many.
    pub refs: Vec<String>,
    /// How many there are.
    pub count: usize,
}

impl StoppedPush {
    /// A push of `refs`; those of leases are not what it was about. `None` if there are no others.
    pub fn of<'a>(lease: &LeaseId, token: Token, refs: impl IntoIterator<Item = &'a str>) -> Option<StoppedPush> {
        let names = refs.into_iter().filter(|name| !RefName::new(*name).is_lease());
        let names: Vec<String> = names.map(|name| AskedRef::shown(name.as_bytes())).collect();
        let (mut bytes, count) = (0, names.len());
        let fits = |name: &String| {
            bytes += name.len();
            bytes <= MOST_BYTES
        };
        let refs = names.into_iter().take(Plan::IN_LINE).take_while(fits).collect();
        (count > 0).then(|| StoppedPush { lease: lease.clone(), token, refs, count })
    }

    /// The message of the commit that reports it.
    pub fn message(&self, fence: &FenceName, nonce: &str) -> String {
        let StoppedPush { lease, token, refs, count } = self;
        let mut message = format!("fence '{fence}': git stopped a push, because its lease has moved\n\n");
        let _ = write!(message, "{LEASE}{lease}\n{TOKEN}{token}\n{COUNT}{count}\n");
        refs.iter().for_each(|name| _ = writeln!(message, "{REF}{name}"));
        let _ = writeln!(message, "Fence-Nonce: {nonce}");
        message
    }

    /// Reads a message; `None` if it reports nothing.
    pub fn read(message: &[u8]) -> Option<StoppedPush> {
        let message = std::str::from_utf8(message).ok()?;
        let (_, last) = message.trim_end_matches('\n').rsplit_once("\n\n")?;
        let values = |key: &'static str| last.lines().filter_map(move |line| line.strip_prefix(key));
        let one = |key: &'static str| values(key).next();
        let refs = values(REF).take(Plan::IN_LINE).map(|name| AskedRef::shown(name.as_bytes()));
        let refs: Vec<String> = refs.filter(|name| !name.is_empty()).collect();
        let count = one(COUNT).and_then(digits).and_then(|count| usize::try_from(count).ok())?;
        let token = Token::parse(one(TOKEN)?.as_bytes()).ok()?;
        let lease = LeaseId::parse(one(LEASE)?)?;
        (!refs.is_empty()).then(|| StoppedPush { lease, token, count: count.max(refs.len()), refs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(refs: &[&str]) -> Option<StoppedPush> {
        StoppedPush::of(&LeaseId::of([7; 16]), Token::parse(b"5").unwrap(), refs.iter().copied())
    }

    #[test]
    fn report_is_read_back() {
        let push = stopped(&["refs/heads/main", "refs/fence/repo/lease", "refs/tags/v1"]).unwrap();
        assert_eq!((push.count, &push.refs[..]), (2, &["refs/heads/main".to_owned(), "refs/tags/v1".to_owned()][..]));
        let message = push.message(&FenceName::repo(), &"0".repeat(32));
        assert_eq!(StoppedPush::read(message.as_bytes()), Some(push));
        assert_eq!(stopped(&["refs/fence/repo/lease"]), None, "releasing a lease is no push");
    }

    #[test]
    fn long_report_is_cut_and_counted() {
        let many: Vec<String> = (0..1000).map(|n| format!("refs/heads/{n}")).collect();
        let push = stopped(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!((push.refs.len(), push.count), (Plan::IN_LINE, 1000));
        assert_eq!(StoppedPush::read(push.message(&FenceName::repo(), "0").as_bytes()), Some(push));
        let long: Vec<String> = (0..60).map(|n| format!("refs/heads/{n}{}", "ä".repeat(2000))).collect();
        let push = stopped(&long.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert!(push.refs.len() < 60 && push.count == 60);
        assert!(push.message(&FenceName::repo(), "0").len() < 2 * MOST_BYTES);
    }

    #[test]
    fn other_messages_report_nothing() {
        let good = stopped(&["refs/heads/main"]).unwrap().message(&FenceName::repo(), "0");
        for (from, to) in
            [("Fence-Lease", "X-Lease"), ("Token: 5", "Token: 05"), ("Count: 1", "Count: -1"), ("Ref: ", "Ref")]
        {
            assert_eq!(StoppedPush::read(good.replace(from, to).as_bytes()), None, "{from}");
        }
        for other in ["", "x", "fence 'repo': whose turn is it?\n\nFence-Nonce: 0\n"] {
            assert_eq!(StoppedPush::read(other.as_bytes()), None);
        }
        assert_eq!(StoppedPush::read(b"\xff"), None);
        // What stands there may be anything.
        let odd = good.replace("refs/heads/main", "a\u{1b}[31mb");
        assert_eq!(
            StoppedPush::read(odd.as_bytes()).map(|push| (push.count, push.refs)),
            Some((1, vec!["a[31mb".to_owned()]))
        );
    }
}
