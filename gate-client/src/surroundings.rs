//! Git settings in environment variables.
//!
//! The variables are listed in [`env`](mod@git_fence_system::env).

pub(crate) use git_fence_system::Environment;
use git_fence_system::env;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// The prefix of URLs that git hands to the remote helper.
pub(crate) const HELPER: &str = "fence::";

/// The git settings in an environment.
pub(crate) trait GitSettings {
    /// The settings in `GIT_CONFIG_KEY_<n>` and `GIT_CONFIG_VALUE_<n>`, in order.
    fn settings(&self) -> Vec<(OsString, OsString)>;

    /// Replaces them.
    fn set_settings(&mut self, settings: &[(OsString, OsString)]);

    /// Adds a setting after all others, as `git -c` does: also after those that the user gave to git with `-c`,
    /// which come after [`GitSettings::set_settings`].
    fn set_last(&mut self, key: &str, value: &OsStr);

    /// This environment without the settings of `run` that send pushes through the helper. Otherwise a git that
    /// the helper starts would call the helper again, for ever.
    fn without_helper(&self) -> Environment;
}

impl GitSettings for Environment {
    fn settings(&self) -> Vec<(OsString, OsString)> {
        let count = self.text(env::GIT_CONFIG_COUNT).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        // Git refuses a list with a gap, so there cannot be more settings than variables.
        (0..count.min(self.count()))
            .filter_map(|n| {
                Some((self.nth(env::GIT_CONFIG_KEY, n)?.into(), self.nth(env::GIT_CONFIG_VALUE, n)?.into()))
            })
            .collect()
    }

    fn set_settings(&mut self, settings: &[(OsString, OsString)]) {
        for n in 0..self.settings().len().max(settings.len()) {
            self.remove_nth(env::GIT_CONFIG_KEY, n);
            self.remove_nth(env::GIT_CONFIG_VALUE, n);
        }
        for (n, (key, value)) in settings.iter().enumerate() {
            self.set_nth(env::GIT_CONFIG_KEY, n, key);
            self.set_nth(env::GIT_CONFIG_VALUE, n, value);
        }
        self.set(env::GIT_CONFIG_COUNT, settings.len().to_string());
    }

    fn set_last(&mut self, key: &str, value: &OsStr) {
        let mut all = self.get(env::GIT_CONFIG_PARAMETERS).unwrap_or_default().to_owned();
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(in_shell_quotes(OsStr::new(key)));
        all.push("=");
        all.push(in_shell_quotes(value));
        self.set(env::GIT_CONFIG_PARAMETERS, all);
    }

    fn without_helper(&self) -> Environment {
        let mut plain = self.clone();
        let settings = self.settings();
        // Compared as bytes: the path of a repository need not be UTF-8.
        let ours = format!("url.{HELPER}");
        let is_ours = |key: &OsStr| key.as_bytes().starts_with(ours.as_bytes());
        let others: Vec<_> = settings.iter().filter(|(key, _)| !is_ours(key)).cloned().collect();
        if others.len() < settings.len() {
            plain.set_settings(&others);
        }
        plain
    }
}

/// In single quotes, as git writes and reads them.
pub(crate) fn in_shell_quotes(text: &OsStr) -> OsString {
    OsString::from_vec(gix::quote::single(text.as_bytes().into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_settings_are_quoted_as_git_does() {
        let mut environment = Environment::default();
        environment.set_last("push.pushOption", OsStr::new(""));
        environment.set_last("push.pushOption", OsStr::new("it's 5 o'clock!"));
        let expected = r"'push.pushOption'='' 'push.pushOption'='it'\''s 5 o'\''clock'\!''";
        assert_eq!(environment.text(env::GIT_CONFIG_PARAMETERS), Some(expected));
    }

    #[test]
    fn huge_config_count_is_not_counted_to_its_end() {
        let mut environment = Environment::default();
        environment.set(env::GIT_CONFIG_COUNT, usize::MAX.to_string());
        environment.set_nth(env::GIT_CONFIG_KEY, 0, "a.b");
        environment.set_nth(env::GIT_CONFIG_VALUE, 0, "c");
        assert_eq!(environment.settings(), [("a.b".into(), "c".into())]);
    }

    #[test]
    fn settings_added_by_run_are_removed_and_others_kept() {
        let mut outer = Environment::default();
        let pair = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
        let users = vec![pair("init.defaultBranch", "main"), pair("url.ssh://x/.insteadOf", "x:")];
        outer.set_settings(&users);
        let mut inner = outer.clone();
        inner.set_settings(&[&users[..1], &[pair("url.fence::/srv/a.pushInsteadOf", "/srv/a")], &users[1..]].concat());
        assert_eq!(inner.settings().len(), 3);
        assert_eq!(inner.without_helper().settings(), users);
        assert_eq!(inner.without_helper().nth(env::GIT_CONFIG_KEY, 2), None);
        let path = OsString::from_vec(b"url.fence::/srv/\xb9.pushInsteadOf".to_vec());
        inner.set_settings(&[(path, OsString::from("x"))]);
        assert_eq!(inner.without_helper().settings(), []);
        assert_eq!(Environment::default().without_helper().get(env::GIT_CONFIG_COUNT), None);
    }
}
