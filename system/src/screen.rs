//! A text that is shown again and again: in place on a terminal, and elsewhere whenever it has changed.
//!
//! Another Unix: the same.

use std::io::{self, IsTerminal as _, Write as _};

/// Goes to the first line; clears the rest of a line, and everything below.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// Standard output, as a place where a text is kept up to date.
#[derive(Debug)]
pub struct Screen {
    is_terminal: bool,
    last: Option<String>,
}

impl Screen {
    /// Standard output.
    pub fn on_stdout() -> Screen {
        Screen { is_terminal: io::stdout().is_terminal(), last: None }
    }

    /// Shows the text instead of what was shown before.
    pub fn show(&mut self, text: &str) -> io::Result<()> {
        let change = self.change(text);
        self.last = Some(text.to_owned());
        let mut out = io::stdout().lock();
        out.write_all(change.as_bytes())?;
        out.flush()
    }

    /// What is written to show `text`.
    fn change(&self, text: &str) -> String {
        match &self.last {
            _ if self.is_terminal => {
                // What was there is written over: a screen that is cleared first flickers.
                let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
                format!("{HOME}{lines}{CLEAR_BELOW}")
            }
            Some(last) if last == text => String::new(),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_is_written_over_and_a_pipe_gets_changes() {
        let on = Screen { is_terminal: true, last: Some("a\nb\n".to_owned()) };
        assert_eq!(on.change("a\n"), "\u{1b}[Ha\u{1b}[K\n\u{1b}[J");
        let piped = Screen { is_terminal: false, last: Some("a\n".to_owned()) };
        assert_eq!((piped.change("a\n"), piped.change("b\n")), (String::new(), "b\n".to_owned()));
    }
}
