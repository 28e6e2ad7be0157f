//! The settings of a clone: what `git fence` takes for flags that are not given.
//!
//! They share the section `fence` of git's configuration with the settings of the gate, which must know their names: a
//! machine that has both reads one configuration.

/// A setting of a clone. Each is declared once, here; the client and `docs/settings.md` use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneSetting {
    /// Its name, after `fence.`.
    pub key: &'static str,
    /// The accepted values; those in code spans are literal.
    pub values: &'static str,
    /// What happens if it is not set.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

/// The owner's name.
pub const OWNER: CloneSetting = CloneSetting {
    key: "owner",
    values: "a name",
    default: "user@host",
    meaning: "your name in the history of leases, for people; `--owner` overrides it",
};

/// The TTL of a lease.
pub const TTL: CloneSetting = CloneSetting {
    key: "ttl",
    values: "`1s` to `7d`",
    default: "`90s`",
    meaning: "how long a lease lasts without a heartbeat; `--ttl` overrides it",
};

/// What `run` does if the lease is held.
pub const IF_HELD: CloneSetting = CloneSetting {
    key: "ifHeld",
    values: "`skip`, `wait`, `fail`",
    default: "`skip`",
    meaning: "what `git fence run` does if another holds the lease; `--if-held` and `--wait` override it",
};

/// Where leases are kept.
pub const STORE: CloneSetting = CloneSetting {
    key: "store",
    values: "a URL, `remote`",
    default: "`remote`",
    meaning: "where the leases are kept: in the remote itself, or in a store; `--store` and `GIT_FENCE_STORE` override it",
};

/// The name of the repository in a store.
pub const RESOURCE: CloneSetting = CloneSetting {
    key: "resource",
    values: "a name",
    default: "host and path of the remote",
    meaning: "the name of the repository in the store; the same for everybody who pushes to it",
};

/// What to run when a run has lost its lease.
pub const ON_LOST: CloneSetting = CloneSetting {
    key: "onLost",
    values: "a shell command",
    default: "none",
    meaning: "what `git fence run` runs when the lease was lost or the fence halted; `--on-lost` overrides it",
};

/// What to run when a run was skipped.
pub const ON_SKIP: CloneSetting = CloneSetting {
    key: "onSkip",
    values: "a shell command",
    default: "none",
    meaning: "what `git fence run` runs when nothing ran, because the lease is held or the fence halted; `--on-skip` overrides it",
};

/// All of them.
pub const CLONE_SETTINGS: &[CloneSetting] = &[OWNER, TTL, IF_HELD, ON_LOST, ON_SKIP, STORE, RESOURCE];

impl CloneSetting {
    /// The full name.
    pub fn name(&self) -> String {
        format!("fence.{}", self.key)
    }
}
