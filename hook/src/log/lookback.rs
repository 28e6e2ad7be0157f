//! Finds a settled push in the log, searching backwards from the end.

use crate::log::{directory::For, files::FenceDir, journal::Damage};
use git_fence_core::{Event, InFlight, Landed, Line, PushId, State};
use std::{collections::HashMap, fs::File, io, ops::ControlFlow, os::unix::fs::FileExt};

/// How much is read at a time.
const CHUNK: u64 = 64 * 1024;

/// The last push for which `is_it` is true, with the recorded facts on what it moved. The search stops at a push that
/// `is_too_old`.
///
/// Call it with the lock held. Only lines about pushes are parsed, so many refusals cost only reading.
pub(crate) fn find(
    dir: &FenceDir,
    is_it: impl Fn(&InFlight) -> bool,
    is_too_old: impl Fn(&InFlight) -> bool,
) -> Result<Option<(InFlight, Landed)>, Damage> {
    let mut known: HashMap<PushId, Landed> = HashMap::new();
    let mut found = None;
    let mut check = |line: &[u8]| {
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
        if each_line_backwards(&file, &mut check).map_err(Damage::io("read", &path))?.is_break() {
            break;
        }
    }
    Ok(found)
}

fn about_a_push(line: &[u8]) -> Option<Line> {
    let events = [&b"\"push.accepted\""[..], b"\"push.settled\"", b"\"push.landed\""];
    // The event is near the start of its line, before any text that a user can choose.
    let head = &line[..line.len().min(120)];
    let is_one = events.iter().any(|event| head.windows(event.len()).any(|window| window == *event));
    is_one.then(|| serde_json::from_slice(line).ok()).flatten()
}

/// The push as it was when it was accepted.
fn accepted(line: &Line) -> Option<InFlight> {
    let mut state = State::default();
    state.apply(line.seq, &line.time, &line.event).ok()?;
    state.in_flight.pop()
}

fn each_line_backwards(file: &File, each: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
    let mut start = file.metadata()?.len();
    // The part of a line whose beginning has not been read yet.
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
    fn each_line_is_read_once_and_complete_for_any_chunk_boundary() {
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
