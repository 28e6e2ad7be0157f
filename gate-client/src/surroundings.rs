//! What the process finds around itself, read once.
//!
//! This is the one place that reads the environment. Everything after it works on values.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::Command,
};

/// The key that sends pushes of a URL through the remote helper starts with this.
pub(crate) const HELPER: &str = "fence::";

/// The environment variables of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub(crate) fn read() -> Environment {
        Environment(std::env::vars_os().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(OsStr::new(name));
    }

    /// Gives this environment, and nothing else, to `command`.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env_clear().envs(&self.0);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// The settings that git is given through the environment, in their order.
    pub(crate) fn settings(&self) -> Vec<(OsString, OsString)> {
        let count = self.text("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        let at = |kind: &str, n: usize| self.0.get(OsStr::new(&format!("GIT_CONFIG_{kind}_{n}"))).cloned();
        // Git refuses a list with a gap, so there are no more of them than variables.
        (0..count.min(self.0.len())).filter_map(|n| Some((at("KEY", n)?, at("VALUE", n)?))).collect()
    }

    /// Replaces them.
    pub(crate) fn set_settings(&mut self, settings: &[(OsString, OsString)]) {
        for n in 0..self.settings().len().max(settings.len()) {
            self.remove(&format!("GIT_CONFIG_KEY_{n}"));
            self.remove(&format!("GIT_CONFIG_VALUE_{n}"));
        }
        for (n, (key, value)) in settings.iter().enumerate() {
            self.set(&format!("GIT_CONFIG_KEY_{n}"), key);
            self.set(&format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        self.set("GIT_CONFIG_COUNT", settings.len().to_string());
    }

    /// Adds a setting after all others, as `git -c` does: also after those that the user gave to git
    /// with `-c`, which come after [`Environment::set_settings`].
    pub(crate) fn set_last(&mut self, key: &str, value: &OsStr) {
        let name = "GIT_CONFIG_PARAMETERS";
        let mut all = self.get(name).unwrap_or_default().to_owned();
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(in_shell_quotes(OsStr::new(key)));
        all.push("=");
        all.push(in_shell_quotes(value));
        self.set(name, all);
    }

    /// This environment without what `run` put into it to send pushes through the helper: a git that
    /// the helper starts would otherwise call the helper, for ever.
    pub(crate) fn without_helper(&self) -> Environment {
        let mut plain = self.clone();
        let settings = self.settings();
        // To the byte: the path of a repository need not be UTF-8.
        let ours = format!("url.{HELPER}");
        let is_ours = |key: &OsStr| key.as_bytes().starts_with(ours.as_bytes());
        let others: Vec<_> = settings.iter().filter(|(key, _)| !is_ours(key)).cloned().collect();
        if others.len() < settings.len() {
            plain.set_settings(&others);
        }
        plain
    }
}

/// As git quotes for a shell, and reads back.
fn in_shell_quotes(text: &OsStr) -> OsString {
    OsString::from_vec(gix::quote::single(text.as_bytes().into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_come_last_are_quoted_as_git_does() {
        let mut environment = Environment::default();
        environment.set_last("push.pushOption", OsStr::new(""));
        environment.set_last("push.pushOption", OsStr::new("it's 5 o'clock!"));
        let expected = r"'push.pushOption'='' 'push.pushOption'='it'\''s 5 o'\''clock'\!''";
        assert_eq!(environment.text("GIT_CONFIG_PARAMETERS"), Some(expected));
    }

    #[test]
    fn a_count_that_lies_is_not_counted_to_its_end() {
        let mut environment = Environment::default();
        environment.set("GIT_CONFIG_COUNT", usize::MAX.to_string());
        environment.set("GIT_CONFIG_KEY_0", "a.b");
        environment.set("GIT_CONFIG_VALUE_0", "c");
        assert_eq!(environment.settings(), [("a.b".into(), "c".into())]);
    }

    #[test]
    fn what_run_added_is_taken_out_again_and_the_rest_stays() {
        let mut outer = Environment::default();
        let pair = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
        let users = vec![pair("init.defaultBranch", "main"), pair("url.ssh://x/.insteadOf", "x:")];
        outer.set_settings(&users);
        let mut inner = outer.clone();
        inner.set_settings(&[&users[..1], &[pair("url.fence::/srv/a.pushInsteadOf", "/srv/a")], &users[1..]].concat());
        assert_eq!(inner.settings().len(), 3);
        assert_eq!(inner.without_helper().settings(), users);
        assert_eq!(inner.without_helper().get("GIT_CONFIG_KEY_2"), None);
        let path = OsString::from_vec(b"url.fence::/srv/\xb9.pushInsteadOf".to_vec());
        inner.set_settings(&[(path, OsString::from("x"))]);
        assert_eq!(inner.without_helper().settings(), []);
        assert_eq!(Environment::default().without_helper().get("GIT_CONFIG_COUNT"), None);
    }
}
