//! Time namespaces: on one machine, within one boot, the boot-time clock shows different times.

use crate::support::{
    World, any_git,
    lease::{Agent, LeaseOf},
    needs::{Need, lacks},
    sh, wait_until,
};

/// Runs the hook in a namespace in which the machine has been up for a day longer.
fn hook_in_a_later_namespace(world: &World) {
    let enter = ["--time", "--boottime", "86400", "--fork"];
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    world.write_hook("pre-receive", &format!("exec unshare {} {gate} pre-receive", enter.join(" ")));
}

#[test]
fn time_namespace_with_a_clock_ahead_takes_over_no_live_lease() {
    if lacks(&[Need::TimeNamespace]) {
        return;
    }
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    hook_in_a_later_namespace(&world);
    lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
}

#[test]
fn time_namespace_does_not_change_the_age_of_a_push_that_cannot_be_seen() {
    if lacks(&[Need::TimeNamespace]) {
        return;
    }
    let world = World::new(&any_git());
    world.configure("fence.receivePack", "none");
    world.configure("fence.wait", "10m");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let slow = world.start_push("slow", "5");
    world.pid_in("stalled");
    hook_in_a_later_namespace(&world);
    let mut six = world.start_push("main", "6");
    wait_until("it waits, or has ended", || six.has_said("waiting") || six.has_ended());
    assert!(!six.has_ended(), "it did not wait");
    world.go();
    slow.wait().assert_landed();
    six.wait().assert_landed();
    world.assert_log_is_whole();
}
