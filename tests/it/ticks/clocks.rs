//! Clocks that differ, from each other and from the gate's.

use super::{INTERVAL, long_ago, noting, now, on_record, outcome_at, run_at, starts, tick};
use crate::support::{
    World,
    agents::{Remote, code_of},
    any_git,
};

#[test]
fn tick_in_the_future_of_the_record_is_reported_and_nothing_is_lost() {
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    let first = long_ago();
    // An hour ahead.
    assert_eq!(outcome_at(&a, first + 6 * INTERVAL, &[], "true"), "ran");
    let before = world.server_ref("refs/fence/repo/lease");
    let (code, said) = code_of(&run_at(&b, first, &[], "exit 3").output().unwrap());
    assert_eq!(code, 1, "{said}");
    let ahead = tick(first + 6 * INTERVAL);
    assert!(said.contains(&format!("'nightly' on record is {ahead}, which is in the future")), "{said}");
    assert!(said.contains("git fence ticks forget JOB"), "{said}");
    assert_eq!(world.server_ref("refs/fence/repo/lease"), before);
    b.ok(&["ticks", "forget", "nightly", "--reason", "the clock of a was an hour ahead"]);
    assert_eq!(outcome_at(&b, first, &[], "true"), "ran");
}

/// The gate's clock is right: the machine is an hour ahead, and gets the tick that is due.
#[test]
fn gate_refuses_a_tick_of_its_future_and_tells_its_clock() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    let noting = noting(&world);
    assert_eq!(outcome_at(&a, now() + 3600, &[], &noting), "ran");
    let [started] = &starts(&world)[..] else { panic!("{:?}", starts(&world)) };
    assert!(started.as_str() <= tick(now()).as_str(), "{started}");
    let refused = world.events("lease.refused");
    assert_eq!(refused.len(), 1);
    assert!(refused[0]["reason"].as_str().unwrap().contains("is in the future"), "{}", refused[0]);
}

/// The machine fires 20 s early by the gate's clock: the tick is not put off until the machine fires again.
#[test]
fn machine_that_is_a_little_ahead_waits_for_the_gate() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    let due = now() + 18;
    // Its first tick after 1970.
    let every = format!("{due}s");
    let mut run = a.run(&["--every", &every, "--job", "nightly"], &noting(&world));
    let (code, said) = code_of(&run.env("GIT_FENCE_CLOCK_OFFSET", "20").output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("of fence 'repo' starts in "), "{said}");
    assert_eq!(starts(&world), [format!("{} 0 a", tick(due))]);
    assert!(now() >= due - 10, "it was started too early");
}

/// The gate has let the tick through, so the machine that is behind knows that its own clock is.
#[test]
fn machine_that_is_behind_the_gate_finds_the_tick_done() {
    let world = Remote::Gate.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    let latest = now() / INTERVAL * INTERVAL;
    assert_eq!(outcome_at(&a, latest + 1, &[], "true"), "ran");
    assert_eq!(outcome_at(&b, latest - 60, &[], "exit 3"), "already-done");
    assert_eq!(on_record(&b)["tick"], tick(latest));
}
