//! The jobs that a lease carries on, whoever moves it.

use super::{INTERVAL, long_ago, on_record, outcome_at, run_at, tick};
use crate::support::{
    World,
    agents::{Remote, code_of},
    any_git,
    lease::{Agent as ByHand, LeaseOf},
};

#[test]
fn jobs_survive_everything_that_happens_to_the_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        let first = long_ago();
        assert_eq!(outcome_at(&a, first, &[], "git push -q origin HEAD:refs/heads/a"), "ran");
        let before = on_record(&a);
        let is_the_same = |what: &str| assert_eq!(on_record(&a), before, "after {what}");
        a.ok(&["acquire"]);
        a.ok(&["advance"]);
        is_the_same("an advance");
        a.ok(&["release"]);
        is_the_same("a release");
        a.ok(&["push", "origin", "HEAD:refs/heads/b"]);
        is_the_same("a push");
        world.ok(&mut a.run(&[], "git push -q origin HEAD:refs/heads/c"));
        is_the_same("a run without a schedule");
        a.ok(&["acquire", "--ttl", "1h"]);
        match remote {
            Remote::Bare => drop(world.agent("b").ok(&["revoke", "--reason", "it hangs"])),
            Remote::Gate => {
                drop(world.ok(world.hook_program().args(["revoke", "--reason", "it hangs"]).arg(world.server())));
            }
        }
        is_the_same("a revocation");
        assert_eq!(outcome_at(&a, first + 60, &[], "exit 3"), "already-done");
    }
}

#[test]
fn two_schedules_of_one_job_are_refused_with_both_named() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    let first = long_ago();
    assert_eq!(outcome_at(&a, first, &[], "true"), "ran");
    let mut other = a.run(&["--cron", "30 3 * * *", "--job", "nightly"], "exit 3");
    let (code, said) = code_of(&other.output().unwrap());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("with the schedule 'every 600s', and this run asks for 'cron UTC 30 3 * * *'"), "{said}");
    a.ok(&["ticks", "reschedule", "nightly", "--cron", "30  3 * * mon", "--reason", "once a week is enough"]);
    let record = on_record(&a);
    assert_eq!((&record["schedule"], &record["tick"]), (&"cron UTC 30 3 * * MON".into(), &tick(first).into()));
    let (code, said) = a.code(&["ticks", "reschedule", "nihgtly", "--every", "1h"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("no job 'nihgtly' is on record") && said.contains("'nightly'"), "{said}");
    let prose = a.ok(&["ticks"]);
    assert!(prose.starts_with("nightly  cron UTC 30 3 * * MON\n  last   "), "{prose}");
    a.ok(&["ticks", "forget", "nightly"]);
    assert_eq!(a.ok(&["ticks"]).trim(), "fence 'repo' has no scheduled jobs");
}

#[test]
fn job_that_runs_is_neither_forgotten_nor_rescheduled() {
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    let first = long_ago();
    let script = format!("cd {} && git fence ticks forget nightly; echo $? >../code", b.path(".").display());
    let mut run = run_at(&a, first, &[], &script);
    world.ok(&mut run);
    assert_eq!(std::fs::read_to_string(world.path("code")).unwrap().trim(), "11");
    assert_eq!(on_record(&a)["state"], "done");
}

/// An older version does not know of jobs, and would drop them.
#[test]
fn gate_refuses_a_lease_that_drops_a_job() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    assert_eq!(outcome_at(&a, long_ago() + INTERVAL, &[], "true"), "ran");
    let (old, lease) = (ByHand::new("old"), LeaseOf::repo(&world));
    world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/repo/lease"));
    let refused = lease.take(&old, world.lease_token() + 1, "released");
    refused.assert_refused("FENCE-LEASE-INVALID");
    assert!(refused.text.contains("the record changes the job 'nightly'"), "{}", refused.text);
}
