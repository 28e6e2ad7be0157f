//! What is said while waiting for a lease: who holds it, since when, and for how long yet.
//!
//! On a terminal it is one line that is written anew every second, elsewhere one line at the beginning, and for cron
//! nothing at all.

use crate::run::watch::{RunEvent, note};
use git_fence_core::{FenceName, HeldBy, text};
use git_fence_system::{
    clock::{self, since_boot},
    terminal,
};
use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::mpsc::Receiver,
    time::Duration,
};

/// How often the line on a terminal is written anew.
const REFRESH: Duration = Duration::from_secs(1);
/// Goes to the beginning of the line and clears it.
const ANEW: &str = "\r\u{1b}[K";

/// Says whom we wait for.
pub(crate) struct WaitingLine {
    voice: Voice,
    about: Option<Awaited>,
    is_shown: bool,
}

enum Voice {
    Quiet,
    Once,
    Terminal,
}

/// The holder that we wait for, as last seen.
struct Awaited {
    fence: FenceName,
    by: HeldBy,
    seen_at: Duration,
    /// When we give up.
    end: Duration,
    /// The time by the wall clock when it was seen: RFC 3339, UTC.
    today: String,
}

impl WaitingLine {
    pub(crate) fn new(is_quiet: bool) -> WaitingLine {
        let voice = match is_quiet {
            true => Voice::Quiet,
            false if io::stderr().is_terminal() => Voice::Terminal,
            false => Voice::Once,
        };
        WaitingLine { voice, about: None, is_shown: false }
    }

    /// The lease is held by `by`; we give up after `left`.
    pub(crate) fn tell(&mut self, fence: &FenceName, by: &HeldBy, left: Duration) {
        let now = since_boot();
        let today = clock::wall().to_string();
        let awaited = Awaited { fence: fence.clone(), by: by.clone(), seen_at: now, end: now + left, today };
        if matches!(self.voice, Voice::Once) && self.about.is_none() {
            note(&awaited.sentence());
        }
        self.about = Some(awaited);
    }

    /// Waits for an event for at most `length`.
    pub(crate) fn pause(&mut self, events: &Receiver<RunEvent>, length: Duration) -> Option<RunEvent> {
        let end = since_boot() + length;
        loop {
            let left = end.saturating_sub(since_boot());
            let step = if self.refresh() { left.min(REFRESH) } else { left };
            match events.recv_timeout(step) {
                Ok(event) => return Some(event),
                Err(_) if step == left => return None,
                Err(_) => {}
            }
        }
    }

    /// Writes the line anew. Whether there is one.
    fn refresh(&mut self) -> bool {
        let (Voice::Terminal, Some(awaited)) = (&self.voice, &self.about) else { return false };
        let width = terminal::columns(io::stderr()).map_or(80, usize::from);
        let _ = write!(io::stderr(), "{ANEW}{}", cut(&awaited.line(since_boot()), width));
        self.is_shown = true;
        true
    }

    /// Removes the line, so that what follows begins where it was.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "{ANEW}");
        }
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Awaited {
    /// For a log: said once, at the beginning.
    fn sentence(&self) -> String {
        let HeldBy { owner, token, .. } = &self.by;
        let since = self.by.since.as_deref().map_or(String::new(), |since| format!(" since {since}"));
        format!(
            "waiting up to {} for {}, which holds fence '{}'{since} with token {token}, for another {} unless renewed",
            in_words(self.end.saturating_sub(self.seen_at)),
            text::in_quotes(owner),
            self.fence,
            in_words(Duration::from_millis(self.by.expires_in_ms)),
        )
    }

    /// For a terminal: what changes comes first, because the line is cut. Of 80 columns, usual names leave room for all but
    /// the progress.
    fn line(&self, now: Duration) -> String {
        let HeldBy { owner, since, progress, expires_in_ms, .. } = &self.by;
        let held = Duration::from_millis(*expires_in_ms).saturating_sub(now.saturating_sub(self.seen_at));
        let left = in_words(self.end.saturating_sub(now));
        let since =
            since.as_deref().map_or(String::new(), |since| format!(", since {}", to_the_minute(since, &self.today)));
        let progress =
            progress.as_deref().map_or(String::new(), |progress| format!(", at {}", text::in_quotes(progress)));
        let owner = text::in_quotes(owner);
        format!("waiting for {owner}, {left} left: '{}' held {} more{since}{progress}", self.fence, in_words(held))
    }
}

/// A duration as people write it, in whole seconds: 4m 10s.
fn in_words(time: Duration) -> String {
    // Rounded up: a lease with 100 ms left is still held.
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}

/// 14:22Z, of 2026-11-18T14:22:29.085Z; with the day, unless it is today.
fn to_the_minute(time: &str, today: &str) -> String {
    match (time.get(..10), time.get(10..11), time.get(11..16)) {
        (Some(day), Some("T"), Some(minute)) if today.starts_with(day) => format!("{minute}Z"),
        (Some(day), Some("T"), Some(minute)) => format!("{day} {minute}Z"),
        _ => time.to_owned(),
    }
}

/// The line, cut to fit: a longer one would wrap, and could not be written over.
fn cut(line: &str, width: usize) -> String {
    // One column is left free: some terminals wrap after the last. Two are counted for what is not ASCII.
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let columns = if c.is_ascii() { 1 } else { 2 };
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    };
    line.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::{LeaseId, Token};

    #[test]
    fn durations_are_short_and_rounded_up() {
        for (ms, words) in [(0, "0s"), (100, "1s"), (1000, "1s"), (61_000, "1m 1s"), (7_260_000, "2h 1m")] {
            assert_eq!(in_words(Duration::from_millis(ms)), words);
        }
    }

    #[test]
    fn line_has_room_for_who_since_when_and_how_long_on_80_columns() {
        let by = HeldBy {
            owner: "nightly@host-3".to_owned(),
            lease: LeaseId::of([7; 16]),
            token: Token::parse(b"7").unwrap(),
            since: Some("2026-11-18T14:22:29.085Z".to_owned()),
            expires_in_ms: 90_000,
            progress: None,
        };
        let (end, today) = (Duration::from_secs(59), "2026-11-18T14:23:00Z".to_owned());
        let awaited = Awaited { fence: FenceName::repo(), by, seen_at: Duration::ZERO, end, today };
        let line = cut(&awaited.line(Duration::ZERO), 80);
        assert_eq!(line, "waiting for 'nightly@host-3', 59s left: 'repo' held 1m 30s more, since 14:22Z");
        assert_eq!(to_the_minute("2026-11-17T23:59:58Z", "2026-11-18T14:23:00Z"), "2026-11-17 23:59Z");
    }

    #[test]
    fn line_is_cut_so_that_it_never_wraps() {
        assert_eq!(cut("waiting", 80), "waiting");
        assert_eq!(cut("waiting", 5), "wait");
        assert_eq!(cut("日本語", 6), "日本");
        assert_eq!(cut("x", 0), "");
    }
}
