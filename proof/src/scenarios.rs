//! The scenarios that together cover the protocol: which pushes there are, and what may go wrong.

use crate::numbers::{DEV, MAIN, Ref, SITE};

/// The new value of a ref in a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// An object of its own.
    Own,
    /// None: the ref is deleted.
    Nothing,
    /// Its initial value.
    Start,
}

/// The old value that a push claims for a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The value that it has read.
    Truth,
    /// That the ref does not exist.
    Nothing,
    /// An object that does not exist.
    Nonsense,
}

/// One ref of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelUpdate {
    /// The ref.
    pub on: Ref,
    /// Its new value.
    pub to: To,
    /// Its old value, as the pusher claims.
    pub claimed: Claimed,
}

/// The purpose of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It carries an own token, or none.
    Plain,
    /// It acquires the lease.
    Acquire,
    /// It writes under the lease, which advances to the next token.
    Fenced,
    /// It renews the lease.
    Beat,
    /// It releases the lease.
    Release,
    /// After a lost answer: it finds out whether that push landed.
    Settle,
}

/// A push before it connects.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its client. The pushes of a client are sequential.
    pub client: usize,
    /// Its purpose.
    pub kind: Kind,
    /// The branches that it moves.
    pub commands: Vec<ModelUpdate>,
    /// Its tokens for `repo` and `deploy`.
    pub tokens: [Option<u8>; 2],
    /// Whether git moves all of its refs or none.
    pub atomic: bool,
    /// Whether it needs no token.
    pub exempt: bool,
    /// Whether it claims the current values of the lease refs, instead of those it expects (`+`, `--force`).
    pub forced: bool,
}

impl Script {
    /// Whether it is a heartbeat.
    pub fn is_beat(&self) -> bool {
        self.kind == Kind::Beat
    }
}

/// Pushes, and what may go wrong meanwhile.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The pushes.
    pub pushes: Vec<Script>,
    /// Whether the gate is the one that everyone writes first.
    pub naive: bool,
    /// How often something is killed, or the machine is restarted.
    pub crashes: u8,
    /// How many refs git declines to update.
    pub declines: u8,
    /// How many answers are lost, besides those of killed processes.
    pub lost: u8,
    /// How often all leases expire.
    pub ticks: u8,
    /// Whether the companion records what git has updated.
    pub companion: bool,
    /// How often a local writer resets a ref.
    pub resets: u8,
    /// Whether a restart can lose ref updates.
    pub volatile: bool,
    /// Whether hooks give up waiting.
    pub gives_up: bool,
    /// The initial mark of `repo`.
    pub raised: u8,
    /// What must be reachable, or the promises would hold vacuously.
    pub sometimes: Vec<&'static str>,
}

fn plain(client: usize, token: u8, on: &[Ref]) -> Script {
    let own = |on: &Ref| ModelUpdate { on: *on, to: To::Own, claimed: Claimed::Truth };
    let touches = |fence| on.iter().any(|on| crate::numbers::fence_of(*on) == fence).then_some(token);
    Script {
        client,
        kind: Kind::Plain,
        commands: on.iter().map(own).collect(),
        tokens: [touches(0), touches(1)],
        atomic: false,
        exempt: false,
        forced: false,
    }
}

fn atomic(script: Script) -> Script {
    Script { atomic: true, ..script }
}

/// Sets the new and the claimed value of its last ref.
fn claiming(to: To, claimed: Claimed, mut script: Script) -> Script {
    if let Some(last) = script.commands.last_mut() {
        *last = ModelUpdate { to, claimed, ..*last };
    }
    script
}

fn lease(client: usize, kind: Kind, on: &[Ref]) -> Script {
    Script { kind, tokens: [None; 2], ..atomic(plain(client, 1, on)) }
}

fn scenario(name: &'static str, about: &'static str, pushes: Vec<Script>, sometimes: &[&'static str]) -> Scenario {
    Scenario {
        name,
        about,
        pushes,
        naive: false,
        crashes: 2,
        declines: 1,
        lost: 0,
        ticks: 0,
        companion: true,
        resets: 0,
        volatile: false,
        gives_up: false,
        raised: 0,
        sometimes: sometimes.to_vec(),
    }
}

/// All scenarios.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            gives_up: true,
            declines: 2,
            ..scenario(
                "tokens",
                "three tokens, one of them huge, on two refs of one fence and one of another",
                vec![plain(0, 5, &[MAIN]), plain(1, 6, &[DEV, SITE]), plain(2, 99, &[MAIN])],
                &["waits", "stale", "declined and free", "rebooted", "refs say over", "all landed"],
            )
        },
        scenario(
            "two fences",
            "one atomic push to two fences, and other pushes to each of them, one with the same token",
            vec![atomic(plain(0, 5, &[MAIN, SITE])), plain(1, 5, &[DEV]), plain(2, 6, &[DEV]), plain(3, 4, &[SITE])],
            &["waits", "stale", "declined and free", "rebooted", "refs say over", "torn"],
        ),
        Scenario {
            declines: 2,
            ..scenario(
                "false claims",
                "pushes with false old values: for a ref that already has its new value, a deletion, and a creation",
                vec![
                    claiming(To::Start, Claimed::Nothing, plain(0, 5, &[SITE, MAIN])),
                    claiming(To::Nothing, Claimed::Nonsense, plain(1, 6, &[MAIN])),
                    claiming(To::Own, Claimed::Nothing, plain(2, 7, &[DEV, SITE])),
                ],
                &["waits", "stale", "declined and free", "rebooted"],
            )
        },
        scenario(
            "without a token",
            "an exempt push without a token and one that is not exempt, among pushes with tokens",
            vec![
                plain(0, 5, &[MAIN, SITE]),
                Script { tokens: [None; 2], exempt: true, ..plain(1, 1, &[MAIN, DEV]) },
                plain(2, 6, &[DEV]),
                Script { tokens: [None; 2], ..plain(3, 1, &[SITE]) },
            ],
            &["waits", "stale", "declined and free", "rebooted", "refs say over"],
        ),
        reset(),
        Scenario {
            volatile: true,
            ..scenario(
                "power",
                "a power loss loses lines that were not synced, and ref updates",
                vec![plain(0, 5, &[MAIN]), plain(1, 6, &[DEV, SITE]), plain(2, 7, &[MAIN])],
                &["waits", "stale", "rebooted", "moves lost"],
            )
        },
        Scenario {
            ticks: 2,
            declines: 0,
            ..scenario(
                "zombie",
                "a holder that is paused until its lease has expired, and its successor",
                vec![
                    lease(0, Kind::Acquire, &[]),
                    lease(0, Kind::Fenced, &[MAIN]),
                    lease(1, Kind::Acquire, &[]),
                    Script { tokens: [None, Some(3)], ..lease(1, Kind::Fenced, &[DEV, SITE]) },
                ],
                &["waits", "takeover", "stale", "rebooted", "torn", "lease found"],
            )
        },
        Scenario {
            ticks: 1,
            declines: 0,
            ..scenario(
                "zombie by force",
                "the same with a zombie that disables git's own check",
                vec![
                    lease(0, Kind::Acquire, &[]),
                    Script { forced: true, ..lease(0, Kind::Release, &[]) },
                    Script { forced: true, ..lease(0, Kind::Fenced, &[MAIN]) },
                    lease(1, Kind::Acquire, &[]),
                    Script { tokens: [None, Some(3)], ..lease(1, Kind::Fenced, &[DEV, SITE]) },
                ],
                &["waits", "takeover", "lease lost", "rebooted"],
            )
        },
        Scenario {
            ticks: 1,
            declines: 0,
            volatile: true,
            ..scenario(
                "power and leases",
                "a power loss reverts a lease",
                vec![
                    lease(0, Kind::Acquire, &[]),
                    lease(0, Kind::Fenced, &[MAIN]),
                    lease(1, Kind::Acquire, &[]),
                    plain(2, 9, &[SITE]),
                ],
                &["takeover", "rebooted", "moves lost", "lease found"],
            )
        },
        Scenario {
            ticks: 2,
            declines: 0,
            ..scenario(
                "heartbeat",
                "heartbeats during a takeover",
                vec![
                    lease(0, Kind::Acquire, &[]),
                    lease(0, Kind::Beat, &[]),
                    lease(1, Kind::Acquire, &[]),
                    lease(0, Kind::Release, &[]),
                ],
                &["takeover", "lease lost", "renewed", "released", "rebooted"],
            )
        },
        Scenario {
            ticks: 1,
            declines: 0,
            lost: 1,
            ..scenario(
                "lost answer",
                "a holder whose answer is lost, and that finds out whether its push landed",
                vec![
                    lease(0, Kind::Acquire, &[]),
                    Script { tokens: [None, Some(3)], ..lease(0, Kind::Fenced, &[MAIN, SITE]) },
                    lease(0, Kind::Settle, &[]),
                    lease(1, Kind::Acquire, &[]),
                ],
                &["landed after all", "never landed", "takeover"],
            )
        },
        Scenario {
            ticks: 1,
            raised: 4,
            ..scenario(
                "one kind of tokens",
                "own tokens and a lease on one fence: what lands first decides",
                vec![
                    plain(0, 5, &[MAIN, SITE]),
                    lease(1, Kind::Acquire, &[]),
                    lease(1, Kind::Fenced, &[DEV]),
                    plain(2, 7, &[MAIN]),
                ],
                &["waits", "second try", "rebooted", "other kind refused"],
            )
        },
    ]
}

fn reset() -> Scenario {
    Scenario {
        resets: 2,
        ..scenario(
            "reset",
            "a local writer resets refs between pushes, and while a push moves its next ref",
            vec![plain(0, 7, &[MAIN, DEV]), plain(1, 6, &[SITE, DEV]), plain(2, 7, &[MAIN])],
            &["waits", "stale", "reported", "landed so far", "reset"],
        )
    }
}

/// The same without the companion: only the next push finds out what a push has moved.
pub fn without_companion() -> Scenario {
    Scenario { companion: false, crashes: 0, sometimes: Vec::new(), ..reset() }
}

/// The scenario that shows the faults of the gate that everyone writes first.
pub fn naive() -> Scenario {
    Scenario {
        naive: true,
        crashes: 0,
        ..scenario(
            "naive",
            "the gate as everyone writes it first",
            vec![plain(0, 5, &[MAIN]), plain(1, 6, &[DEV]), plain(2, 7, &[SITE])],
            &[],
        )
    }
}
