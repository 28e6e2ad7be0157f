//! What the settings say: which refs a fence guards and how it judges.

use crate::{FenceName, Mark, RefName, Token, Ttl, pattern_matches};
use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

/// Whether a fence refuses, only watches, or is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Pushes that break the rule are refused.
    Enforce,
    /// Everything is done and recorded, but nothing is refused.
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
    /// Whether `token` may write where `mark` is the newest that has written.
    pub fn admits(self, token: Token, mark: Mark) -> bool {
        match self {
            Accept::Above => token.get() > mark.get(),
            Accept::AtOrAbove => token.get() >= mark.get(),
        }
    }
}

/// Which trailers count as the tokens of a push that brings none by option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedTrailers {
    /// All of them: the pusher needs a token.
    All,
    /// Those in objects that the push brings. The pusher may come without a token, and what is there already
    /// carries that of another push.
    New,
    /// None: this pusher has no tokens but those it gives by option.
    None,
}

/// Where the tokens of a fence come from. It is decided once: a fence never takes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// From a lease service of the pushers' own.
    Own,
    /// From leases that this gate grants.
    Lease,
}

impl TokenKind {
    /// The word that settings and commands use.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenKind::Own => "own",
            TokenKind::Lease => "lease",
        }
    }
}

/// The rules of one fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The fence.
    pub fence: FenceName,
    /// The refs it guards: patterns in which `*` crosses slashes.
    pub refs: Vec<String>,
    /// Refuse, watch, or nothing.
    pub mode: Mode,
    /// Which tokens are new enough.
    pub accept: Accept,
    /// Whether everybody may push without a token.
    pub tokenless: bool,
    /// The pushers who may push without a token.
    pub exempt: Vec<String>,
    /// How long a push may wait for those before it.
    #[serde(rename = "wait_ms", serialize_with = "as_milliseconds")]
    pub wait: Duration,
    /// How far above the mark a token may be.
    pub max_jump: Option<u64>,
    /// After how long in the slot a push is ended by a newer one that waits for it.
    #[serde(rename = "evict_after_ms", serialize_with = "as_optional_milliseconds")]
    pub evict_after: Option<Duration>,
    /// The longest TTL that a lease may have.
    #[serde(rename = "lease_max_ttl_s")]
    pub lease_max_ttl: Ttl,
    /// The pushers who may take a lease away from its holder.
    pub allow_revoke: Vec<String>,
    /// The kind of tokens that the fence takes; where nobody has said it, the first that lands decides.
    #[serde(serialize_with = "as_word_or_any")]
    pub tokens: Option<TokenKind>,
}

impl Rules {
    /// The rules of the fence `repo` where nothing is configured.
    pub fn for_repo() -> Rules {
        Rules {
            fence: FenceName::repo(),
            refs: vec!["refs/heads/*".to_owned(), "refs/tags/*".to_owned()],
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
        }
    }

    /// Whether this fence guards `name`. Lease refs are nobody's.
    pub fn guards(&self, name: &RefName) -> bool {
        !name.is_lease() && self.refs.iter().any(|pattern| pattern_matches(pattern, name))
    }

    /// Whether `pusher`, as the host names it to the byte, may push here without a token.
    pub fn exempts(&self, pusher: &[u8]) -> bool {
        self.trailers_of(pusher) != CountedTrailers::All
    }

    /// Which trailers are tokens of `pusher`, as the host names it to the byte.
    pub fn trailers_of(&self, pusher: &[u8]) -> CountedTrailers {
        match self.tokenless {
            _ if self.exempt.iter().any(|name| name.as_bytes() == pusher) => CountedTrailers::None,
            true => CountedTrailers::New,
            false => CountedTrailers::All,
        }
    }

    /// Whether `pusher`, as the host names it to the byte, may take a lease away.
    pub fn lets_revoke(&self, pusher: &[u8]) -> bool {
        self.allow_revoke.iter().any(|name| name.as_bytes() == pusher)
    }
}

/// All settings that matter to a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The fences in the order in which refs are given to them: named ones first, `repo` last.
    pub fences: Vec<Rules>,
    /// Whether this host starts hooks from somewhere else than a receive-pack, so that nobody can
    /// see whether a push is still alive (the bounded form).
    pub receive_pack_is_elsewhere: bool,
    /// Whether a repository that has no log yet may begin one at its first push.
    pub init_at_first_push: bool,
    /// Whether a gate may do without its companion, the `post-receive` that records at once what a push has moved:
    /// for hosts that have no place for it (the weaker form).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub companion_is_optional: bool,
    /// Where each decision is sent besides the log: the local syslog or journald, or a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog: Option<Syslog>,
}

/// A listener for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syslog {
    /// Whichever of journald and syslog this machine has.
    Local,
    /// The datagram socket at this path.
    Socket(String),
}

/// Where nothing is configured.
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
    /// The fence that `name` belongs to, if it is guarded at all.
    pub fn fence_of(&self, name: &RefName) -> Option<&Rules> {
        self.fences.iter().find(|rules| rules.guards(name))
    }

    /// Whether any fence refuses pushes.
    pub fn enforces(&self) -> bool {
        self.fences.iter().any(|rules| rules.mode == Mode::Enforce)
    }

    /// Whether no fence does anything.
    pub fn are_all_off(&self) -> bool {
        self.fences.iter().all(|rules| rules.mode == Mode::Off)
    }

    /// The rules of the fence called `name`.
    pub fn rules(&self, name: &FenceName) -> Option<&Rules> {
        self.fences.iter().find(|rules| rules.fence == *name)
    }
}

/// Whole numbers: settings are compared with what was read back from the log, and fractions of
/// seconds do not come back to the last bit.
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
    fn a_ref_belongs_to_the_first_fence_that_guards_it_and_leases_to_none() {
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
    fn whoever_may_come_without_a_token_has_fewer_by_trailer() {
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
    fn a_tie_is_admitted_only_where_the_setting_says_so() {
        let five = Token::parse(b"5").unwrap();
        let mark = Mark::from(five);
        assert!(!Accept::Above.admits(five, mark));
        assert!(Accept::AtOrAbove.admits(five, mark));
        assert!(!Accept::AtOrAbove.admits(Token::parse(b"4").unwrap(), mark));
    }
}
