//! The table of settings: every setting is declared here, once. The parser, `doctor` and `docs/settings.md` use it.
//!
//! Each setting sets a field of [`Rules`] or [`Settings`], which also have its default.

use crate::repository::settings::given::{Given, ValueFlaw, duration, listener, resource};
use git_fence_core::{Accept, Mode, Rules, Settings, StoreUrl, Token, TokenKind, Ttl};
use gix::bstr::ByteSlice as _;

/// A setting. Its texts are used in the documentation.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes them to the page"))]
pub(crate) struct Setting {
    /// Its name, after `fence.` or `fence.<name>.`.
    pub(crate) key: &'static str,
    /// The accepted values; those in code spans are literal.
    values: &'static str,
    /// The value if it is not set.
    default: &'static str,
    meaning: &'static str,
    pub(super) set: Set,
}

/// What a setting changes.
pub(super) enum Set {
    /// A rule of each fence: `fence.<key>` is the default for all, `fence.<name>.<key>` is for one.
    Fence(fn(&mut Rules, Given<'_>) -> Result<(), ValueFlaw>),
    /// The same with many values, which add up over all levels.
    List(fn(&mut Rules, Given<'_>) -> Result<(), ValueFlaw>),
    /// Something common to all fences. It cannot be set for a single one.
    All(fn(&mut Settings, Given<'_>) -> Result<(), ValueFlaw>),
}

impl Setting {
    /// Whether it can only be set for all fences.
    pub(crate) fn is_for_all(&self) -> bool {
        matches!(self.set, Set::All(_))
    }

    /// Whether its values add up.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.set, Set::List(_))
    }

    /// Whether this is the setting called `name`. Git ignores case there.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.key.eq_ignore_ascii_case(name)
    }
}

/// The setting for the mode of a fence, which has commands of its own.
pub(crate) fn mode() -> &'static Setting {
    &SETTINGS[0]
}

/// All settings. The mode is the first.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "mode",
        values: "`enforce`, `observe`, `off`",
        default: "`enforce`",
        meaning: "`observe` does everything but refuse, and records what would have been refused",
        set: Set::Fence(|rules, given| {
            let modes = [("enforce", Mode::Enforce), ("observe", Mode::Observe), ("off", Mode::Off)];
            given.word(modes).map(|mode| rules.mode = mode)
        }),
    },
    Setting {
        key: "refs",
        values: "patterns, repeatable",
        default: "`refs/heads/*`, `refs/tags/*`",
        meaning: "the refs that the fence guards; `*` crosses slashes",
        set: Set::List(|rules, given| given.patterns().map(|patterns| rules.refs = patterns)),
    },
    Setting {
        key: "accept",
        values: "`above`, `at-or-above`",
        default: "`above`",
        meaning: "`at-or-above` is for holders that push many times under one token",
        set: Set::Fence(|rules, given| {
            let accept = given.word([("above", Accept::Above), ("at-or-above", Accept::AtOrAbove)]);
            accept.map(|accept| rules.accept = accept)
        }),
    },
    Setting {
        key: "tokenless",
        values: "`refuse`, `allow`",
        default: "`refuse`",
        meaning: "whether everyone may push without a token; a stale token is still refused. A trailer counts only in objects that the push itself brings",
        set: Set::Fence(|rules, given| {
            given.word([("allow", true), ("refuse", false)]).map(|allowed| rules.tokenless = allowed)
        }),
    },
    Setting {
        key: "exempt",
        values: "pushers, repeatable",
        default: "none",
        meaning: "who may push without a token: people, a forge's web editor. From these pushers only a token in a push option counts. Such a push may land while another holder has the lease",
        set: Set::List(|rules, given| given.list().map(|pushers| rules.exempt = pushers)),
    },
    Setting {
        key: "wait",
        values: "`30s`, `2m`, `500ms`, `30` (seconds)",
        default: "`30s`",
        meaning: "how long a push waits for the push in the slot",
        set: Set::Fence(|rules, given| given.read(duration).map(|wait| rules.wait = wait)),
    },
    Setting {
        key: "maxJump",
        values: "a number, `none`",
        default: "`none`",
        meaning: "refuse tokens further than this above the mark",
        set: Set::Fence(|rules, given| {
            let expected = "expected a whole number of 1 or more, or none";
            let number = |value: &[u8]| Token::parse(value).map(Token::get).map_err(|_| expected);
            given.read_unless("none", number).map(|limit| rules.max_jump = limit)
        }),
    },
    Setting {
        key: "evictAfter",
        values: "a duration, `off`",
        default: "`5m`",
        meaning: "how long a push may stay in the slot before a newer push that waits for it ends it (SIGTERM)",
        set: Set::Fence(|rules, given| given.read_unless("off", duration).map(|after| rules.evict_after = after)),
    },
    Setting {
        key: "leaseMaxTtl",
        values: "`1s` to `7d`",
        default: "`1d`",
        meaning: "the longest TTL that a lease may have",
        set: Set::Fence(|rules, given| {
            let expected = "expected a duration from 1s to 7d, in whole seconds";
            let ttl = |value: &[u8]| {
                let length = duration(value).map_err(|_| expected)?;
                Ttl::of_seconds(length.as_secs()).filter(|ttl| ttl.duration() == length).ok_or(expected)
            };
            given.read(ttl).map(|ttl| rules.lease_max_ttl = ttl)
        }),
    },
    Setting {
        key: "tokens",
        values: "`own`, `lease`, `any`",
        default: "`any`",
        meaning: "where the fence's tokens come from, see [below](#tokens-of-your-own-or-of-leases); with `any`, the first kind that lands decides",
        set: Set::Fence(|rules, given| {
            let kinds = [("own", Some(TokenKind::Own)), ("lease", Some(TokenKind::Lease)), ("any", None)];
            given.word(kinds).map(|kind| rules.tokens = kind)
        }),
    },
    Setting {
        key: "allowRevoke",
        values: "pushers, repeatable",
        default: "none",
        meaning: "who may revoke, halt and resume a lease by a push; `git-fence-hook` always may",
        set: Set::List(|rules, given| given.list().map(|pushers| rules.allow_revoke = pushers)),
    },
    Setting {
        key: "store",
        values: "a URL, `none`",
        default: "`none`",
        meaning: "where the clients keep the leases of this fence, such as `etcd+https://host:2379`: the gate [asks there](operations.md#leases-in-a-store) who holds the lease before a push takes the slot. Needs `fence.resource`, and the program `git-fence-store` beside `git-fence-hook` or in the server's PATH. A password in the URL is never shown or recorded",
        set: Set::Fence(|rules, given| {
            let expected = "expected UTF-8";
            let url = |value: &[u8]| StoreUrl::parse(value.to_str().map_err(|_| expected)?);
            given.read_unless("none", url).map(|store| rules.store = store)
        }),
    },
    Setting {
        key: "resource",
        values: "a name, `none`",
        default: "`none`",
        meaning: "the name of this repository in the store, as the clients have it: by default host and path of their remote's URL, as in `git.example.com/team/app`; `git fence status` shows it",
        set: Set::Fence(|rules, given| given.read_unless("none", resource).map(|resource| rules.resource = resource)),
    },
    Setting {
        key: "receivePack",
        values: "`ancestor`, `none`",
        default: "`ancestor`",
        meaning: "`none` is for hosts that start hooks elsewhere (GitLab): the bounded form",
        set: Set::All(|settings, given| {
            let is_elsewhere = given.word([("ancestor", false), ("none", true)]);
            is_elsewhere.map(|is_elsewhere| settings.receive_pack_is_elsewhere = is_elsewhere)
        }),
    },
    Setting {
        key: "companion",
        values: "`required`, `optional`",
        default: "`required`",
        meaning: "whether the gate refuses pushes when its [companion](installing.md#two-hooks) is missing. `optional`, for hosts that have no place for a `post-receive`, is the weaker form: if a ref is reset before the next push, the token that moved it is valid again",
        set: Set::All(|settings, given| {
            let is_optional = given.word([("required", false), ("optional", true)]);
            is_optional.map(|is_optional| settings.companion_is_optional = is_optional)
        }),
    },
    Setting {
        key: "syslog",
        values: "`true`, `false`, a socket path",
        default: "`false`",
        meaning: "also send each decision, with its fields, to the local journald or syslog; the push does not depend on whether anything receives it",
        set: Set::All(|settings, given| given.read(listener).map(|listener| settings.syslog = listener)),
    },
    Setting {
        key: "init",
        values: "`install`, `auto`",
        default: "`install`",
        meaning: "`auto` lets a repository without a log start one at its first push: for fleets and templates",
        set: Set::All(|settings, given| {
            let is_auto = given.word([("install", false), ("auto", true)]);
            is_auto.map(|is_auto| settings.init_at_first_push = is_auto)
        }),
    },
];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::repository::settings::tests::settings;

    /// The table of `docs/settings.md`.
    pub(crate) fn markdown() -> String {
        let head = "| setting | values | default | meaning |\n|---|---|---|---|\n".to_owned();
        let row = |Setting { key, values, default, meaning, .. }: &Setting| {
            format!("| `fence.{key}` | {values} | {default} | {meaning} |\n")
        };
        head + &SETTINGS.iter().map(row).collect::<String>()
    }

    fn code_spans(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    #[test]
    fn default_in_the_table_is_the_default_in_the_code() {
        for Setting { key, default, .. } in SETTINGS {
            let set: String = code_spans(default).map(|value| format!(" {key} = {value}\n")).collect();
            assert_eq!(settings(&format!("[fence]\n{set}")), Ok(Settings::default()), "{key} = {default}");
        }
    }

    #[test]
    fn every_value_in_the_table_is_accepted_and_others_are_refused() {
        for Setting { key, values, .. } in SETTINGS {
            for value in code_spans(values) {
                assert!(settings(&format!("[fence]\n {key} = {value}\n")).is_ok(), "{key} = {value}");
            }
            let takes_any_text = ["exempt", "allowRevoke"].contains(key);
            assert_eq!(settings(&format!("[fence]\n {key} = no such value\n")).is_ok(), takes_any_text, "{key}");
        }
    }
}
