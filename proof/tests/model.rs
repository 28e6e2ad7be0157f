//! The promises hold in every reachable state, and the models detect it if they do not.

use git_fence_proof::{
    PushStyle,
    hookless::{COUNTER, NOT_BOTH, ONE_HOLDER},
    promises::{NO_WINDOW, SPENT},
    report::{run, run_hookless, run_stored},
    scenarios,
    stored::{
        ABOVE_THE_MARK, DONE_IS_DONE, GateRules, LOST_IS_LOST, NO_LIE, NO_REVIVAL, ONE_PER_NUMBER, STORE_BELIEF,
        StoreRules, StoredScenario, TOKEN_ORDER, asking_scenarios, smallest, stored_scenarios,
    },
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
    for (name, lost) in [("takeover", 1), ("revoked", 0), ("memory", 2)] {
        let scenario = losing(lost, stored_scenarios(), name);
        assert_eq!(broken_in(scenario, StoreRules::DESIGNED), [], "{name}");
    }
}

#[test]
fn barrier_at_each_grant_is_needed_if_a_store_rolls_back_twice() {
    let scenario = losing(0, stored_scenarios(), "released");
    assert_eq!(broken_in(scenario.clone(), StoreRules::DESIGNED), [(NO_REVIVAL, 18)]);
    assert_eq!(broken_in(scenario.clone(), StoreRules::EACH_GRANT), []);
    assert_eq!(broken_in(scenario, StoreRules::NAMED), []);
}

#[test]
fn model_detects_each_omission_of_a_client_with_a_store() {
    let found = [
        vec![
            (TOKEN_ORDER, 12),
            (LOST_IS_LOST, 15),
            (DONE_IS_DONE, 11),
            (ONE_PER_NUMBER, 13),
            (STORE_BELIEF, 9),
            (NO_REVIVAL, 15),
        ],
        vec![(DONE_IS_DONE, 16)],
        vec![(DONE_IS_DONE, 9)],
        vec![(DONE_IS_DONE, 14)],
        vec![(ABOVE_THE_MARK, 10)],
        vec![(STORE_BELIEF, 8)],
    ];
    for ((what, hole), broken) in StoreRules::HOLES.into_iter().zip(found) {
        assert_eq!(broken_in(smallest(false), hole), broken, "{what}");
    }
}

#[test]
fn gate_that_asks_the_store_keeps_the_promises_and_no_liar_writes() {
    for name in ["takeover", "memory"] {
        let scenario = losing(0, asking_scenarios(), name);
        assert_eq!(broken_in(scenario, StoreRules::DESIGNED.with(GateRules::WHOLE)), [], "{name}");
    }
    let scenario = losing(0, asking_scenarios(), "released");
    assert_eq!(broken_in(scenario.clone(), StoreRules::DESIGNED.with(GateRules::WHOLE)), [(NO_REVIVAL, 22)]);
    assert_eq!(broken_in(scenario, StoreRules::EACH_GRANT.with(GateRules::WHOLE)), []);
}

#[test]
fn model_detects_each_omission_of_a_gate_that_asks_the_store() {
    let found = [(NO_LIE, 3), (NO_LIE, 7), (NO_LIE, 14), (DONE_IS_DONE, 26), (DONE_IS_DONE, 11)];
    for ((what, hole), broken) in GateRules::HOLES.into_iter().zip(found) {
        let found = run_stored(smallest(true), hole, 1, HasDiscoveries::AnyFailures).broken;
        let found: Vec<_> = found.into_iter().map(|(promise, way)| (promise, way.lines().count())).collect();
        assert_eq!(found, [broken], "{what}");
    }
}
