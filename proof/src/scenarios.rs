//! Who comes with what: the scenarios that together cover the protocol.

use crate::numbers::{DEV, MAIN, Ref, SITE};

/// What a push wants a ref to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Something of its own.
    Own,
    /// Nothing: it is deleted.
    Nothing,
    /// What it was at in the beginning.
    Start,
}

/// What a push says that a ref is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// What it has read.
    Truth,
    /// That there is none.
    Nothing,
    /// An object that nobody has.
    Nonsense,
}

/// One ref of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelUpdate {
    /// Which.
    pub on: Ref,
    /// What it is to show.
    pub to: To,
    /// What the pusher says it is at.
    pub said: Claimed,
}

/// What a push is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It carries a token of its own, or none.
    Plain,
    /// It takes the lease.
    Acquire,
    /// It writes under the lease, which goes on to the next token.
    Fenced,
    /// It says that the holder is alive.
    Beat,
    /// It gives the lease back.
    Release,
    /// After a lost answer: it finds out whether that push landed.
    Settle,
}

/// A push before it comes.
#[derive(Debug, Clone)]
pub struct Script {
    /// Whose. Pushes of one client come one after the other.
    pub client: usize,
    /// What it is for.
    pub kind: Kind,
    /// The branches it moves.
    pub commands: Vec<ModelUpdate>,
    /// Its tokens for `repo` and `deploy`.
    pub tokens: [Option<u8>; 2],
    /// Whether git moves all of its refs or none.
    pub atomic: bool,
    /// Whether it may come without a token.
    pub exempt: bool,
    /// Whether it says of the lease's refs what they are at, and not what it expects (`+`, `--force`).
    pub forced: bool,
}

impl Script {
    /// Whether it is a lone heartbeat.
    pub fn is_beat(&self) -> bool {
        self.kind == Kind::Beat
    }
}

/// Who comes with what, and what may go wrong meanwhile.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The pushes.
    pub pushes: Vec<Script>,
    /// Whether the gate is the one that everyone writes first.
    pub naive: bool,
    /// How often something is killed, or the machine restarted.
    pub crashes: u8,
    /// How many refs git declines to update.
    pub declines: u8,
    /// How many answers are lost, beyond those of the killed.
    pub lost: u8,
    /// How often all leases expire.
    pub ticks: u8,
    /// Whether the companion writes down what git has updated, as soon as git says so.
    pub companion: bool,
    /// How often a local writer puts a ref back.
    pub undone: u8,
    /// Whether a restart can take back what refs had moved to.
    pub volatile: bool,
    /// Whether hooks give up waiting.
    pub gives_up: bool,
    /// What the mark of `repo` was raised to before.
    pub raised: u8,
    /// What must be seen to happen, or nothing was proven.
    pub sometimes: Vec<&'static str>,
}

fn plain(client: usize, token: u8, on: &[Ref]) -> Script {
    let own = |on: &Ref| ModelUpdate { on: *on, to: To::Own, said: Claimed::Truth };
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

/// With this to say of its last ref.
fn saying(to: To, said: Claimed, mut script: Script) -> Script {
    if let Some(last) = script.commands.last_mut() {
        *last = ModelUpdate { to, said, ..*last };
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
        undone: 0,
        volatile: false,
        gives_up: false,
        raised: 0,
        sometimes: sometimes.to_vec(),
    }
}

/// All of them.
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
            "one push over two fences, atomic, among others to each of them, one with the same token",
            vec![atomic(plain(0, 5, &[MAIN, SITE])), plain(1, 5, &[DEV]), plain(2, 6, &[DEV]), plain(3, 4, &[SITE])],
            &["waits", "stale", "declined and free", "rebooted", "refs say over", "torn"],
        ),
        Scenario {
            declines: 2,
            ..scenario(
                "lies",
                "a push that lies about a ref it would have at its value from the start, a deletion, and a creation",
                vec![
                    saying(To::Start, Claimed::Nothing, plain(0, 5, &[SITE, MAIN])),
                    saying(To::Nothing, Claimed::Nonsense, plain(1, 6, &[MAIN])),
                    saying(To::Own, Claimed::Nothing, plain(2, 7, &[DEV, SITE])),
                ],
                &["waits", "stale", "declined and free", "rebooted"],
            )
        },
        scenario(
            "without a token",
            "a pusher who may come without a token, and one who may not, between two who have one",
            vec![
                plain(0, 5, &[MAIN, SITE]),
                Script { tokens: [None; 2], exempt: true, ..plain(1, 1, &[MAIN, DEV]) },
                plain(2, 6, &[DEV]),
                Script { tokens: [None; 2], ..plain(3, 1, &[SITE]) },
            ],
            &["waits", "stale", "declined and free", "rebooted", "refs say over"],
        ),
        put_back(),
        Scenario {
            volatile: true,
            ..scenario(
                "power",
                "a power loss takes lines that were not synced, and values of refs",
                vec![plain(0, 5, &[MAIN]), plain(1, 6, &[DEV, SITE]), plain(2, 7, &[MAIN])],
                &["waits", "stale", "rebooted", "moves lost"],
            )
        },
        Scenario {
            ticks: 2,
            declines: 0,
            ..scenario(
                "zombie",
                "a holder that sleeps through the end of its lease, and the one who takes it over",
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
                "the same with a zombie that switches git's own check off",
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
                "a power loss sets a lease back",
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
                "heartbeats cross a takeover",
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
                "a holder that does not hear what became of its push, and finds out",
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
                "tokens from elsewhere and a lease come to one fence, and what lands first decides",
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

fn put_back() -> Scenario {
    Scenario {
        undone: 2,
        ..scenario(
            "put back",
            "a local writer puts refs back between pushes, and while a push is at its next ref",
            vec![plain(0, 7, &[MAIN, DEV]), plain(1, 6, &[SITE, DEV]), plain(2, 7, &[MAIN])],
            &["waits", "stale", "reported", "landed so far", "put back"],
        )
    }
}

/// The same with the companion taken out: what a push has moved is found out by the next one.
pub fn without_companion() -> Scenario {
    Scenario { companion: false, crashes: 0, sometimes: Vec::new(), ..put_back() }
}

/// The scenario in which the gate that everyone writes first shows what it lacks.
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
