//! The promises hold in every reachable state, and the models detect it if they do not.

use git_fence_proof::{
    PushStyle, TickRules,
    hookless::{COUNTER, NOT_BOTH, ONE_HOLDER},
    promises::{NO_WINDOW, SPENT},
    report::{run, run_hookless, run_stored, run_ticks},
    scenarios,
    stored::{
        ABOVE_THE_MARK, DONE_IS_DONE, FORGOTTEN, GateRules, HALTED, Hole, LOST_FOR_A_REASON, NO_LIE, NO_REVIVAL,
        STORE_BELIEF, StoreRules, StoredScenario, asking_scenarios, holes, needless, stored_scenarios,
        unasking_scenarios,
    },
    ticks::{LOSSES, ONCE},
};
use stateright::HasDiscoveries;

/// With two crashes if that is fast. `git-fence-proof model` runs all scenarios with two.
fn holds(name: &str, crashes: u8) {
    let mut scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("a scenario");
    scenario.crashes = scenario.crashes.min(crashes);
    let found = run(scenario, 1);
    let ways: String = found.broken.iter().map(|(promise, way)| format!("broken: {promise}\n{way}")).collect();
    assert!(ways.is_empty(), "{ways}");
    assert!(found.unseen.is_empty(), "never reached: {:?}", found.unseen);
}

#[test]
fn tokens_of_two_fences_are_spent_in_order() {
    holds("tokens", 2);
    holds("two fences", 1);
}

#[test]
fn ref_that_is_reset_revives_no_token() {
    holds("reset", 1);
}

#[test]
fn model_detects_a_missing_companion() {
    let broken: Vec<&str> =
        run(scenarios::without_companion(), 1).broken.into_iter().map(|(promise, _)| promise).collect();
    assert_eq!(broken, [NO_WINDOW, SPENT]);
}

#[test]
fn false_old_values_move_no_mark() {
    holds("false claims", 2);
}

#[test]
fn power_loss_leaves_what_the_refs_show() {
    holds("power", 2);
    holds("power and leases", 1);
}

#[test]
fn pushes_without_a_token_affect_no_others() {
    holds("without a token", 1);
}

#[test]
fn zombie_writes_nothing() {
    holds("zombie", 1);
    holds("zombie by force", 1);
}

#[test]
fn heartbeat_during_a_takeover_does_no_harm() {
    holds("heartbeat", 1);
}

#[test]
fn lost_answer_is_settled_and_not_guessed() {
    holds("lost answer", 1);
}

#[test]
fn first_kind_that_lands_decides_and_a_lease_starts_above_the_mark() {
    holds("one kind of tokens", 1);
}

#[test]
fn model_detects_the_faults_of_the_naive_gate() {
    let broken: Vec<&str> = run(scenarios::naive(), 1).broken.into_iter().map(|(promise, _)| promise).collect();
    assert_eq!(broken, [NO_WINDOW, SPENT]);
}

#[test]
fn model_detects_each_omission_without_a_hook() {
    let whole = run_hookless(PushStyle::WHOLE, HasDiscoveries::All);
    assert!(whole.is_good(), "{whole:?}");
    for (what, how) in PushStyle::HOLES {
        let broken = run_hookless(how, HasDiscoveries::AnyFailures).broken;
        let is_found = broken.iter().any(|(promise, _)| [ONE_HOLDER, NOT_BOTH, COUNTER].contains(promise));
        assert!(is_found, "{what}: {broken:?}");
    }
}

#[test]
fn each_tick_is_started_once_and_each_omission_is_detected() {
    for (what, rules) in TickRules::KEPT {
        let found = run_ticks(rules, HasDiscoveries::All);
        assert!(found.is_good(), "{what}: {found:?}");
    }
    let expected = [ONCE, ONCE, LOSSES];
    for ((what, rules), promise) in TickRules::HOLES.into_iter().zip(expected) {
        let broken = run_ticks(rules, HasDiscoveries::All).broken;
        assert!(broken.iter().any(|(name, _)| *name == promise), "{what}: {broken:?}");
    }
}

/// The promises that are broken, with the number of steps of the shortest trace. Nothing that should be reachable is not.
fn broken_in(scenario: StoredScenario, rules: StoreRules) -> Vec<(&'static str, usize)> {
    let name = scenario.name;
    let found = run_stored(scenario, rules, 1, HasDiscoveries::All);
    assert!(found.unseen.is_empty(), "{name}: never reached: {:?}", found.unseen);
    found.broken.into_iter().map(|(promise, way)| (promise, way.lines().count())).collect()
}

/// A scenario with at most this many lost replies.
fn losing(lost: u8, all: Vec<StoredScenario>, name: &str) -> StoredScenario {
    let mut scenario = all.into_iter().find(|scenario| scenario.name == name).expect("a scenario");
    scenario.lost = scenario.lost.min(lost);
    scenario
}

#[test]
fn leases_in_a_store_that_forgets_keep_the_promises_without_a_gate() {
    for (name, lost) in [("takeover", 1), ("revoked", 0), ("halted", 0), ("released", 0), ("memory", 2)] {
        let scenario = losing(lost, stored_scenarios(), name);
        assert_eq!(broken_in(scenario, StoreRules::WHOLE), [], "{name}");
    }
}

#[test]
fn gate_that_asks_the_store_keeps_the_promises_and_no_liar_writes() {
    for (name, lost) in [("takeover", 0), ("released", 0), ("memory", 1)] {
        let scenario = losing(lost, asking_scenarios(), name);
        assert_eq!(broken_in(scenario, StoreRules::WHOLE.with(GateRules::ASKING)), [], "{name}");
    }
}

#[test]
fn gate_that_does_not_know_the_store_keeps_the_promises() {
    for (name, lost) in [("takeover", 1), ("revoked", 0), ("halted", 0), ("three runs", 0)] {
        let scenario = losing(lost, unasking_scenarios(), name);
        assert_eq!(broken_in(scenario, StoreRules::WHOLE.with(GateRules::UNASKING)), [], "{name}");
    }
}

#[test]
fn mark_that_is_read_again_at_each_push_revives_an_old_holder() {
    let first = holes().into_iter().find(|hole| hole.rules == StoreRules::FIRST_DESIGN).expect("the first design");
    assert_eq!(broken_in(first.scenario, first.rules), [(NO_REVIVAL, 18), (FORGOTTEN, 17)]);
}

#[test]
fn model_detects_each_omission_where_leases_are_in_a_store() {
    let expected = [
        (FORGOTTEN, 17),
        (STORE_BELIEF, 8),
        (ABOVE_THE_MARK, 9),
        (STORE_BELIEF, 7),
        (LOST_FOR_A_REASON, 12),
        (DONE_IS_DONE, 8),
        (DONE_IS_DONE, 12),
        (FORGOTTEN, 20),
        (DONE_IS_DONE, 16),
        (DONE_IS_DONE, 14),
        (DONE_IS_DONE, 23),
        (DONE_IS_DONE, 35),
        (DONE_IS_DONE, 9),
        (NO_LIE, 3),
        (NO_LIE, 7),
        (NO_LIE, 14),
        (DONE_IS_DONE, 10),
        (DONE_IS_DONE, 8),
        (DONE_IS_DONE, 11),
        (HALTED, 8),
    ];
    let holes = holes();
    assert_eq!(holes.len(), expected.len());
    for (Hole { what, scenario, rules }, broken) in holes.into_iter().zip(expected) {
        let found = run_stored(scenario, rules, 1, HasDiscoveries::AnyFailures).broken;
        let found = found.into_iter().map(|(promise, way)| (promise, way.lines().count()));
        assert_eq!(found.min_by_key(|(_, steps)| *steps), Some(broken), "{what}");
    }
}

#[test]
fn version_of_the_mark_alone_stops_what_fence_first_would_stop() {
    for Hole { what, scenario, rules } in needless() {
        assert_eq!(broken_in(scenario, rules), [], "{what}");
    }
}
