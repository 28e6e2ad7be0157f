//! The voice that tells the play: on a terminal line by line, at a pace to read; piped, only the result.

use crate::surroundings::Environment;
use git_fence_system::colours::{Colours, say};
use std::{
    io::{self, IsTerminal as _, Write as _},
    thread,
    time::{Duration, Instant},
};

/// No line is longer.
const WIDTH: usize = 79;
const INDENT: &str = "   ";
/// How long a line is left to be read.
const PACE: Duration = Duration::from_millis(220);
/// How long the play may take with such pauses: where the machine is slow, there are none.
const ENOUGH: Duration = Duration::from_secs(11);

/// How a line looks where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Bold,
    Dim,
    Command,
    Good,
    Bad,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Command => "36",
            Ink::Good => "1;32",
            Ink::Bad => "1;31",
        }
    }
}

/// Tells the play on standard output.
pub(super) struct Voice {
    /// Whether somebody is watching.
    is_live: bool,
    has_colours: bool,
    began: Instant,
}

impl Voice {
    pub(super) fn new(colours: Colours, environment: &Environment) -> Voice {
        let is_live = io::stdout().is_terminal();
        let has_colours = colours.are_on(is_live, environment);
        Voice { is_live, has_colours, began: Instant::now() }
    }

    /// The heading of a scene.
    pub(super) fn scene(&self, text: &str) {
        self.live("", "", Ink::Bold, &format!("\n{text}"));
        self.rest(1);
    }

    /// A sentence or two.
    pub(super) fn say(&self, text: &str) {
        self.lists(Ink::Plain, text);
        self.rest(u32::try_from(1 + text.len() / WIDTH).unwrap_or(1));
    }

    /// A line that needs no time to be read.
    pub(super) fn lists(&self, ink: Ink, text: &str) {
        self.live(INDENT, INDENT, ink, text);
    }

    /// What somebody types.
    pub(super) fn types(&self, who: &str, command: &str) {
        self.live(&format!("{INDENT}{who}$ "), &format!("{INDENT}    "), Ink::Command, command);
        self.rest(2);
    }

    /// What a program prints.
    pub(super) fn prints(&self, ink: Ink, text: &str) {
        self.live(&format!("{INDENT}| "), &format!("{INDENT}|   "), ink, text);
    }

    /// The result: where nobody watches, the only line.
    pub(super) fn result(&self, ink: Ink, text: &str) {
        if self.is_live {
            self.write("", "", ink, text);
        } else {
            let _ = writeln!(io::stdout(), "{}", self.inked(ink, text));
        }
    }

    /// Something to know before the play begins.
    pub(super) fn aside(&self, text: &str) {
        say(&format!("note: {text}\n"));
    }

    /// An empty line.
    pub(super) fn gap(&self) {
        self.live("", "", Ink::Plain, "");
    }

    /// Time to read `lines` lines.
    pub(super) fn rest(&self, lines: u32) {
        if self.is_live && self.began.elapsed() < ENOUGH {
            thread::sleep(PACE * lines);
        }
    }

    fn live(&self, first: &str, further: &str, ink: Ink, text: &str) {
        if self.is_live {
            self.write(first, further, ink, text);
        }
    }

    fn inked(&self, ink: Ink, line: &str) -> String {
        if self.has_colours && ink != Ink::Plain && !line.is_empty() {
            format!("\x1b[{}m{line}\x1b[0m", ink.code())
        } else {
            line.to_owned()
        }
    }

    fn write(&self, first: &str, further: &str, ink: Ink, text: &str) {
        let mut all = String::new();
        for (n, line) in wrapped(text, first.chars().count(), further.chars().count()).iter().enumerate() {
            let margin = if n == 0 { first } else { further };
            all.push_str(format!("{margin}{}", self.inked(ink, line)).trim_end());
            all.push('\n');
        }
        // A reader that has gone away is no failure.
        let _ = io::stdout().write_all(all.as_bytes());
    }
}

/// `text` in lines that fit beside their margins. Spaces within a line are kept; a longer word is not broken.
fn wrapped(text: &str, first: usize, further: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            let margin = if lines.is_empty() { first } else { further };
            let is_full = margin + line.chars().count() + word.trim_end().chars().count() > WIDTH;
            if is_full && !line.trim().is_empty() {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
            line.push_str(word);
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_beside_their_margins() {
        let text = "word ".repeat(60);
        let lines = wrapped(&text, 3, 7);
        assert!(lines.len() > 3);
        assert!(lines[0].len() <= WIDTH - 3 && lines[1..].iter().all(|line| line.len() <= WIDTH - 7), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim_end());
    }

    #[test]
    fn columns_within_a_line_and_empty_lines_are_kept() {
        assert_eq!(wrapped("\na   b", 0, 0), ["", "a   b"]);
        assert_eq!(wrapped(&"x".repeat(200), 3, 3), ["x".repeat(200)]);
    }
}
