//! What the gate reads from its environment: the push options, and who is pushing.
//!
//! The variables are listed in [`env`](mod@git_fence_system::env). To support a new host's name for the pusher, add a line
//! there.

use git_fence_core::{OptionsError, Who, text};
pub(crate) use git_fence_system::Environment;
use git_fence_system::{env, user};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

const LONGEST_NAME: usize = 200;

/// The push options, only those below the count: a stray `GIT_PUSH_OPTION_0` from the process that started the server is
/// inherited, and visible even if the count is 0.
pub(crate) fn push_options(environment: &Environment) -> Result<Vec<Vec<u8>>, OptionsError> {
    let Some(count) = environment.get(env::GIT_PUSH_OPTION_COUNT) else { return Ok(Vec::new()) };
    let not_a_number = || OptionsError::Count(text::quoted(count.as_bytes()));
    let number = count.to_str().and_then(|n| n.parse().ok());
    // As git writes it: git does not write `+1` or `01`.
    let count: usize = number.filter(|n: &usize| *count == *n.to_string()).ok_or_else(not_a_number)?;
    (0..count)
        .map(|n| match environment.nth(env::GIT_PUSH_OPTION, n) {
            Some(option) => Ok(option.to_owned().into_vec()),
            None => Err(OptionsError::Absent(n)),
        })
        .collect()
}

/// The exact bytes of the pusher's name, as the host reports it; otherwise the user of this process.
pub(crate) fn pusher(environment: &Environment) -> OsString {
    let named = env::PUSHER.iter().find_map(|variable| environment.get(*variable));
    named.map_or_else(|| os_user().into(), OsString::from)
}

/// The name if a pusher can have it: what the log shows is then what settings are compared with.
pub(crate) fn checked_name(name: &OsStr) -> Option<&str> {
    let text = name.to_str()?;
    let is_shown_as_it_is = text::one_line(text.as_bytes(), LONGEST_NAME) == text;
    (!text.is_empty() && text.trim() == text && is_shown_as_it_is).then_some(text)
}

/// Who is pushing, sanitized for display.
pub(crate) fn who(environment: &Environment) -> Who {
    let pusher = text::one_line(pusher(environment).as_bytes(), LONGEST_NAME);
    let ssh = environment.get(env::SSH_CONNECTION).and_then(|all| all.as_bytes().split(|b| *b == b' ').next());
    let address = ssh.or_else(|| environment.get(env::REMOTE_ADDR).map(OsStrExt::as_bytes));
    Who { owner: None, pusher, address: address.map(|address| text::one_line(address, LONGEST_NAME)) }
}

/// The name of the user of this process, or the number if it has none.
pub(crate) fn os_user() -> String {
    text::one_line(user::own_name().as_bytes(), LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::of(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn only_options_below_the_count_are_read() {
        let stray = environment(&[("GIT_PUSH_OPTION_COUNT", "0"), ("GIT_PUSH_OPTION_0", "fence-token=9")]);
        assert_eq!(push_options(&stray), Ok(vec![]));
        let none = environment(&[("GIT_PUSH_OPTION_0", "fence-token=9")]);
        assert_eq!(push_options(&none), Ok(vec![]));
        let one = environment(&[
            ("GIT_PUSH_OPTION_COUNT", "1"),
            ("GIT_PUSH_OPTION_0", "a"),
            ("GIT_PUSH_OPTION_1", "fence-token=9"),
        ]);
        assert_eq!(push_options(&one), Ok(vec![b"a".to_vec()]));
    }

    #[test]
    fn wrong_count_is_an_error() {
        let short = environment(&[("GIT_PUSH_OPTION_COUNT", "2"), ("GIT_PUSH_OPTION_0", "a")]);
        assert_eq!(push_options(&short), Err(OptionsError::Absent(1)));
        for count in ["x", "-1", "+0", "00", "1 ", "99999999999999999999999"] {
            let read = push_options(&environment(&[("GIT_PUSH_OPTION_COUNT", count)]));
            assert!(matches!(read, Err(OptionsError::Count(_))), "{count}");
        }
    }

    #[test]
    fn names_that_would_look_different_in_the_log_are_refused() {
        for name in ["anna", "Anna B.", "ci@example.com", "Jürgen", "-x"] {
            assert_eq!(checked_name(OsStr::new(name)), Some(name));
        }
        for name in ["", " ", " anna", "anna\n", "an\tna", "an\u{1b}[31mna", "an\u{202e}na"] {
            assert_eq!(checked_name(OsStr::new(name)), None, "{name:?}");
        }
        assert!(checked_name(OsStr::new(&"ä".repeat(LONGEST_NAME))).is_some());
        assert_eq!(checked_name(OsStr::new(&"ä".repeat(LONGEST_NAME + 1))), None);
        assert_eq!(checked_name(OsStr::from_bytes(b"an\xffna")), None);
    }

    #[test]
    fn name_of_a_key_wins() {
        let told = [("GL_USERNAME", "l"), ("GIT_FENCE_PUSHER", "anna"), ("REMOTE_USER", "r")];
        assert_eq!(who(&environment(&told)).pusher, "anna");
    }

    #[test]
    fn host_names_the_pusher_and_the_name_is_sanitized() {
        let told = [("REMOTE_USER", "r"), ("GL_USER", "g\u{1b}l"), ("SSH_CONNECTION", "1.2.3.4 5 6 7")];
        let known = who(&environment(&told));
        assert_eq!((known.pusher.as_str(), known.address.as_deref()), ("gl", Some("1.2.3.4")));
        let unknown = who(&environment(&[("REMOTE_ADDR", "::1")]));
        assert_eq!((unknown.pusher, unknown.address.as_deref()), (os_user(), Some("::1")));
    }
}
