//! The refs as they were when the gate was installed: `fence/refs-at-install`.
//!
//! Only `doctor` and `install` read it, as evidence of pushes that went past the gate. Decisions never depend on it.

use crate::log::files::FenceDir;
use git_fence_core::{KnownRefs, ObjectId, RefName};
use std::{collections::HashMap, io};

const FIRST_LINE: &str = "# git-fence: the refs after line ";

/// Reads it: `None` if there is none, or if it cannot be read.
pub(crate) fn read(dir: &FenceDir) -> Option<KnownRefs> {
    parse(&dir.read(&dir.known_refs()).ok()?)
}

/// Replaces it.
pub(crate) fn write(dir: &FenceDir, known: &KnownRefs) -> io::Result<()> {
    dir.replace(&dir.known_refs(), &written(known), false)
}

fn written(known: &KnownRefs) -> Vec<u8> {
    let mut bytes = format!("{FIRST_LINE}{}\n", known.seq).into_bytes();
    let mut refs: Vec<(&RefName, &ObjectId)> = known.refs.iter().collect();
    refs.sort_by_key(|(name, _)| *name);
    for (name, id) in refs {
        bytes.extend([id.as_str().as_bytes(), b" ", name.as_bytes(), b"\n"].concat());
    }
    bytes
}

fn parse(bytes: &[u8]) -> Option<KnownRefs> {
    let mut lines = bytes.strip_suffix(b"\n")?.split(|b| *b == b'\n');
    let seq = std::str::from_utf8(lines.next()?).ok()?.strip_prefix(FIRST_LINE)?.parse().ok()?;
    let one = |line: &[u8]| {
        let space = line.iter().position(|b| *b == b' ')?;
        Some((RefName::new(&line[space + 1..]), ObjectId::parse(&line[..space]).ok()??))
    };
    let refs = lines.map(one).collect::<Option<HashMap<_, _>>>()?;
    Some(KnownRefs { seq, refs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back_and_a_torn_file_is_not() {
        let id = |n: &str| ObjectId::parse(n.repeat(20).as_bytes()).unwrap().unwrap();
        let refs = [(RefName::new("refs/heads/a b"), id("a1")), (RefName::new(b"refs/heads/\xff".to_vec()), id("b2"))];
        for known in [KnownRefs { seq: 7, refs: refs.into() }, KnownRefs::default()] {
            let bytes = written(&known);
            assert_eq!(parse(&bytes), Some(known));
            assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(parse(b"anything else\n"), None);
    }
}
