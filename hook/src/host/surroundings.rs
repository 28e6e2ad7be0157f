//! What the process finds around itself, read once.
//!
//! This is the one place that reads the environment. Everything after it works on values.

use git_fence_core::{OptionsError, Who, text};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

/// The variables by which hosts name the pusher, the most specific first.
const PUSHER: [&str; 5] = ["GL_USERNAME", "GL_USER", "GITEA_PUSHER_NAME", "SOFT_SERVE_USERNAME", "REMOTE_USER"];
const LONGEST_NAME: usize = 200;

/// The environment variables of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(HashMap<OsString, OsString>);

impl Environment {
    pub(crate) fn read() -> Environment {
        Environment(std::env::vars_os().collect())
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        Environment(variables.into_iter().collect())
    }

    /// The same without these variables.
    pub(crate) fn without(&self, names: &[&str]) -> Environment {
        let is_left = |name: &OsString| !names.iter().any(|out| *name == **out);
        Environment(self.0.iter().filter(|(name, _)| is_left(name)).map(|(n, v)| (n.clone(), v.clone())).collect())
    }

    /// The same with this variable.
    pub(crate) fn with(mut self, name: &str, value: OsString) -> Environment {
        self.0.insert(name.into(), value);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// The push options, those below the count only: a stray `GIT_PUSH_OPTION_0` of whoever started
    /// the server is inherited and visible beside a count of 0.
    pub(crate) fn push_options(&self) -> Result<Vec<Vec<u8>>, OptionsError> {
        let Some(count) = self.get("GIT_PUSH_OPTION_COUNT") else { return Ok(Vec::new()) };
        let not_a_number = || OptionsError::Count(text::quoted(count.as_bytes()));
        let number = count.to_str().and_then(|n| n.parse().ok());
        // As git writes it: `+1` and `01` were written by somebody else.
        let count: usize = number.filter(|n: &usize| *count == *n.to_string()).ok_or_else(not_a_number)?;
        (0..count)
            .map(|n| match self.0.get(OsStr::new(&format!("GIT_PUSH_OPTION_{n}"))) {
                Some(option) => Ok(option.clone().into_vec()),
                None => Err(OptionsError::Absent(n)),
            })
            .collect()
    }

    /// The pusher's name to the byte, as the host says; without a word from it, the user this
    /// process runs as.
    pub(crate) fn pusher(&self) -> OsString {
        let named = PUSHER.iter().find_map(|name| self.get(name));
        named.map_or_else(|| os_user().into(), OsString::from)
    }

    /// Who is pushing, fit to be shown.
    pub(crate) fn who(&self) -> Who {
        let pusher = text::one_line(self.pusher().as_bytes(), LONGEST_NAME);
        let ssh = self.get("SSH_CONNECTION").and_then(|all| all.as_bytes().split(|b| *b == b' ').next());
        let address = ssh.or_else(|| self.get("REMOTE_ADDR").map(OsStrExt::as_bytes));
        Who { owner: None, pusher, address: address.map(|address| text::one_line(address, LONGEST_NAME)) }
    }
}

/// The name of the user this process runs as, or its number where it has none.
pub(crate) fn os_user() -> String {
    text::one_line(git_fence_system::user::own_name().as_bytes(), LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment(pairs.iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    #[test]
    fn only_options_below_the_count_are_read() {
        let stray = environment(&[("GIT_PUSH_OPTION_COUNT", "0"), ("GIT_PUSH_OPTION_0", "fence-token=9")]);
        assert_eq!(stray.push_options(), Ok(vec![]));
        let none = environment(&[("GIT_PUSH_OPTION_0", "fence-token=9")]);
        assert_eq!(none.push_options(), Ok(vec![]));
        let one = environment(&[
            ("GIT_PUSH_OPTION_COUNT", "1"),
            ("GIT_PUSH_OPTION_0", "a"),
            ("GIT_PUSH_OPTION_1", "fence-token=9"),
        ]);
        assert_eq!(one.push_options(), Ok(vec![b"a".to_vec()]));
    }

    #[test]
    fn a_count_that_lies_is_an_error() {
        let short = environment(&[("GIT_PUSH_OPTION_COUNT", "2"), ("GIT_PUSH_OPTION_0", "a")]);
        assert_eq!(short.push_options(), Err(OptionsError::Absent(1)));
        for count in ["x", "-1", "+0", "00", "1 ", "99999999999999999999999"] {
            let read = environment(&[("GIT_PUSH_OPTION_COUNT", count)]).push_options();
            assert!(matches!(read, Err(OptionsError::Count(_))), "{count}");
        }
    }

    #[test]
    fn the_host_names_the_pusher_and_text_from_outside_is_tamed() {
        let who =
            environment(&[("REMOTE_USER", "r"), ("GL_USER", "g\u{1b}l"), ("SSH_CONNECTION", "1.2.3.4 5 6 7")]).who();
        assert_eq!((who.pusher.as_str(), who.address.as_deref()), ("gl", Some("1.2.3.4")));
        let who = environment(&[("REMOTE_ADDR", "::1")]).who();
        assert_eq!((who.pusher, who.address.as_deref()), (os_user(), Some("::1")));
    }
}
