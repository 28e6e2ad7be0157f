//! Every engine keeps the contract: one record under a name, and a compare-and-swap.

use crate::{
    engines::{Engine, Kind},
    helper::{Helper, WITHIN_MS},
};
use git_fence_core::{StoreFaultKind, StoreRecord, StoreReply, StoreRequest};
use std::{collections::BTreeSet, thread};

#[test]
fn every_engine_passes_its_own_trial() {
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        let StoreReply::Checked(check) = Helper::at(&engine.url).ask(&StoreRequest::Check { within_ms: WITHIN_MS })
        else {
            panic!("{kind:?} cannot be tried");
        };
        assert!(check.is_good(), "{kind:?}: {check:?}");
        assert_eq!(check.steps.len(), 8, "{kind:?}: {check:?}");
        let [clock] = &check.clocks[..] else { panic!("{kind:?}: {check:?}") };
        let is_near = clock.ahead_ms.is_some_and(|ms| ms.abs() < 600_000);
        // The clock of the small server has stopped, and that is seen.
        assert_eq!(is_near, kind != Kind::Http, "{kind:?}: {clock:?}");
    }
}

#[test]
fn record_is_replaced_only_if_it_is_as_expected() {
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        let name = "git.example.org/team/app/repo";
        let mut one = Helper::at(&engine.url);
        let mut other = Helper::at(&engine.url);
        assert_eq!(one.record(name), None);
        let first = one.win(name, None, "{\"n\":1,\"text\":\"ü '\\\" \\n %\"}");
        assert_eq!(other.record(name), Some(first.clone()), "{kind:?}");
        let late = other.swap(name, None, "other");
        assert!(matches!(&late, StoreReply::Lost(now) if now.record.as_ref() == Some(&first)), "{kind:?}: {late:?}");
        let second = one.win(name, Some(&first), "two");
        let stale = other.swap(name, Some(&first), "three");
        assert!(matches!(&stale, StoreReply::Lost(now) if now.record.as_ref() == Some(&second)), "{kind:?}: {stale:?}");
        assert_eq!(one.record(name), Some(second), "{kind:?}");
        assert_eq!(one.record("git.example.org/team/app"), None, "{kind:?}: another name");
    }
}

/// After a restored backup an engine may use a version again: the body must be compared, too. Services over HTTP answer for
/// their tags themselves.
#[test]
fn version_that_was_used_again_does_not_pass_for_the_same_record() {
    for kind in [Kind::Etcd, Kind::Postgres, Kind::Redis] {
        let Some(engine) = kind.start() else { continue };
        let mut helper = Helper::at(&engine.url);
        let theirs = helper.win("n", None, "theirs");
        let ours = StoreRecord { body: "ours, lost in the failover".to_owned(), ..theirs.clone() };
        let answer = helper.swap("n", Some(&ours), "next");
        assert!(
            matches!(&answer, StoreReply::Lost(now) if now.record.as_ref() == Some(&theirs)),
            "{kind:?}: {answer:?}"
        );
    }
}

/// What came of counting.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// What is there at the end.
    count: usize,
    /// The swaps that were told as won: from which body to which.
    won: Vec<(String, String)>,
    /// Of how many it was not known.
    unknown: usize,
    tries: usize,
}

impl Counted {
    /// Every swap that was told as won is there, none twice, and nothing that was told as lost.
    #[track_caller]
    pub(crate) fn assert_truth(&self) {
        let won = self.won.len();
        assert!((won..=won + self.unknown).contains(&self.count), "{self:?}");
        assert_eq!(self.forks(), 0, "{self:?}");
    }

    /// After one failover that lost records there are two successors of one body: what was lost, and what is there.
    #[track_caller]
    pub(crate) fn assert_one_fork_at_most(&self) {
        assert!(self.forks() <= 1, "{self:?}");
        assert!(self.count <= self.won.len() + self.unknown, "{self:?}");
    }

    /// How many more swaps were won than there were bodies to win from.
    fn forks(&self) -> usize {
        let bodies: BTreeSet<&String> = self.won.iter().map(|(from, _)| from).collect();
        self.won.len() - bodies.len()
    }
}

/// Counts up with compare-and-swap from several clients, each with its own connection.
pub(crate) fn count_up(url: &str, clients: usize, each: usize) -> Counted {
    let told: Vec<Counted> = thread::scope(|scope| {
        let client = |client: usize| {
            scope.spawn(move || {
                let (mut helper, mut told) = (Helper::at(url), Counted::default());
                while told.won.len() < each {
                    add_one(&mut helper, client, &mut told);
                }
                told
            })
        };
        let all: Vec<_> = (0..clients).map(client).collect();
        all.into_iter().map(|client| client.join().unwrap()).collect()
    });
    Counted {
        count: count(Helper::at(url).record("counter").as_ref()),
        unknown: told.iter().map(|told| told.unknown).sum(),
        tries: told.iter().map(|told| told.tries).sum(),
        won: told.into_iter().flat_map(|told| told.won).collect(),
    }
}

/// One try. The body is the count, and who made it in which try: none is written twice.
fn add_one(helper: &mut Helper, client: usize, told: &mut Counted) {
    told.tries += 1;
    assert!(told.tries < 2000, "{told:?}");
    let now = match helper.read("counter") {
        Ok(reading) => reading.record,
        Err(fault) => return assert_eq!(fault.kind, StoreFaultKind::Unreachable, "{fault}"),
    };
    let next = format!("{} {client}.{}", count(now.as_ref()) + 1, told.tries);
    match helper.swap("counter", now.as_ref(), &next) {
        StoreReply::Won { .. } => told.won.push((now.map_or_else(String::new, |now| now.body), next)),
        StoreReply::Lost(now) => assert!(now.record.is_none_or(|now| now.body != next), "{told:?}"),
        StoreReply::Unknown { .. } => told.unknown += 1,
        // It says that nothing was replaced: then the count must not have grown.
        StoreReply::Failed(fault) if fault.kind == StoreFaultKind::Unreachable => {}
        other => panic!("told neither won nor lost: {other:?}"),
    }
}

fn count(record: Option<&StoreRecord>) -> usize {
    record.map_or(0, |record| record.body.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn nothing_is_lost_or_done_twice_among_many_clients() {
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        let counted = count_up(&engine.url, 6, 10);
        assert_eq!((counted.count, counted.won.len(), counted.unknown), (60, 60, 0), "{kind:?}");
    }
}

#[test]
fn postgres_makes_its_tables_once_and_keeps_a_history() {
    let Some(engine) = Kind::Postgres.start() else { return };
    let mut helper = Helper::at(&engine.url);
    assert_eq!(helper.init(), StoreReply::Made { what: Vec::new() }, "they are there");
    let first = helper.win("n", None, "one");
    let name = "n".to_owned();
    let (expected, next) = (Some(first), "a heartbeat".to_owned());
    let won = helper.ask(&StoreRequest::Swap { name, expected, next, keep: false, within_ms: WITHIN_MS });
    assert!(matches!(won, StoreReply::Won { .. }), "{won:?}");
    let history = history(&engine);
    assert_eq!(history, "one\n");
}

fn history(engine: &Engine) -> String {
    engine.psql("SELECT body FROM git_fence_history ORDER BY version")
}
