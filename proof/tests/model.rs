//! The promises hold in every reachable state, and the models detect it if they do not.

use git_fence_proof::{
    PushStyle,
    hookless::{COUNTER, NOT_BOTH, ONE_HOLDER},
    promises::{NO_WINDOW, SPENT},
    report::{run, run_hookless},
    scenarios,
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
