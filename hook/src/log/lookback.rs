//! Finding a push in the log again after it has been settled: from the end backwards.

use crate::log::{directory::For, files::FenceDir, journal::Damage};
use git_fence_core::{Event, InFlight, Landed, Line, PushId, State};
use std::{collections::HashMap, fs::File, io, ops::ControlFlow, os::unix::fs::FileExt};

/// How much is read at a time.
const CHUNK: u64 = 64 * 1024;

/// The last push that `is_it`, with what is on record of what it moved. `is_too_old` says of a push that nothing
/// before it can be the one.
///
/// Call it with the lock held. Only lines about pushes are parsed: a chain of refusals costs reading and nothing else.
pub(crate) fn find(
    dir: &FenceDir,
    is_it: impl Fn(&InFlight) -> bool,
    is_too_old: impl Fn(&InFlight) -> bool,
) -> Result<Option<(InFlight, Landed)>, Damage> {
    let mut known: HashMap<PushId, Landed> = HashMap::new();
    let mut found = None;
    let mut look = |line: &[u8]| {
        let Some(line) = about_a_push(line) else { return ControlFlow::Continue(()) };
        match line.event {
            Event::PushSettled { push, spent, moved, .. } | Event::PushLanded { push, spent, moved, .. } => {
                let landed = known.entry(push).or_default();
                landed.moved = landed.moved.max(moved);
                landed.spent.extend(spent);
            }
            Event::PushAccepted { .. } => {
                let Some(flight) = accepted(&line) else { return ControlFlow::Continue(()) };
                if is_it(&flight) {
                    let landed = known.remove(&flight.push).unwrap_or_default();
                    found = Some((flight, landed));
                    return ControlFlow::Break(());
                }
                if is_too_old(&flight) {
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let archives = dir.archives().map_err(Damage::io("list", dir.path()))?;
    for path in std::iter::once(dir.log()).chain(archives.into_iter().rev()) {
        let file = dir.open(&path, For::Reading).map_err(Damage::io("read", &path))?;
        if each_line_backwards(&file, &mut look).map_err(Damage::io("read", &path))?.is_break() {
            break;
        }
    }
    Ok(found)
}

fn about_a_push(line: &[u8]) -> Option<Line> {
    let events = [&b"\"push.accepted\""[..], b"\"push.settled\"", b"\"push.landed\""];
    // The event stands near the beginning of its line: what somebody wrote into a name comes later.
    let head = &line[..line.len().min(120)];
    let is_one = events.iter().any(|event| head.windows(event.len()).any(|window| window == *event));
    is_one.then(|| serde_json::from_slice(line).ok()).flatten()
}

/// The push as it was when it was let through.
fn accepted(line: &Line) -> Option<InFlight> {
    let mut state = State::default();
    state.apply(line.seq, &line.time, &line.event).ok()?;
    state.in_flight.pop()
}

fn each_line_backwards(file: &File, each: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
    let mut start = file.metadata()?.len();
    // What has been read of a line whose beginning has not.
    let mut rest: Vec<u8> = Vec::new();
    while start > 0 {
        let length = start.min(CHUNK);
        start -= length;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, start)?;
        bytes.append(&mut rest);
        let mut lines = bytes.split(|b| *b == b'\n');
        rest = lines.next().unwrap_or_default().to_vec();
        for line in lines.rev() {
            if each(line).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(each(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn lines_come_backwards_whole_and_once_wherever_chunks_end() {
        for line_length in [1, 7, 4096, 65_535, 65_536, 70_000] {
            let mut file = tempfile::tempfile().unwrap();
            let lines: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "x".repeat(line_length))).collect();
            file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
            let mut seen = Vec::new();
            let ended = each_line_backwards(&file, &mut |line| {
                if !line.is_empty() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
                ControlFlow::Continue(())
            });
            assert!(ended.unwrap().is_continue());
            seen.reverse();
            assert!(seen == lines, "{line_length}");
        }
    }
}
