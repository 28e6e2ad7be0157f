//! The standard input of a pre-receive hook.

use crate::{ObjectId, RefName, text};

/// One line of it: the pusher asks to move `name` from `claimed` to `new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The ref, by the name that the pusher used.
    pub name: RefName,
    /// The old value that the pusher claims. Git passes it to the hook unchecked, so it can be false.
    pub claimed: Option<ObjectId>,
    /// The new value; `None` deletes the ref.
    pub new: Option<ObjectId>,
}

/// All commands of one push, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    /// The commands.
    pub commands: Vec<RefUpdate>,
}

/// Why the input is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// Git runs the hook only with at least one ref, so another program has read the list.
    #[error("the list of refs from git is empty: another hook has read it, or git was interrupted")]
    Empty,
    /// The last line has no line feed: the writer was interrupted.
    #[error("the list of refs from git ends in the middle of line {0}")]
    Truncated(usize),
    /// A line that is not `old new name`.
    #[error("line {line} of the list of refs from git is not 'old new name': {text}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line, made safe to show.
        text: String,
    },
}

impl Push {
    /// Reads `<old> SP <new> SP <ref> LF` lines. Ref names may contain any byte except the line feed.
    pub fn parse(input: &[u8]) -> Result<Push, PushError> {
        let Some(lines) = input.strip_suffix(b"\n") else {
            let whole_lines = input.iter().filter(|b| **b == b'\n').count();
            return Err(if input.is_empty() { PushError::Empty } else { PushError::Truncated(whole_lines + 1) });
        };
        let commands = lines.split(|b| *b == b'\n').enumerate().map(|(at, line)| {
            RefUpdate::parse(line).ok_or_else(|| PushError::Line { line: at + 1, text: text::quoted(line) })
        });
        Ok(Push { commands: commands.collect::<Result<_, _>>()? })
    }
}

impl RefUpdate {
    fn parse(line: &[u8]) -> Option<RefUpdate> {
        let mut fields = line.splitn(3, |b| *b == b' ');
        let (old, new) = (fields.next()?, fields.next()?);
        // A repository uses one hash function.
        if old.len() != new.len() {
            return None;
        }
        let (claimed, new) = (ObjectId::parse(old).ok()?, ObjectId::parse(new).ok()?);
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some(RefUpdate { name: RefName::new(name), claimed, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> String {
        format!("{} {} {name}\n", "0".repeat(40), "a".repeat(40))
    }

    #[test]
    fn lines_are_read_in_order_with_any_bytes_in_names() {
        let mut input = line("refs/heads/a").into_bytes();
        input.extend(format!("{} {} ", "b".repeat(40), "0".repeat(40)).bytes());
        input.extend(b"refs/heads/\xff\n");
        let push = Push::parse(&input).unwrap();
        assert_eq!(push.commands.len(), 2);
        assert_eq!(push.commands[0].claimed, None);
        assert_eq!(push.commands[1].new, None);
        assert_eq!(push.commands[1].name.as_bytes(), b"refs/heads/\xff");
        assert_eq!(Push::parse(b""), Err(PushError::Empty));
    }

    #[test]
    fn truncated_and_mangled_input_is_refused() {
        let whole = line("refs/heads/a") + &line("refs/heads/b");
        for cut in 1..whole.len() {
            let read = Push::parse(&whole.as_bytes()[..cut]);
            assert!(read.is_err() || cut == line("refs/heads/a").len(), "cut at {cut}: {read:?}");
        }
        for bad in [
            "\n",
            "x\n",
            "0 0 refs/heads/a\n",
            &format!("{} {} \n", "0".repeat(40), "a".repeat(40)),
            &format!("{} {} refs/heads/a\n", "0".repeat(40), "a".repeat(64)),
        ] {
            assert!(matches!(Push::parse(bad.as_bytes()), Err(PushError::Line { line: 1, .. })), "{bad:?}");
        }
    }
}
