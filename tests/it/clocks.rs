//! Wrong clocks, and machines that look like each other.

use crate::support::{
    Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    needs::{Need, lacks},
    sh, wait_until,
};
use std::{fs, path::PathBuf, process::Command};

/// A machine with the same machine id and another boot id: a clone, or this machine after a reboot.
struct OtherBoot {
    boot_id: PathBuf,
}

impl OtherBoot {
    fn of(world: &World) -> OtherBoot {
        let boot_id = world.path("boot_id");
        fs::write(&boot_id, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
        OtherBoot { boot_id }
    }

    /// `command`, run on that machine.
    fn runs(&self, command: &mut Command) -> Command {
        let mut unshare = Command::new("unshare");
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        unshare.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(&self.boot_id);
        unshare.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => unshare.env(name, value),
                None => unshare.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            unshare.current_dir(dir);
        }
        unshare
    }

    fn push_token(&self, world: &World, branch: &str, token: &str) -> Pushed {
        Pushed::from(&self.runs(&mut world.push_token_command(branch, token)).output().unwrap())
    }
}

/// Two machines from one image share a directory. This one was already up at the time of the other's
/// push, so the push cannot have been made before a reboot.
#[test]
fn push_on_a_cloned_machine_does_not_count_as_rebooted() {
    if lacks(&[Need::OtherBoot]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        let clone = OtherBoot::of(&world);
        world.configure("fence.wait", "10m");
        world.stall_update_of("t5");
        let go = world.go_in_the_end();
        let five = Running::start(&mut clone.runs(&mut world.push_token_command("t5", "5")));
        world.pid_in("stalled");
        assert_eq!(world.status()["fences"][0]["in_flight"][0]["form"], "bounded");
        let mut six = world.start_push("t6", "6");
        wait_until("six waits or is over", || six.has_said("waiting") || six.has_ended());
        assert!(!six.has_ended(), "{}", six.wait().text);
        drop(go);
        five.wait().assert_landed();
        six.wait().assert_landed();
        assert_eq!(world.mark(), 6);
        world.assert_log_is_whole();
    }
}

/// The clock was ahead when the push was accepted, and then the machine rebooted: no clock tells
/// the age of the push, so it is watched for fence.wait, and then it is over.
#[test]
fn push_stamped_in_the_future_is_over_after_being_watched_for_fence_wait() {
    if lacks(&[Need::OtherBoot, Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    let before_the_boot = OtherBoot::of(&world);
    world.configure("fence.wait", "1s");
    world.write_hook("update", "case $1 in refs/heads/t5) kill -KILL $PPID;; esac");
    assert!(!before_the_boot.push_token(&world, "t5", "5").ok);
    change_last_line(&world, |line| line["time"] = "2999-01-01T00:00:00.000Z".into());
    // The waiting push first reads the slot a little late, so it has less time left to wait than to watch.
    let (gate, trace) = (sh(env!("CARGO_BIN_EXE_git-fence-hook")), sh(world.path("trace")));
    let late = "-e trace=flock -e inject=flock:delay_enter=300000:when=1";
    world.write_hook("pre-receive", &format!("exec strace -f -qq {late} -o {trace} {gate} pre-receive"));
    world.push_token("t6", "6").assert_landed();
    let settled = &world.events("push.settled")[0];
    assert_eq!((&settled["evidence"], &settled["moved"]), (&"time-passed".into(), &0.into()));
}

/// The clock was ahead when the lease was granted, and then the machine rebooted: the lease must not
/// be held until the clock catches up.
#[test]
fn lease_stamped_in_the_future_is_restamped_and_expires() {
    if lacks(&[Need::OtherBoot]) {
        return;
    }
    let world = World::new(&any_git());
    let before_the_boot = OtherBoot::of(&world);
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    let mut take = before_the_boot.runs(&mut lease.take_command(&anna, 1, "first"));
    Pushed::from(&take.output().unwrap()).assert_landed();
    let far_ahead = 4_102_444_800_000u64;
    change_last_line(&world, |line| {
        for stamp in ["since", "heard"] {
            line[stamp]["unix_ms"] = far_ahead.into();
        }
    });
    lease.ask();
    wait_until("the lease expires", || lease.status()["state"] == "expired");
    lease.take(&bob, 2, "expired").assert_landed();
    let found = world.events("lease.found");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0]["heard"]["unix_ms"].as_u64().unwrap() < far_ahead);
    assert!(found[0]["since"]["unix_ms"].as_u64().unwrap() < far_ahead);
    world.assert_log_is_whole();
}

/// Only the writer of the last line, under another boot, has its hash.
fn change_last_line(world: &World, change: impl FnOnce(&mut serde_json::Value)) {
    let path = world.fence_file("audit.jsonl");
    let log = fs::read_to_string(&path).unwrap();
    let (before, last) = log.trim_end().rsplit_once('\n').unwrap();
    let mut line = serde_json::from_str(last).unwrap();
    change(&mut line);
    fs::write(&path, format!("{before}\n{line}\n")).unwrap();
}
