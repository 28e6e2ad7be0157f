//! The promises hold in every state that can be reached, and the models see it where they do not.

use git_fence_proof::{
    PushStyle,
    hookless::{COUNTER, NOT_BOTH, ONE_HOLDER},
    promises::{NO_WINDOW, SPENT},
    report::{run, run_hookless},
    scenarios,
};
use stateright::HasDiscoveries;

/// With two crashes where that is quick. `git-fence-proof model` runs all of them so.
fn holds(name: &str, crashes: u8) {
    let mut scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("a scenario");
    scenario.crashes = scenario.crashes.min(crashes);
    let found = run(scenario, 1);
    let ways: String = found.broken.iter().map(|(promise, way)| format!("broken: {promise}\n{way}")).collect();
    assert!(ways.is_empty(), "{ways}");
    assert!(found.unseen.is_empty(), "never seen: {:?}", found.unseen);
}

#[test]
fn tokens_of_two_fences_are_spent_in_order() {
    holds("tokens", 2);
    holds("two fences", 1);
}

#[test]
fn a_ref_that_is_put_back_brings_no_token_back() {
    holds("put back", 1);
}

#[test]
fn without_its_companion_the_gate_is_found_out() {
    let broken: Vec<&str> =
        run(scenarios::without_companion(), 1).broken.into_iter().map(|(promise, _)| promise).collect();
    assert_eq!(broken, [NO_WINDOW, SPENT]);
}

#[test]
fn lies_move_no_mark() {
    holds("lies", 2);
}

#[test]
fn a_power_loss_leaves_what_the_refs_show() {
    holds("power", 2);
    holds("power and leases", 1);
}

#[test]
fn pushes_without_a_token_disturb_nobody() {
    holds("without a token", 1);
}

#[test]
fn a_zombie_writes_nothing() {
    holds("zombie", 1);
    holds("zombie by force", 1);
}

#[test]
fn heartbeats_and_takeovers_may_cross() {
    holds("heartbeat", 1);
}

#[test]
fn a_lost_answer_is_settled_and_not_guessed() {
    holds("lost answer", 1);
}

#[test]
fn what_lands_first_decides_and_a_lease_begins_above_the_mark() {
    holds("one kind of tokens", 1);
}

#[test]
fn the_gate_as_everyone_writes_it_first_is_found_out() {
    let broken: Vec<&str> = run(scenarios::naive(), 1).broken.into_iter().map(|(promise, _)| promise).collect();
    assert_eq!(broken, [NO_WINDOW, SPENT]);
}

#[test]
fn without_a_hook_whatever_is_left_out_is_found_out() {
    let whole = run_hookless(PushStyle::WHOLE, HasDiscoveries::All);
    assert!(whole.is_good(), "{whole:?}");
    for (what, how) in PushStyle::HOLES {
        let broken = run_hookless(how, HasDiscoveries::AnyFailures).broken;
        let is_found = broken.iter().any(|(promise, _)| [ONE_HOLDER, NOT_BOTH, COUNTER].contains(promise));
        assert!(is_found, "{what}: {broken:?}");
    }
}
