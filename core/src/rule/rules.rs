//! The settings: which refs a fence guards and how it judges pushes.

use crate::{FenceName, Mark, RefName, StorePlace, StoreUrl, Token, Ttl, pattern_matches};
use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

/// Whether a fence refuses, only observes, or does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Pushes that break the rule are refused.
    Enforce,
    /// Decisions are made and recorded, but nothing is refused.
    Observe,
    /// The fence does nothing.
    Off,
}

/// Which tokens are new enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// Strictly above the mark: each token moves refs once.
    Above,
    /// The mark's own token too: for holders that push many times under one token.
    AtOrAbove,
}

impl Accept {
    /// Whether `token` may write to a fence with this `mark`.
    pub fn admits(self, token: Token, mark: Mark) -> bool {
        match self {
            Accept::Above => token.get() > mark.get(),
            Accept::AtOrAbove => token.get() >= mark.get(),
        }
    }
}

/// Which trailers count as tokens of a push that has none in its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedTrailers {
    /// All of them: the pusher needs a token.
    All,
    /// Those in objects that are new with the push. This pusher may push without a token, and existing objects
    /// carry the token of another push.
    New,
    /// None: only push options count for this pusher.
    None,
}

/// Where the tokens of a fence come from. Decided once: a fence never takes both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// From a lease service of the pushers' own.
    Own,
    /// From leases that this gate grants.
    Lease,
}

impl TokenKind {
    /// The name in settings and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenKind::Own => "own",
            TokenKind::Lease => "lease",
        }
    }
}

/// After how long a member of a family is forgotten, unless set.
const FORGET_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn is_the_default_time(forget_after: &Option<Duration>) -> bool {
    *forget_after == Some(FORGET_AFTER)
}

/// The rules of one fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The fence.
    pub fence: FenceName,
    /// The refs it guards: patterns in which `*` crosses slashes.
    pub refs: Vec<String>,
    /// Whether each of these refs has a fence of its own: the fence is a family.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub each: bool,
    /// After how long a member of a family is forgotten whose ref is gone and that nobody holds; `None`: never.
    #[serde(
        rename = "forget_after_ms",
        skip_serializing_if = "is_the_default_time",
        serialize_with = "as_optional_milliseconds"
    )]
    pub forget_after: Option<Duration>,
    /// Enforce, observe, or off.
    pub mode: Mode,
    /// Which tokens are new enough.
    pub accept: Accept,
    /// Whether all pushers may push without a token.
    pub tokenless: bool,
    /// The pushers who may push without a token.
    pub exempt: Vec<String>,
    /// How long a push may wait for the pushes before it.
    #[serde(rename = "wait_ms", serialize_with = "as_milliseconds")]
    pub wait: Duration,
    /// How far above the mark a token may be.
    pub max_jump: Option<u64>,
    /// How long a push may stay in the slot before a newer one that waits for it evicts it.
    #[serde(rename = "evict_after_ms", serialize_with = "as_optional_milliseconds")]
    pub evict_after: Option<Duration>,
    /// The longest TTL a lease may have.
    #[serde(rename = "lease_max_ttl_s")]
    pub lease_max_ttl: Ttl,
    /// The pushers who may revoke a lease.
    pub allow_revoke: Vec<String>,
    /// The kind of tokens that the fence takes; if not set, the first push or grant that lands decides.
    #[serde(serialize_with = "as_word_or_any")]
    pub tokens: Option<TokenKind>,
    /// Where the leases are kept, if not in the repository: the gate asks there who holds them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreUrl>,
    /// The name of the repository in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

impl Rules {
    /// The default rules of the fence `repo`.
    pub fn for_repo() -> Rules {
        Rules {
            fence: FenceName::repo(),
            refs: vec!["refs/heads/*".to_owned(), "refs/tags/*".to_owned()],
            each: false,
            forget_after: Some(FORGET_AFTER),
            mode: Mode::Enforce,
            accept: Accept::Above,
            tokenless: false,
            exempt: Vec::new(),
            wait: Duration::from_secs(30),
            max_jump: None,
            evict_after: Some(Duration::from_secs(5 * 60)),
            lease_max_ttl: Ttl::ONE_DAY,
            allow_revoke: Vec::new(),
            tokens: None,
            store: None,
            resource: None,
        }
    }

    /// The store and the name of the repository in it, as marks and messages name them; `None` if leases are not kept in a
    /// store.
    pub fn store_place(&self) -> Option<StorePlace> {
        StorePlace::new(&self.store.as_ref()?.shown(), self.resource.as_ref()?)
    }

    /// Whether this fence, or a member of this family, guards `name`. No fence guards lease refs.
    pub fn guards(&self, name: &RefName) -> bool {
        let matches = || match self.each {
            true => self.star_in(name).is_some(),
            false => self.refs.iter().any(|pattern| pattern_matches(pattern, name)),
        };
        !name.is_lease() && matches()
    }

    /// Whether `pusher`, byte for byte as the host names it, may push here without a token.
    pub fn exempts(&self, pusher: &[u8]) -> bool {
        self.trailers_of(pusher) != CountedTrailers::All
    }

    /// Which trailers count as tokens of `pusher`, byte for byte as the host names it.
    pub fn trailers_of(&self, pusher: &[u8]) -> CountedTrailers {
        match self.tokenless {
            _ if self.exempt.iter().any(|name| name.as_bytes() == pusher) => CountedTrailers::None,
            true => CountedTrailers::New,
            false => CountedTrailers::All,
        }
    }

    /// Whether `pusher`, byte for byte as the host names it, may revoke a lease.
    pub fn lets_revoke(&self, pusher: &[u8]) -> bool {
        self.allow_revoke.iter().any(|name| name.as_bytes() == pusher)
    }
}

/// All settings that decisions depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The fences in the order in which refs are matched: named fences first, `repo` last.
    pub fences: Vec<Rules>,
    /// Whether this host does not start hooks from a receive-pack, so that the gate cannot see whether a
    /// push is still alive (the bounded form).
    pub receive_pack_is_elsewhere: bool,
    /// Whether the first push may create the log of a repository that has none.
    pub init_at_first_push: bool,
    /// Whether the gate may work without its companion, the `post-receive` hook that records at once what a push
    /// moved: for hosts that cannot install it (the weaker form).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub companion_is_optional: bool,
    /// Where decisions are sent besides the log: the local syslog or journald, or a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog: Option<Syslog>,
}

/// A destination for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syslog {
    /// journald or syslog, whichever this machine has.
    Local,
    /// The datagram socket at this path.
    Socket(String),
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fences: vec![Rules::for_repo()],
            receive_pack_is_elsewhere: false,
            init_at_first_push: false,
            companion_is_optional: false,
            syslog: None,
        }
    }
}

impl Settings {
    /// The fence that guards `name`, if any; or the family, if a member does: [`Settings::fence_name_of`] names it.
    pub fn fence_of(&self, name: &RefName) -> Option<&Rules> {
        self.fences.iter().find(|rules| rules.guards(name))
    }

    /// Whether any fence refuses pushes.
    pub fn enforces(&self) -> bool {
        self.fences.iter().any(|rules| rules.mode == Mode::Enforce)
    }

    /// Whether every fence is off.
    pub fn are_all_off(&self) -> bool {
        self.fences.iter().all(|rules| rules.mode == Mode::Off)
    }
}

/// Whole numbers, because settings are compared with those read back from the log, and fractions of
/// seconds do not round-trip exactly.
fn as_milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    milliseconds(*duration).serialize(serializer)
}

fn as_optional_milliseconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(milliseconds).serialize(serializer)
}

fn as_word_or_any<S: Serializer>(kind: &Option<TokenKind>, serializer: S) -> Result<S::Ok, S::Error> {
    kind.map_or("any", TokenKind::as_str).serialize(serializer)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let mut deploy = Rules::for_repo();
        deploy.fence = FenceName::parse(b"deploy").unwrap();
        deploy.refs = vec!["refs/heads/deploy/*".to_owned(), "refs/notes/*".to_owned()];
        Settings { fences: vec![deploy, Rules::for_repo()], ..Settings::default() }
    }

    #[test]
    fn ref_belongs_to_the_first_fence_that_guards_it_and_leases_to_none() {
        let settings = settings();
        for (name, fence) in [
            ("refs/heads/main", Some("repo")),
            ("refs/heads/a/b/c", Some("repo")),
            ("refs/tags/v1", Some("repo")),
            ("refs/heads/deploy/eu/web", Some("deploy")),
            ("refs/heads/deploy", Some("repo")),
            ("refs/notes/commits", Some("deploy")),
            ("refs/changes/1", None),
            ("refs/fence/repo/lease", None),
        ] {
            let found = settings.fence_of(&RefName::new(name)).map(|rules| rules.fence.as_str());
            assert_eq!(found, fence, "{name}");
        }
        let mut everything = Rules::for_repo();
        everything.refs = vec!["refs/*".to_owned()];
        assert!(everything.guards(&RefName::new("refs/changes/1")));
        for name in ["refs/fence/repo/lease", "refs/fence"] {
            assert!(!everything.guards(&RefName::new(name)), "{name}");
        }
        assert!(everything.guards(&RefName::new("refs/fences/x")));
    }

    #[test]
    fn fewer_trailers_count_for_pushers_who_need_no_token() {
        let exempt = vec!["anna".to_owned()];
        let named = Rules { exempt, ..Rules::for_repo() };
        let both = Rules { tokenless: true, ..named.clone() };
        for (rules, pusher, trailers) in [
            (&named, "anna", CountedTrailers::None),
            (&named, "bob", CountedTrailers::All),
            (&both, "anna", CountedTrailers::None),
            (&both, "bob", CountedTrailers::New),
        ] {
            assert_eq!(rules.trailers_of(pusher.as_bytes()), trailers, "{pusher}");
            assert_eq!(rules.exempts(pusher.as_bytes()), trailers != CountedTrailers::All, "{pusher}");
        }
    }

    #[test]
    fn token_equal_to_the_mark_is_admitted_only_by_at_or_above() {
        let five = Token::parse(b"5").unwrap();
        let mark = Mark::from(five);
        assert!(!Accept::Above.admits(five, mark));
        assert!(Accept::AtOrAbove.admits(five, mark));
        assert!(!Accept::AtOrAbove.admits(Token::parse(b"4").unwrap(), mark));
    }
}
