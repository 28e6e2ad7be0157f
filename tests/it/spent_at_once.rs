//! A spent token stays spent: a push is settled at once, from git's own report, and later
//! changes to the refs do not matter.

use crate::support::{
    Running, World, any_git, gits,
    needs::{Need, lacks},
    raw::{self, RawCommand},
    sh, signal, strace, text, wait_until,
};
use std::fs;

/// As merge queues do: the pushed commit is merged, and the branch is deleted.
const TAKES_THE_BRANCH_AWAY: &str = "while read -r old new ref; do git update-ref -d \"$ref\"; done; echo $? >>undone";

fn tokens_that_landed(world: &World) -> Vec<u64> {
    let landed = |line: &serde_json::Value| line["moved"].as_u64() != Some(0);
    world
        .events("push.settled")
        .iter()
        .filter(|line| landed(line))
        .map(|line| line["token"].as_u64().unwrap())
        .collect()
}

#[test]
fn post_receive_that_deletes_the_pushed_ref_revives_no_token() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.write_hook("post-receive", TAKES_THE_BRANCH_AWAY);
        world.ok(world.hook_program().arg("install").arg(world.server()));
        world.push_token("queue/1", "7").assert_landed();
        assert_eq!(world.server_ref("refs/heads/queue/1"), None, "it was deleted");
        assert_eq!(world.mark(), 7);
        world.push_token("queue/1", "6").assert_refused("FENCE-STALE");
        world.push_token("queue/2", "7").assert_refused("FENCE-STALE");
        world.push_token("queue/2", "8").assert_landed();
        assert_eq!(tokens_that_landed(&world), [7, 8]);
        world.assert_log_is_whole();
    }
}

#[test]
fn ref_reset_by_an_operator_revives_no_token() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "19").assert_landed();
        let before = world.server_ref("refs/heads/main").unwrap();
        world.push_token("main", "20").assert_landed();
        world.ok(world.git("server.git").args(["update-ref", "refs/heads/main", &before]));
        world.push_token("main", "20").assert_refused("FENCE-STALE");
        assert_eq!(tokens_that_landed(&world), [19, 20]);
    }
}

#[test]
fn gate_switched_off_for_a_while_revives_no_token() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "39").assert_landed();
        let before = world.server_ref("refs/heads/main").unwrap();
        world.push_token("main", "40").assert_landed();
        world.ok(world.git("server.git").args(["config", "fence.mode", "off"]));
        world.push(&[&format!("+{before}:refs/heads/main")], &[]).assert_landed();
        world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
        world.push_token("main", "40").assert_refused("FENCE-STALE");
        world.push_token("main", "41").assert_landed();
    }
}

/// Also a push that git never reported on: its refs are read while they still have the pushed values.
#[test]
fn gate_settles_before_it_is_switched_off() {
    let world = World::new(&any_git());
    world.push_token("main", "39").assert_landed();
    let before = world.server_ref("refs/heads/main").unwrap();
    world.companion_never_runs();
    world.push_token("main", "40").assert_landed();
    world.configure("fence.mode", "off");
    world.push(&[&format!("+{before}:refs/heads/main")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
    world.push_token("main", "40").assert_refused("FENCE-STALE");
}

#[test]
fn uninstall_settles_first() {
    let world = World::new(&any_git());
    world.companion_never_runs();
    world.push_token("main", "40").assert_landed();
    world.ok(world.hook_program().arg("uninstall").arg(world.server()));
    assert_eq!(tokens_that_landed(&world), [40]);
}

/// The cost of a push must not depend on the history of other fences.
#[test]
fn finished_pushes_of_other_fences_do_not_accumulate() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.companion_never_runs();
    world.push_token("deploy/a", "deploy:5").assert_landed();
    world.push_token("main", "7").assert_landed();
    let settled = world.events("push.settled");
    assert_eq!((settled.len(), &settled[0]["fence"]), (1, &"deploy".into()), "{settled:?}");
}

/// Log, stats and status agree without another push.
#[test]
fn log_stats_and_status_agree_as_soon_as_the_push_ends() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let settled = world.events("push.settled");
    assert_eq!(settled.len(), 1, "{settled:?}");
    let line = &settled[0];
    assert_eq!((&line["evidence"], &line["moved"], &line["mark"]), (&"reported".into(), &1.into(), &5.into()));
    assert_eq!(world.mark(), 5);
    let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["fences"][0]["mark"], 5, "{stats}");
}

/// Git also lists refs that keep their value.
#[test]
fn ref_listed_by_git_but_not_moved_spends_nothing() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        let tip = world.server_ref("refs/heads/main").unwrap();
        raw::push(&world, &[RawCommand::new(&tip, &tip, "refs/heads/main")], &[b"fence-token=900"]);
        assert_eq!(world.mark(), 5);
        world.push_token("main", "6").assert_landed();
    }
}

/// A companion that cannot grow its file, as on a full disk.
fn without_room(world: &World) {
    world.companion_under("ulimit -f 4\nexec");
}

#[test]
fn companion_on_a_full_disk_keeps_the_report_in_the_mutex_for_the_next_push() {
    let world = World::new(&any_git());
    let companion = fs::read(world.hook("post-receive")).unwrap();
    (1..5).for_each(|token| world.push_token("main", &token.to_string()).assert_landed());
    let before = world.server_ref("refs/heads/main").unwrap();
    without_room(&world);
    let pushed = world.push_token("main", "5");
    pushed.assert_landed();
    assert_eq!(pushed.remote, "", "the report is in the mutex: nothing is broken");
    fs::write(world.hook("post-receive"), companion).unwrap();
    assert_eq!(tokens_that_landed(&world), [1, 2, 3, 4], "there was no space for the fifth");
    world.ok(world.git("server.git").args(["update-ref", "refs/heads/main", &before]));
    assert_eq!(world.mark(), 5, "read-only commands see it too");
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    assert_eq!(tokens_that_landed(&world), [1, 2, 3, 4, 5]);
    world.assert_log_is_whole();
}

/// Up to git 2.50 refs are updated one by one, each after its update hook.
#[test]
fn waiting_push_records_refs_that_a_stalled_push_has_moved() {
    for git in gits().into_iter().filter(|git| git.version < (2, 51)) {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.stall_update_of("z");
        let commit = world.commit("both");
        let refs = [format!("{commit}:refs/heads/a"), format!("{commit}:refs/heads/z")];
        let mut five = world.push_command(&[&refs[0], &refs[1]], &["fence-token=5"]);
        let five = Running::start(&mut five);
        let receive_pack = world.pid_in("stalled");
        assert!(world.server_ref("refs/heads/a").is_some(), "it has moved its first ref");
        let six = world.start_push("main", "6");
        wait_until("the landing is recorded", || !world.events("push.landed").is_empty());
        assert_eq!(world.mark(), 5);
        // Deleted again, and the push dies without a report from git.
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/heads/a"]));
        signal(receive_pack, "KILL");
        world.go();
        five.wait();
        six.wait().assert_landed();
        let settled = &world.events("push.settled")[0];
        assert_eq!((&settled["token"], &settled["moved"]), (&5.into(), &1.into()));
        world.assert_log_is_whole();
    }
}

/// In the bounded form a push counts as over when its time has passed. If it lands after all, the record is corrected.
#[test]
fn push_settled_too_early_is_recorded_as_landed_late() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.receivePack", "none");
        world.configure("fence.wait", "300ms");
        world.stall_update_of("late");
        let nine = world.start_push("late", "9");
        let go = world.go_in_the_end();
        world.pid_in("stalled");
        wait_until("it counts as over", || world.push_token("main", "4").ok);
        drop(go);
        nine.wait().assert_landed();
        let landed = world.events("push.landed");
        assert_eq!(landed.len(), 1, "{landed:?}");
        assert_eq!(
            (&landed[0]["token"], &landed[0]["mark"], &landed[0]["settled_as"]),
            (&9.into(), &9.into(), &0.into())
        );
        world.push_token("main", "9").assert_refused("FENCE-STALE");
        assert_eq!(world.mark(), 9);
        let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["pushes"]["moved"], 2, "{stats}");
        world.assert_log_is_whole();
    }
}

#[test]
fn companion_finds_its_push_by_refs_if_the_receive_pack_cannot_be_seen() {
    let world = World::new(&any_git());
    world.configure("fence.receivePack", "none");
    world.push_token("main", "5").assert_landed();
    let settled = world.events("push.settled");
    assert_eq!((settled.len(), &settled[0]["evidence"]), (1, &"reported".into()));
}

/// A queue that merges the pushed commit with a push of its own.
#[test]
fn post_receive_may_push_to_its_own_repository() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.write_hook(
            "post-receive",
            "read -r old new ref; [ \"$ref\" = refs/heads/queue ] || exit 0\n\
             unset GIT_QUARANTINE_PATH; git push -q . $new:refs/heads/main -o fence-token=8",
        );
        world.ok(world.hook_program().arg("install").arg(world.server()));
        world.push_token("queue", "7").assert_landed();
        assert_eq!(world.server_ref("refs/heads/main"), world.server_ref("refs/heads/queue"));
        assert_eq!(tokens_that_landed(&world), [7, 8]);
    }
}

/// A push that touches no guarded ref neither waits nor prints anything.
#[test]
fn unguarded_pushes_and_pushes_in_off_mode_leave_no_line() {
    let world = World::new(&any_git());
    world.push(&["HEAD:refs/unguarded/x"], &[]).assert_landed();
    assert_eq!(world.audit().len(), 1, "the log has its first line, and nothing else");
    world.configure("fence.mode", "off");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    let events: Vec<_> = world.audit().iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["log.begun", "settings.changed"]);
}

/// The companion is killed at its first system call, at its second, and so on: git continues, the next push settles.
#[test]
fn companion_killed_at_any_system_call_loses_nothing_and_blocks_nobody() {
    if lacks(&[Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    world.configure("fence.wait", "10m");
    let (trace, mut token) = (world.path("trace"), 1);
    let mut push_under_strace = |options: &str| {
        world.companion_under(&format!("exec strace -qq -o {} {options}", sh(&trace)));
        token += 1;
        world.push_token("main", &token.to_string()).assert_landed();
        assert!(world.verify().status.success(), "{options}");
        assert_eq!(world.mark(), token, "{options}");
        fs::read_to_string(&trace).unwrap()
    };
    let calls = strace::system_calls_in(&push_under_strace(""));
    let killed = calls.iter().filter(|call| push_under_strace(&format!("-e {}", call.kill())).contains("killed by"));
    let killed = killed.count();
    println!("killed at {killed} of {} system calls", calls.len());
    assert!(killed > 60 && killed * 10 > calls.len() * 9, "killed at {killed} of {}", calls.len());
    assert!(tokens_that_landed(&world).len() >= calls.len(), "each is recorded as landed, except perhaps for the last");
    world.assert_log_is_whole();
}

/// After a power loss the surviving refs settle the push: the companion needs no sync, no process and no object.
#[test]
fn companion_syncs_nothing_and_starts_no_process() {
    if lacks(&[Need::Strace]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "1").assert_landed();
        let trace = world.path("trace");
        world.companion_under(&format!("exec strace -f -qq -o {}", sh(&trace)));
        world.push_token("main", "2").assert_landed();
        let trace = fs::read_to_string(trace).unwrap();
        let count = |name: &str| trace.lines().filter(|line| line.contains(&format!(" {name}("))).count();
        assert_eq!(count("fdatasync") + count("fsync"), 0, "{trace}");
        assert_eq!(count("execve") + count("clone") + count("clone3") + count("vfork"), 1, "{trace}");
        assert_eq!(trace.lines().filter(|line| line.contains("objects")).count(), 0, "{trace}");
        println!("{} system calls", trace.lines().count());
        assert_eq!(world.events("push.settled").len(), 2);
    }
}

/// Someone will replace it with a post-receive of their own.
#[test]
fn gate_without_its_companion_refuses_and_install_fixes_it() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "1").assert_landed();
        let doctor = || {
            let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
            (ran.status.code(), text(&ran.stdout))
        };
        assert_eq!(doctor().0, Some(0));
        let spoilt: [(&str, &dyn Fn()); 3] = [
            ("replaced", &|| world.put_over("post-receive", "echo mine >>theirs")),
            ("removed", &|| fs::remove_file(world.hook("post-receive")).unwrap()),
            ("not executable", &|| {
                world.ok(std::process::Command::new("chmod").arg("-x").arg(world.hook("post-receive")));
            }),
        ];
        for (n, (how, spoil)) in spoilt.into_iter().enumerate() {
            spoil();
            let token = (2 + n).to_string();
            let pushed = world.push_token("main", &token);
            pushed.assert_refused("FENCE-BROKEN");
            assert!(pushed.remote.contains("git-fence-hook install"), "{how}: {}", pushed.remote);
            let (code, said) = doctor();
            assert_eq!(code, Some(1), "{how}");
            assert!(said.contains("companion-missing"), "{how}: {said}");
            world.ok(world.hook_program().arg("install").arg(world.server()));
            world.push_token("main", &token).assert_landed();
            assert_eq!(doctor().0, Some(0), "{how}");
        }
        assert_eq!(
            fs::read_to_string(world.server().join("theirs")).unwrap().lines().count(),
            3,
            "the other hook runs as well"
        );
        world.ok(world.hook_program().arg("uninstall").arg(world.server()));
        assert!(fs::read_to_string(world.hook("post-receive")).unwrap().contains("echo mine"), "and is restored");
    }
}

#[test]
fn optional_companion_is_not_required_but_reported_as_the_weaker_form() {
    let world = World::new(&any_git());
    fs::remove_file(world.hook("post-receive")).unwrap();
    world.configure("fence.companion", "optional");
    world.push_token("main", "1").assert_landed();
    world.push_token("main", "1").assert_refused("FENCE-STALE");
    let flaws = world.status()["flaws"].to_string();
    assert!(flaws.contains("weaker form"), "{flaws}");
    let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    assert!(text(&doctor.stdout).contains("weaker form"), "{}", text(&doctor.stdout));
}

/// If the settings move refs to another fence, that fence inherits the mark.
#[test]
fn ref_that_changes_fences_revives_no_token() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "500").assert_landed();
        world.configure("fence.trunk.refs", "refs/heads/main");
        world.push_token("main", "trunk:300").assert_refused("FENCE-STALE");
        let changed = world.events("settings.changed").pop().unwrap();
        assert_eq!(changed["heirs"], serde_json::json!([{ "fence": "trunk", "giver": "repo" }]));
        world.push_token("main", "trunk:501").assert_landed();
        world.push_token("dev", "501").assert_landed();
        // And back again.
        world.push_token("main", "trunk:900").assert_landed();
        world.ok(world.git("server.git").args(["config", "--unset-all", "fence.trunk.refs"]));
        world.push_token("main", "600").assert_refused("FENCE-STALE");
        world.push_token("main", "901").assert_landed();
        world.assert_log_is_whole();
    }
}

/// A push from before the change that is not settled yet counts for the heir when it lands.
#[test]
fn push_in_flight_while_its_ref_changes_fences_is_waited_for() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.stall_update_of("main");
        let five = world.start_push("main", "500");
        world.pid_in("stalled");
        world.configure("fence.trunk.refs", "refs/heads/main");
        let other = world.start_push("main", "trunk:300");
        wait_until("it waits", || other.has_said("waiting"));
        world.go();
        five.wait().assert_landed();
        other.wait().assert_refused("FENCE-STALE");
        world.assert_log_is_whole();
    }
}
