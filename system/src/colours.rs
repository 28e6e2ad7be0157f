//! Colours, by the usual conventions: on a terminal, unless NO_COLOR is set; CLICOLOR_FORCE and `--color` say otherwise.
//!
//! Messages go through [`say`], which colours their first word. Whether it does is decided once, when the program
//! starts; a program that decides nothing has no colours.
//!
//! Another Unix: the same.

use crate::{Environment, env};
use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
};

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// On a terminal, unless the environment says otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The first words of messages, and their colours.
const WORDS: [(&str, &str); 4] = [("error:", "1;31"), ("warning:", "1;33"), ("note:", "1;34"), ("hint:", "1;36")];

static ON_STDERR: OnceLock<bool> = OnceLock::new();

impl Colours {
    /// The words for `--color`.
    pub const WORDS: [&str; 3] = ["auto", "always", "never"];

    /// What `--color` says in a command line. This is asked before the line is parsed: messages about a line that
    /// cannot be parsed follow it, too.
    pub fn of_arguments(args: &[OsString]) -> Colours {
        let ours = args.iter().take_while(|argument| *argument != "--");
        let mut before = OsStr::new("");
        let mut colours = Colours::Auto;
        for argument in ours {
            let joined = argument.to_str().and_then(|argument| argument.strip_prefix("--color="));
            let separate = argument.to_str().filter(|_| before == "--color");
            colours = joined.or(separate).and_then(Colours::named).unwrap_or(colours);
            before = argument;
        }
        colours
    }

    fn named(word: &str) -> Option<Colours> {
        match word {
            "auto" => Some(Colours::Auto),
            "always" => Some(Colours::Always),
            "never" => Some(Colours::Never),
            _ => None,
        }
    }

    /// Whether to use them for output that goes to a terminal or not.
    pub fn are_on(self, is_terminal: bool, environment: &Environment) -> bool {
        let is_forced = environment.text(env::CLICOLOR_FORCE).is_some_and(|value| value != "0");
        match self {
            Colours::Always => true,
            Colours::Never => false,
            Colours::Auto if environment.get(env::NO_COLOR).is_some() => false,
            Colours::Auto => is_forced || (is_terminal && environment.text(env::TERM) != Some("dumb")),
        }
    }

    /// Decides it for the messages of this program.
    pub fn use_for_messages(self, environment: &Environment) {
        // Decided twice only by a mistake, and then the first counts.
        let _ = ON_STDERR.set(self.are_on(io::stderr().is_terminal(), environment));
    }
}

/// Writes a message of whole lines to standard error. If that is closed, nobody wants it.
pub fn say(message: &str) {
    let is_on = ON_STDERR.get().copied().unwrap_or(false);
    let text = if is_on { coloured(message) } else { message.to_owned() };
    let _ = io::stderr().write_all(text.as_bytes());
}

fn coloured(message: &str) -> String {
    let line = |line: &str| {
        let word = WORDS.iter().find(|(word, _)| line.starts_with(word));
        word.map_or(line.to_owned(), |(word, code)| format!("\u{1b}[{code}m{word}\u{1b}[0m{}", &line[word.len()..]))
    };
    message.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conventions_are_kept() {
        let environment = |set: &[(&str, &str)]| Environment::of(set.iter().map(|(n, v)| (n.into(), v.into())));
        for (colours, is_terminal, set, expected) in [
            (Colours::Auto, true, &[][..], true),
            (Colours::Auto, false, &[], false),
            (Colours::Auto, true, &[("NO_COLOR", "1")], false),
            (Colours::Auto, true, &[("NO_COLOR", "")], true),
            (Colours::Auto, true, &[("TERM", "dumb")], false),
            (Colours::Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (Colours::Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (Colours::Auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
            (Colours::Always, false, &[("NO_COLOR", "1")], true),
            (Colours::Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ] {
            assert_eq!(colours.are_on(is_terminal, &environment(set)), expected, "{colours:?} {is_terminal} {set:?}");
        }
    }

    #[test]
    fn flag_is_found_before_the_line_is_parsed() {
        let of = |args: &str| Colours::of_arguments(&args.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("git-fence status"), Colours::Auto);
        assert_eq!(of("git-fence --color never --nonsense"), Colours::Never);
        assert_eq!(of("git-fence status --color=always"), Colours::Always);
        assert_eq!(of("git-fence run -- ls --color=always"), Colours::Auto);
    }

    #[test]
    fn first_words_are_coloured_and_nothing_else() {
        let text = "error: no error: here\n  caused by: x\nhint: y\n";
        let expected = "\u{1b}[1;31merror:\u{1b}[0m no error: here\n  caused by: x\n\u{1b}[1;36mhint:\u{1b}[0m y\n";
        assert_eq!(coloured(text), expected);
    }
}
