//! Leases at the gate: every move that is allowed and those that are not, over the real wire.

use crate::support::{
    Door, Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf, commit},
    program_exists, raw, sh, text, wait_until,
};
use std::{fs, process::Command};

/// Tries until the lease of somebody else has expired by the server's clock.
fn take_when_it_expires(lease: LeaseOf<'_>, agent: &Agent, token: u64) -> Pushed {
    let mut last = None;
    wait_until("the lease has expired", || {
        let tried = lease.take(agent, token, "expired");
        let is_held = tried.text.contains("FENCE-LEASE-HELD");
        last = Some(tried);
        !is_held
    });
    last.unwrap()
}

fn json(pushed: &Pushed) -> serde_json::Value {
    let line = pushed.text.lines().find_map(|line| line.strip_prefix("fence: ")).unwrap_or_else(|| {
        panic!("nothing for programs in:\n{}", pushed.text);
    });
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_lease_goes_through_its_whole_life() {
    for git in gits() {
        for init in [&[][..], &["--object-format=sha256"], &["--ref-format=reftable"]] {
            if git.version < (2, 45) && init == ["--ref-format=reftable"] {
                continue;
            }
            let world = World::with(&git, Door::Fence, init);
            let lease = LeaseOf::repo(&world);
            let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
            let taken = lease.take(&anna, 1, "first");
            taken.assert_landed();
            assert_eq!(taken.remote, r#"fence: {"verdict":"granted","fence":"repo","token":1,"mark":0}"#);
            lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
            lease.beat(&anna).assert_landed();
            let written = lease.write(&anna, "main", 1, "first");
            written.assert_landed();
            assert_eq!(written.remote, "", "what is let through is not talked about");
            lease.write(&anna, "main", 2, "first").assert_landed();
            assert_eq!(lease.mark(), 2);
            lease.advance(&anna, 4, "first").assert_landed();
            assert_eq!(lease.mark(), 3, "whoever had 3 is too late");
            lease.release(&anna, 4, "first").assert_landed();
            lease.take(&bob, 5, "released").assert_landed();
            assert_eq!(lease.mark(), 4);
            // Its history is who held it.
            assert_eq!(lease.parents_of(&lease.at().unwrap()).len(), 1);
            lease.write(&bob, "main", 5, "released").assert_landed();
            lease.beat(&bob).assert_landed();
            let events: Vec<String> = world
                .audit()
                .iter()
                .map(|line| line["event"].as_str().unwrap().to_owned())
                .filter(|event| event.starts_with("lease."))
                .collect();
            let steps = "granted renewed advanced advanced advanced released granted advanced renewed";
            assert_eq!(events, steps.split(' ').map(|step| format!("lease.{step}")).collect::<Vec<_>>(), "{init:?}");
            world.assert_log_is_whole();
        }
    }
}

/// Every way to move a lease that is somebody's, and what it is refused with. Each is a forced push, so that only the gate
/// stands in its way, and after each everything is as it was.
#[test]
fn what_is_not_the_holders_next_step_is_refused_and_changes_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.write(&anna, "main", 1, "first").assert_landed();
    lease.release(&anna, 2, "first").assert_landed();
    let anna = anna.again();
    lease.take(&anna, 3, "released").assert_landed();
    let (at, parent) = (lease.at().unwrap(), lease.parents_of(&lease.at().unwrap()));
    let proof = vec![anna.proof("repo")];
    let held = |agent: &Agent, token| agent.lease(token, "held", "released");
    let step = |message: &str| vec![lease.record("lease", message, &parent)];
    let new = |agent: &Agent, message: &str, parents: &[String]| {
        vec![lease.record("lease", message, parents), lease.record("beat", &agent.beat(""), &[])]
    };
    let renamed = Agent { name: "mallory".to_owned(), ..anna.clone() };
    let rekeyed = Agent { secret: bob.secret.clone(), ..anna.clone() };
    let slower = Agent { ttl: "86400s".to_owned(), ..anna.clone() };
    let beat = |agent: &Agent| vec![lease.record("beat", &agent.beat(""), &[])];
    let at_list = [at];
    for (what, refspecs, options, code) in [
        ("an advance without a secret", step(&held(&anna, 4)), vec![], "FENCE-LEASE-REQUIRED"),
        ("an advance with another's", step(&held(&anna, 4)), vec![bob.proof("repo")], "FENCE-LEASE-INVALID"),
        ("an advance by two", step(&held(&anna, 5)), proof.clone(), "FENCE-LEASE-INVALID"),
        ("an advance by none", step(&held(&anna, 3)), proof.clone(), "FENCE-LEASE-INVALID"),
        ("an advance back", step(&held(&anna, 2)), proof.clone(), "FENCE-LEASE-INVALID"),
        ("another name", step(&held(&renamed, 4)), proof.clone(), "FENCE-LEASE-INVALID"),
        ("another secret", step(&held(&rekeyed, 4)), proof.clone(), "FENCE-LEASE-INVALID"),
        ("another TTL", step(&held(&slower, 4)), proof.clone(), "FENCE-LEASE-INVALID"),
        (
            "a history that grows",
            vec![lease.record("lease", &held(&anna, 4), &at_list)],
            proof.clone(),
            "FENCE-LEASE-INVALID",
        ),
        (
            "a history that is cut",
            vec![lease.record("lease", &held(&anna, 4), &[])],
            proof.clone(),
            "FENCE-LEASE-INVALID",
        ),
        ("a release with a token", step(&anna.lease(4, "released", "released")), proof.clone(), "FENCE-LEASE-INVALID"),
        ("a release without a secret", step(&anna.lease(3, "released", "released")), vec![], "FENCE-LEASE-REQUIRED"),
        ("a rewind", vec![format!("{}:{}", parent[0], lease.name("lease"))], vec![], "FENCE-LEASE-HELD"),
        ("a rewind by the holder", vec![format!("{}:{}", parent[0], lease.name("lease"))], proof, "FENCE-LEASE-LOST"),
        (
            "a takeover of what is held",
            new(&bob, &bob.lease(4, "held", "expired"), &at_list),
            vec![],
            "FENCE-LEASE-HELD",
        ),
        (
            "the same as a revocation",
            new(&bob, &bob.lease(4, "released", "revoked"), &at_list),
            vec![],
            "FENCE-LEASE-INVALID",
        ),
        ("somebody else's beat", beat(&bob), vec![bob.proof("repo")], "FENCE-LEASE-LOST"),
        ("a beat without a secret", beat(&anna), vec![], "FENCE-LEASE-REQUIRED"),
        ("a beat with another's", beat(&anna), vec![bob.proof("repo")], "FENCE-LEASE-INVALID"),
        ("a secret that is none", beat(&anna), vec!["fence-holder=xyz".to_owned()], "FENCE-MALFORMED"),
    ] {
        let (refs, lines) = (world.server_ref("refs/"), world.audit().len());
        let pushed = lease.push(&refspecs, &options);
        assert_eq!(pushed.code().as_deref(), Some(code), "{what}: {}", pushed.text);
        pushed.assert_refused(code);
        assert_eq!(world.server_ref("refs/"), refs, "{what}");
        assert!(world.audit().len() > lines, "{what} is not on record");
    }
    lease.write(&anna, "main", 3, "released").assert_landed();
    // And when it is free, it is not free for everything.
    lease.release(&anna, 4, "released").assert_landed();
    let at = lease.before();
    let long = Agent { ttl: "90000s".to_owned(), ..bob.clone() };
    for (what, refspecs, code) in [
        ("the token that was", new(&bob, &bob.lease(4, "held", "released"), &at), "FENCE-STALE"),
        ("a token too far", new(&bob, &bob.lease(6, "held", "released"), &at), "FENCE-LEASE-INVALID"),
        ("another reason", new(&bob, &bob.lease(5, "held", "expired"), &at), "FENCE-LEASE-INVALID"),
        ("no history", new(&bob, &bob.lease(5, "held", "released"), &[]), "FENCE-LEASE-INVALID"),
        ("no beat", vec![lease.record("lease", &bob.lease(5, "held", "released"), &at)], "FENCE-LEASE-INVALID"),
        ("another's beat", new(&anna, &bob.lease(5, "held", "released"), &at), "FENCE-LEASE-INVALID"),
        ("released at once", new(&bob, &bob.lease(5, "released", "released"), &at), "FENCE-LEASE-INVALID"),
        ("too long a TTL", new(&long, &long.lease(5, "held", "released"), &at), "FENCE-LEASE-INVALID"),
    ] {
        let pushed = lease.push(&refspecs, &[]);
        assert_eq!(pushed.code().as_deref(), Some(code), "{what}: {}", pushed.text);
        assert_eq!(lease.before(), at, "{what}");
    }
    // It is anna's no more, whatever she has.
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    lease.advance(&anna, 5, "released").assert_refused("FENCE-LEASE-LOST");
    lease.release(&anna, 4, "released").assert_refused("FENCE-LEASE-LOST");
    lease.take(&bob, 5, "released").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn a_grant_too_low_is_told_the_next_number() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    world.push_token("main", "41").assert_landed();
    let anna = Agent::new("anna");
    let told = lease.take(&anna, 1, "first");
    told.assert_refused("FENCE-STALE");
    assert_eq!((json(&told)["token"].as_u64(), json(&told)["mark"].as_u64()), (Some(1), Some(41)));
    lease.take(&anna, 42, "first").assert_landed();
    assert_eq!(lease.mark(), 41);
    lease.release(&anna, 42, "first").assert_landed();
    // 42 was granted and has not written: the mark alone would not tell.
    let told = lease.take(&Agent::new("bob"), 42, "released");
    told.assert_refused("FENCE-STALE");
    assert_eq!(json(&told)["mark"], 42);
    assert_eq!(world.events("push.rejected").last().unwrap()["mark"], 42);
}

#[test]
fn a_grant_fences_everybody_before_it_at_once() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        lease.write(&anna, "main", 1, "first").assert_landed();
        let zombie = lease.advanced(&anna, 3, "first");
        take_when_it_expires(lease, &bob, 3).assert_landed();
        // Bob has written nothing yet.
        let main = world.server_ref("refs/heads/main");
        let write = |token: u64, lease_spec: &str| {
            Pushed::from(&lease.write_command(&anna, "main", token, lease_spec).output().unwrap())
        };
        write(2, &zombie).assert_refused("FENCE-STALE");
        // It was told a number, and tries the next one by hand, and then the right one without the lease.
        world.push_token("main", "2").assert_refused("FENCE-STALE");
        world.push_token("main", "3").assert_refused("FENCE-LEASE-REQUIRED");
        world.push_token("main", "4").assert_refused("FENCE-LEASE-REQUIRED");
        write(3, &zombie).assert_refused("FENCE-LEASE-LOST");
        // Bob's own next step, copied, but without his secret.
        let work = world.commit("stolen");
        let copied = [format!("{work}:refs/heads/main"), lease.advanced(&bob, 4, "expired")];
        lease.push(&copied, &["fence-token=3".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
        lease.push(&copied, &["fence-token=3".to_owned(), anna.proof("repo")]).assert_refused("FENCE-LEASE-INVALID");
        // In a commit's trailer, too.
        let stamped = world.commit("work\n\nFencing-Token: 3\n");
        world.push(&[&format!("+{stamped}:refs/heads/main")], &[]).assert_refused("FENCE-LEASE-REQUIRED");
        world.push(&["+HEAD:refs/heads/main"], &[]).assert_refused("FENCE-LEASE-REQUIRED");
        let stamped = [format!("{stamped}:refs/heads/main"), lease.advanced(&bob, 4, "expired")];
        lease.push(&stamped, &[bob.proof("repo")]).assert_refused("FENCE-LEASE-REQUIRED");
        assert_eq!(world.server_ref("refs/heads/main"), main);
        lease.write(&bob, "main", 3, "expired").assert_landed();
        assert_eq!(lease.mark(), 3);
        world.assert_log_is_whole();
    }
}

/// The beat says that it was good until 2001, or until 2999: neither counts.
#[test]
fn the_servers_clock_says_when_a_lease_expires() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    let held = lease.take(&bob, 2, "expired");
    held.assert_refused("FENCE-LEASE-HELD");
    let left = json(&held)["holder"]["left_ms"].as_u64().unwrap();
    assert!(left > 300_000 && left <= 600_000, "{left}");
    assert_eq!(json(&held)["holder"]["owner"], "anna");
    lease.release(&anna, 1, "first").assert_landed();

    let brief = Agent::brief("carl");
    let later = brief.beat("").replace("2001-01-01", "2999-01-01");
    let take = [
        lease.record("lease", &brief.lease(2, "held", "released"), &lease.before()),
        lease.record("beat", &later, &[]),
    ];
    lease.push(&take, &[]).assert_landed();
    take_when_it_expires(lease, &bob, 3).assert_landed();
    lease.beat(&brief).assert_refused("FENCE-LEASE-LOST");
    let granted = world.events("lease.granted");
    let heard = |n: usize| granted[n]["heard"]["uptime_ms"].as_u64().unwrap();
    assert!(heard(2) - heard(1) >= 1000, "taken before its time");
    // Carl was not heard after the grant: how long he really held it is not known.
    assert_eq!(granted[2]["held_ms"], 0);
}

#[test]
fn a_late_beat_counts_as_long_as_nobody_took_the_lease() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    // Who takes it has not held it yet: not with the token of whoever had it, either.
    let hasty = [
        format!("{}:refs/heads/main", world.commit("hasty")),
        lease.record("lease", &bob.lease(2, "held", "expired"), &lease.before()),
        lease.record("beat", &bob.beat(""), &[]),
    ];
    lease.push(&hasty, &["fence-token=1".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
    lease.beat(&anna).assert_landed();
    lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
}

#[test]
fn whoever_asks_is_answered_at_once_and_changes_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.configure("fence.wait", "10m");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let next = lease.advanced(&anna, 2, "first");
    let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
    world.pid_in("stalled");
    let asked = lease.ask();
    asked.assert_refused("FENCE-LEASE-HELD");
    assert_eq!(json(&asked)["holder"]["lease"].as_str(), Some(&*anna.id));
    assert_eq!(world.events("push.rejected").len(), 2, "a skip is on record");
    // With a deletion it cannot be had either.
    lease.push(&[format!(":{}", lease.name("lease/ask"))], &[]).assert_refused("FENCE-LEASE-HELD");
    world.go();
    slow.wait().assert_landed();
}

fn under_strace(world: &World, what: &str) {
    assert!(program_exists("strace"), "this test needs strace: apt-get install strace");
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    let trace = sh(world.path("trace"));
    world.write_hook("pre-receive", &format!("exec strace -f -qq -e trace={what} -o {trace} {gate} pre-receive"));
}

#[test]
fn a_heartbeat_takes_no_slot_waits_for_none_and_is_not_synced() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        world.configure("fence.wait", "10m");
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let next = lease.advanced(&anna, 2, "first");
        let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
        world.pid_in("stalled");
        under_strace(&world, "process,desc");
        let beat = Pushed::from(&lease.beat_command(&anna, "Fence-Progress: page 3\n").output().unwrap());
        beat.assert_landed();
        assert_eq!(beat.remote, "");
        let trace = fs::read_to_string(world.path("trace")).unwrap();
        let count = |word: &str| trace.lines().filter(|line| line.contains(word)).count();
        assert_eq!((count("execve("), count("fdatasync(") + count("fsync(")), (1, 0), "{trace}");
        assert!(count("write(") > 0, "{trace}");
        world.go();
        slow.wait().assert_landed();
        let status = lease.status();
        assert_eq!((&status["progress"], &status["token"]), (&"page 3".into(), &2.into()));
        let renewed = &world.events("lease.renewed")[0];
        assert_eq!((&renewed["token"], &renewed["lease"]), (&1.into(), &(*anna.id).into()));
        world.assert_log_is_whole();
        // A lone beat of a push that also does something else takes its turn like any other.
        lease.beat(&anna).assert_landed();
        assert_eq!(world.events("push.accepted").len(), 2);
    }
}

/// Where refs move one by one, the lease is ahead of the log for as long as the others take.
#[test]
fn a_heartbeat_beside_a_push_that_is_half_done_is_heard() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let refspecs = [format!("+{}", lease.advanced(&anna, 2, "first")), "HEAD:refs/heads/slow".to_owned()];
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        let options = ["fence-token=1".to_owned(), anna.proof("repo")];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let slow = Running::start(&mut world.push_command(&refspecs, &options));
        world.pid_in("stalled");
        lease.beat(&anna).assert_landed();
        world.go();
        slow.wait().assert_landed();
        lease.write(&anna, "main", 2, "first").assert_landed();
        lease.ask().assert_refused("FENCE-LEASE-HELD");
        assert!(world.events("lease.found").is_empty(), "nobody but the gate has moved it");
        assert_eq!(world.events("lease.advanced").len(), 2);
        world.assert_log_is_whole();
    }
}

/// What stands in the way is told apart from what has happened: a stalled push of the holder that carries a
/// beat has moved nothing, although the beat's ref has moved meanwhile.
#[test]
fn a_beat_beside_a_stalled_push_spends_nothing_of_it() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.write_hook("update", "case $1 in refs/heads/main) echo $PPID >stalled.new; mv stalled.new stalled; while ! [ -e go ]; do sleep 0.02; done; exit 1;; esac");
    let _go = world.go_in_the_end();
    let work = world.commit("work");
    let refspecs = [
        format!("{work}:refs/heads/main"),
        lease.advanced(&anna, 2, "first"),
        lease.record("beat", &anna.beat(""), &[]),
    ];
    let slow = Running::start(&mut lease.push_command(&refspecs, &["fence-token=1".to_owned(), anna.proof("repo")]));
    world.pid_in("stalled");
    lease.beat(&anna).assert_landed();
    world.go();
    assert!(!slow.wait().ok);
    fs::remove_file(world.hook("update")).unwrap();
    lease.write(&anna, "main", 1, "first").assert_landed();
    let settled = &world.events("push.settled")[1];
    assert_eq!((&settled["moved"], &settled["spent"]), (&0.into(), &serde_json::json!([])));
}

/// Makes the update hook stop when a lease is moved for the first time.
fn stall_lease(world: &World) {
    world.write_hook(
        "update",
        "case $1 in refs/fence/*/lease) [ -e stalled ] && exit 0\n\
         echo $PPID >stalled.new; mv stalled.new stalled\n\
         while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac",
    );
}

#[test]
fn of_a_takeover_and_a_renewal_one_comes_first() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        wait_until("it has expired", || lease.status()["state"] == "expired");
        stall_lease(&world);
        let _go = world.go_in_the_end();
        // Let through, and before its refs move the holder is heard again.
        let takeover = Running::start(&mut lease.take_command(&bob, 2, "expired"));
        world.pid_in("stalled");
        lease.beat(&anna).assert_landed();
        world.go();
        assert!(!takeover.wait().ok, "git's compare-and-swap on the beat refuses it");
        assert_eq!(lease.status()["owner"], "anna");
        assert_eq!(lease.mark(), 0);
        fs::remove_file(world.hook("update")).unwrap();
        // The other way round.
        take_when_it_expires(lease, &bob, 2).assert_landed();
        lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
        assert_eq!(lease.status()["owner"], "bob");
        world.assert_log_is_whole();
    }
}

#[test]
fn the_last_token_may_be_spent_with_the_release() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    let release = lease.released(&anna, 1, "first");
    Pushed::from(&lease.write_command(&anna, "main", 1, &release).output().unwrap()).assert_landed();
    assert_eq!((lease.mark(), &lease.status()["state"]), (1, &"released".into()));
    // Between leases, too, nobody writes without one.
    world.push_token("main", "2").assert_refused("FENCE-LEASE-REQUIRED");
    // Taking and writing are two steps: what is taken together with a branch has never been held.
    let work = world.commit("hasty");
    let refspecs = [
        format!("{work}:refs/heads/main"),
        lease.record("lease", &bob.lease(2, "held", "released"), &lease.before()),
        lease.record("beat", &bob.beat(""), &[]),
    ];
    lease.push(&refspecs, &["fence-token=2".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
    lease.take(&bob, 2, "released").assert_landed();
    let released = &world.events("lease.released")[0];
    assert!(released["held_ms"].is_u64() && released["push"].is_u64());
}

/// A token that rides with a lease alone would spend itself on nothing, and lock everybody out.
#[test]
fn a_huge_token_beside_a_grant_is_not_spent() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    let taking = |agent: &Agent, token| {
        [
            lease.record(
                "lease",
                &agent.lease(token, "held", if token == 1 { "first" } else { "released" }),
                &lease.before(),
            ),
            lease.record("beat", &agent.beat(""), &[]),
        ]
    };
    lease.push(&taking(&anna, 1), &["fence-token=999999".to_owned()]).assert_landed();
    lease.release(&anna, 1, "first").assert_landed();
    lease.push(&taking(&bob, 2), &["fence-token=999999".to_owned()]).assert_landed();
    assert_eq!(lease.mark(), 1);
}

#[test]
fn only_leases_live_below_refs_fence() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        world.configure("fence.quiet.refs", "refs/heads/quiet/*");
        world.configure("fence.quiet.mode", "off");
        for name in [
            "refs/fence",
            "refs/fence/repo",
            "refs/fence/repo/other",
            "refs/fence/repo/lease/x",
            "refs/fence/nowhere/lease",
            "refs/fence/A/lease",
        ] {
            world.push(&[&format!("HEAD:{name}")], &[]).assert_refused("FENCE-LEASE-INVALID");
        }
        // A fence that is off judges nothing.
        world.push(&["HEAD:refs/fence/quiet/lease"], &[]).assert_landed();
        world.push(&[":refs/fence/quiet/lease"], &[]).assert_landed();
        lease.take(&anna, 1, "first").assert_landed();
        for part in ["lease", "beat"] {
            let deleted = lease.push(&[format!(":{}", lease.name(part))], &[anna.proof("repo")]);
            deleted.assert_refused("FENCE-LEASE-INVALID");
            assert!(deleted.text.contains("never deleted"), "{}", deleted.text);
        }
        let blob = world.ok(world.git("work").args(["hash-object", "-w", "--stdin"]));
        let tagged = lease.at().unwrap();
        world.ok(world.git("work").args(["tag", "-f", "-a", "-m", "x", "tagged", &tagged]));
        let tag = world.ok(world.git("work").args(["rev-parse", "tagged"]));
        let future = anna.lease(2, "held", "first").replace("Fence-Format: 1", "Fence-Format: 2");
        let future = commit(&world, &future, &[]);
        let large = anna.lease(2, "held", "first").replace("\n\n", &format!("\n\n{}\n\n", "x".repeat(70_000)));
        let large = commit(&world, &large, &[]);
        let head = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
        for (object, word) in [
            (&blob, "a blob"),
            (&tag, "a tag"),
            (&future, "of format 2"),
            (&large, "larger than"),
            (&head, "not a record"),
        ] {
            for part in ["lease", "beat"] {
                let pushed = raw_or_real(&lease, object, part);
                pushed.assert_refused("FENCE-LEASE-INVALID");
                assert!(pushed.text.contains(word), "{}", pushed.text);
            }
        }
        // By another name.
        world.ok(world.git("server.git").args(["symbolic-ref", "refs/aside/alias", &lease.name("lease")]));
        world.ok(world.git("server.git").args(["symbolic-ref", "refs/fence/repo/beat", "refs/heads/main"]));
        world.push(&[&format!("+{head}:refs/aside/alias")], &[]).assert_refused("FENCE-LEASE-INVALID");
        // Not even by a sign of life that is right in everything else.
        lease.beat(&anna).assert_refused("FENCE-LEASE-INVALID");
        assert_eq!(world.server_ref("refs/heads/main"), None);
        assert_eq!(lease.at().unwrap(), tagged);
        // Twice in one push.
        let next = lease.advanced(&anna, 2, "first");
        let (new, name) = next.split_once(':').unwrap();
        world.push(&[&format!("{new}:refs/outside/object")], &[]).assert_landed();
        let there_and_back = [raw::RawCommand::new(&tagged, new, name), raw::RawCommand::new(new, &tagged, name)];
        let twice = raw::push(&world, &there_and_back, &[anna.proof("repo").as_bytes()]);
        twice.assert_refused("FENCE-MALFORMED");
        world.assert_log_is_whole();
    }
}

/// Git itself refuses to push some objects to some names. It is the server that must.
fn raw_or_real(lease: &LeaseOf<'_>, object: &str, part: &str) -> Pushed {
    let proof = "fence-holder=".to_owned() + &"0".repeat(64);
    lease.push(&[format!("{object}:{}", lease.name(part))], &[proof])
}

#[test]
fn leases_are_judged_where_a_fence_only_observes() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.mode", "observe");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        // Tokens are only observed.
        let observed = world.push_token("main", "9");
        observed.assert_landed();
        assert!(observed.text.contains("FENCE-LEASE-REQUIRED"), "{}", observed.text);
        world.push(&["HEAD:refs/heads/other"], &[]).assert_landed();
        // Leases are not, whatever is said of the token that rides along.
        lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
        lease.ask().assert_refused("FENCE-LEASE-HELD");
        lease.beat(&bob).assert_refused("FENCE-LEASE-LOST");
        lease.push(&[format!(":{}", lease.name("lease"))], &[]).assert_refused("FENCE-LEASE-INVALID");
        world.push(&["HEAD:refs/fence/repo/x"], &[]).assert_refused("FENCE-LEASE-INVALID");
        let back = [format!("{}:refs/heads/main", world.commit("x")), lease.advanced(&anna, 3, "first")];
        lease.push(&back, &["fence-token=1".to_owned(), anna.proof("repo")]).assert_refused("FENCE-LEASE-INVALID");
        let unproven = [format!("{}:refs/heads/main", world.commit("x")), lease.advanced(&anna, 2, "first")];
        lease.push(&unproven, &["fence-token=1".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
        // The mark is at 9 by now, which observing does not mind; the lease goes on as it would.
        lease.write(&anna, "main", 1, "first").assert_landed();
        assert_eq!(lease.status()["token"], 2);
        // In a broken fence nothing can be said of leases, so nothing is let through.
        let log = world.fence_file("audit.jsonl");
        let whole = fs::read(&log).unwrap();
        fs::write(&log, &whole[..whole.len() / 2]).unwrap();
        world.push_token("main", "10").assert_landed();
        lease.beat(&anna).assert_refused("FENCE-BROKEN");
        lease.advance(&anna, 3, "first").assert_refused("FENCE-BROKEN");
        fs::write(&log, &whole).unwrap();
        lease.advance(&anna, 3, "first").assert_landed();
        world.assert_log_is_whole();
    }
}

/// A stalled push holds nobody up in observe mode, but what becomes of a lease can only be said in turn.
#[test]
fn where_a_fence_only_observes_a_lease_waits_its_turn() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    world.configure("fence.wait", "200ms");
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let slow = world.start_push("slow", "1");
    world.pid_in("stalled");
    lease.take(&anna, 1, "first").assert_refused("FENCE-BUSY");
    world.push_token("main", "2").assert_landed();
    world.go();
    slow.wait().assert_landed();
    lease.take(&anna, 3, "first").assert_landed();
}

#[test]
fn each_fence_has_a_lease_of_its_own() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.configure("fence.deploy.accept", "at-or-above");
    let (repo, deploy) = (LeaseOf::repo(&world), LeaseOf { world: &world, fence: "deploy" });
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    repo.take(&anna, 1, "first").assert_landed();
    world.push_token("deploy/x", "1").assert_refused("FENCE-MISSING");
    world.push(&["HEAD:refs/heads/deploy/x"], &["fence-token=deploy:7"]).assert_landed();
    let taken = deploy.take(&bob, 8, "first");
    taken.assert_landed();
    assert_eq!(taken.remote, r#"fence: {"verdict":"granted","fence":"deploy","token":8,"mark":8}"#);
    assert_eq!((repo.mark(), deploy.mark()), (0, 8));
    // One's secret is not the other's.
    deploy.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    let wrong = deploy.record("beat", &bob.beat(""), &[]);
    deploy.push(&[wrong], &[format!("fence-holder={}", bob.secret)]).assert_refused("FENCE-LEASE-REQUIRED");
    // Both in one push: each needs its own, and all or nothing.
    let work = world.commit("both");
    let refspecs = |advanced: u64| {
        [
            format!("{work}:refs/heads/main"),
            format!("{work}:refs/heads/deploy/y"),
            repo.advanced(&anna, 2, "first"),
            deploy.advanced(&bob, advanced, "first"),
        ]
    };
    let options =
        [anna.proof("repo"), bob.proof("deploy"), "fence-token=1".to_owned(), "fence-token=deploy:8".to_owned()];
    repo.push(&refspecs(10), &options).assert_refused("FENCE-LEASE-INVALID");
    assert_eq!(world.server_ref("refs/heads/main"), None);
    repo.push(&refspecs(9), &options).assert_landed();
    assert_eq!((repo.mark(), deploy.mark()), (1, 9));
    // Two hearts in one push.
    let beats = [repo.record("beat", &anna.beat(""), &[]), deploy.record("beat", &bob.beat(""), &[])];
    repo.push(&beats, &[anna.proof("repo"), bob.proof("deploy")]).assert_landed();
    let beats = [repo.record("beat", &anna.beat(""), &[]), deploy.record("beat", &bob.beat(""), &[])];
    repo.push(&beats, &[anna.proof("repo")]).assert_refused("FENCE-LEASE-REQUIRED");
    assert_eq!(world.events("lease.renewed").len(), 2);
    world.assert_log_is_whole();
}

#[test]
fn a_push_that_dies_before_its_refs_move_leaves_the_lease_as_it_was() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        world.write_hook("update", "case $1 in refs/fence/*) kill -KILL $PPID;; esac");
        assert!(!lease.take(&anna, 1, "first").ok);
        fs::remove_file(world.hook("update")).unwrap();
        assert_eq!((lease.at(), lease.mark()), (None, 0));
        lease.take(&bob, 1, "first").assert_landed();
        // And in the middle of its refs: what has moved has moved.
        world.write_hook(
            "reference-transaction",
            "[ \"$1\" = committed ] || exit 0\ngrep -q refs/fence/ && kill -KILL $PPID; exit 0",
        );
        assert!(!lease.write(&bob, "main", 1, "first").ok, "its receive-pack was killed");
        fs::remove_file(world.hook("reference-transaction")).unwrap();
        let status = lease.status();
        assert_eq!((&status["owner"], &status["token"]), (&"bob".into(), &2.into()));
        lease.write(&bob, "main", 2, "first").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn a_step_whose_line_was_lost_with_the_machine_is_found() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.ask().assert_refused("FENCE-LEASE-HELD");
    // It was settled by the question, and neither line was synced: only the first has survived.
    let log = world.fence_file("audit.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let cut = lines.find(r#""event":"lease.granted""#).unwrap();
    let cut = lines[..cut].rfind('\n').unwrap() + 1;
    assert!(lines[..cut].trim_end().lines().last().unwrap().contains("push.settled"));
    fs::write(&log, &lines[..cut]).unwrap();
    crate::state::reboot(&world);
    world.push_token("main", "1").assert_refused("FENCE-LEASE-REQUIRED");
    let found = &world.events("lease.found")[0];
    assert_eq!((&found["lease"]["id"], &found["id"]), (&serde_json::Value::Null, &(*anna.id).into()));
    lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
    assert_eq!(lease.mark(), 1);
    world.assert_log_is_whole();
}

#[test]
fn rotating_carries_leases_on() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.ok(world.hook_program().arg("rotate").arg(world.server()));
    lease.take(&Agent::new("bob"), 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
    assert!(world.events("lease.found").is_empty());
    world.assert_log_is_whole();
}

/// An operator has removed the ref: whoever comes sees none, and the counter goes on all the same.
#[test]
fn a_lease_whose_ref_is_gone_is_not_forgotten() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    for token in 1..4 {
        lease.write(&anna, "main", token, "first").assert_landed();
    }
    lease.advance(&anna, 5, "first").assert_landed();
    for part in ["lease", "beat"] {
        world.ok(world.git("server.git").args(["update-ref", "-d", &lease.name(part)]));
    }
    let mut told = None;
    wait_until("it has expired", || {
        let tried = lease.take(&bob, 1, "first");
        let is_held = tried.code().as_deref() == Some("FENCE-LEASE-HELD");
        told = Some(tried);
        !is_held
    });
    let told = told.unwrap();
    told.assert_refused("FENCE-STALE");
    assert_eq!(json(&told)["mark"], 5, "5 was granted, though it never wrote");
    lease.take(&bob, 6, "first").assert_landed();
    lease.write(&bob, "main", 6, "first").assert_landed();
    assert_eq!(world.events("lease.found").len(), 1);
    // Set back to what it was: the old holder's numbers stay too old.
    let old = commit(&world, &anna.lease(5, "held", "first"), &[]);
    world.push(&[&format!("{old}:refs/outside/object")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["update-ref", &lease.name("lease"), &old]));
    lease.write(&anna, "main", 5, "first").assert_refused("FENCE-STALE");
    let carl = Agent::new("carl");
    let mut told = None;
    wait_until("it has expired", || {
        let tried = lease.take(&carl, 6, "expired");
        let is_held = tried.code().as_deref() == Some("FENCE-LEASE-HELD");
        told = Some(tried);
        !is_held
    });
    assert_eq!(json(&told.unwrap())["mark"], 7, "7 was bob's");
    lease.take(&carl, 8, "expired").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn a_ref_that_is_no_lease_closes_its_fence_and_says_how_to_open_it() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    lease.release(&anna, 1, "first").assert_landed();
    let blob = world.ok(world.git("server.git").args(["hash-object", "-w", "--stdin"]));
    let update_ref = |to: &str| world.ok(world.git("server.git").args(["update-ref", &lease.name("lease"), to]));
    for garbage in ["blob", "symbolic"] {
        match garbage {
            "blob" => _ = update_ref(&blob),
            _ => _ = world.ok(world.git("server.git").args(["symbolic-ref", &lease.name("lease"), "refs/heads/main"])),
        }
        let refused = world.push_token("main", "5");
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("git update-ref --no-deref -d refs/fence/repo/lease"), "{}", refused.text);
        lease.ask().assert_refused("FENCE-LEASE-INVALID");
        let doctor = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let finding = &report["findings"][0];
        assert_eq!((&finding["name"], &finding["severity"]), (&"lease-unreadable".into(), &"error".into()), "{report}");
        let mut sh = Command::new("sh");
        world.hermetic(&mut sh);
        world.ok(sh.args(["-c", finding["mend"].as_str().unwrap()]));
        let told = lease.take(&anna.again(), 1, "first");
        told.assert_refused("FENCE-STALE");
        let next = json(&told)["mark"].as_u64().unwrap() + 1;
        let anna = anna.again();
        lease.take(&anna, next, "first").assert_landed();
        lease.release(&anna, next, "first").assert_landed();
    }
    world.assert_log_is_whole();
}

#[test]
fn leases_from_before_the_gate_are_found_and_go_on() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let lease = LeaseOf::repo(&world);
        world.configure("receive.advertisePushOptions", "true");
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        lease.take(&anna, 7, "expired").assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!((lease.mark(), &lease.status()["owner"]), (6, &"anna".into()));
        let doctor = world.ok(world.hook_program().arg("doctor").arg(world.server()));
        assert!(doctor.starts_with("ok") && doctor.contains("note: lease-moved"), "{doctor}");
        // Her next word is a heartbeat.
        lease.beat(&anna).assert_landed();
        lease.take(&bob, 8, "expired").assert_refused("FENCE-LEASE-HELD");
        world.push_token("main", "7").assert_refused("FENCE-LEASE-REQUIRED");
        lease.write(&anna, "main", 7, "expired").assert_landed();
        assert_eq!(world.events("lease.found").len(), 1);
        world.assert_log_is_whole();
    }
}

fn revoke(world: &World, args: &[&str]) -> std::process::Output {
    world.hook_program().arg("revoke").args(args).arg(world.server()).output().unwrap()
}

#[test]
fn an_operator_takes_a_lease_away() {
    for git in gits() {
        for init in [&[][..], &["--object-format=sha256"]] {
            let world = World::with(&git, Door::Fence, init);
            let lease = LeaseOf::repo(&world);
            let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
            let said = text(&revoke(&world, &["--reason", "too soon"]).stderr);
            assert!(said.contains("nobody holds the lease"), "{said}");
            lease.take(&anna, 1, "first").assert_landed();
            lease.write(&anna, "main", 1, "first").assert_landed();
            let before = lease.at().unwrap();
            assert!(!revoke(&world, &["--reason", " "]).status.success());
            assert!(!revoke(&world, &["--reason", "x", "--fence", "nowhere"]).status.success());
            let ran = revoke(&world, &["--reason", "it hangs"]);
            assert!(ran.status.success(), "{}", text(&ran.stderr));
            assert_eq!(text(&ran.stdout), "fence 'repo'  the lease of 'anna', token 2, was taken away\n");
            let line = &world.events("lease.revoked")[0];
            assert_eq!((&line["token"], &line["state"]), (&3.into(), &"released".into()));
            assert_eq!((&line["reason"], &line["words"]), (&"revoked".into(), &"it hangs".into()));
            assert!(line["held_ms"].is_u64());
            world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/*:refs/fence/*"));
            assert_eq!(lease.parents_of(&lease.at().unwrap()), [before]);
            let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", &lease.name("lease")]));
            assert!(message.contains("Fence-Reason: revoked: it hangs"), "{message}");
            assert!(!revoke(&world, &["--reason", "again"]).status.success());
            lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
            let next = lease.advanced(&anna, 3, "first");
            let zombie = lease.write_command(&anna, "main", 2, &next).output().unwrap();
            Pushed::from(&zombie).assert_refused("FENCE-STALE");
            lease.take(&bob, 4, "released").assert_landed();
            lease.write(&bob, "main", 4, "released").assert_landed();
            assert!(world.events("lease.found").is_empty());
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn a_lease_is_not_taken_away_under_a_push_in_flight() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let next = lease.advanced(&anna, 2, "first");
    let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
    world.pid_in("stalled");
    let said = text(&revoke(&world, &["--reason", "x"]).stderr);
    assert!(said.contains("a push is in flight") && said.contains("git-fence-hook evict"), "{said}");
    world.go();
    slow.wait().assert_landed();
    assert!(revoke(&world, &["--reason", "x"]).status.success());
}

/// The refs have moved, and whoever moved them was killed before it wrote that down.
#[test]
fn a_revocation_that_was_interrupted_is_found() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    world.write_hook(
        "reference-transaction",
        "[ \"$1\" = committed ] && kill -KILL $(awk '{ print $4 }' /proc/$PPID/stat); exit 0",
    );
    assert!(!revoke(&world, &["--reason", "x"]).status.success());
    fs::remove_file(world.hook("reference-transaction")).unwrap();
    assert!(world.events("lease.revoked").is_empty());
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    assert_eq!(world.events("lease.found").len(), 1);
    world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/*:refs/fence/*"));
    lease.take(&bob, 3, "released").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn root_takes_a_lease_away_and_owns_nothing_of_it() {
    use std::os::unix::fs::MetadataExt;
    if text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() != "0" {
        return;
    }
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    lease.take(&Agent::new("anna"), 1, "first").assert_landed();
    world.ok(world.git("server.git").args(["pack-refs", "--all"]));
    fs::set_permissions(world.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.ok(Command::new("chown").args(["-R", "12345:12345"]).arg(world.server()));
    let ran = revoke(&world, &["--reason", "x"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    for (name, ..) in crate::support::tree(&world.server()) {
        let owner = fs::symlink_metadata(world.server().join(&name)).unwrap().uid();
        assert_eq!(owner, 12345, "{name}");
    }
}

#[test]
fn those_who_may_take_a_lease_away_by_a_push() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, boss) = (Agent::new("anna"), Agent::new("boss"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.take_away(&boss, 2).assert_refused("FENCE-LEASE-INVALID");
    world.configure("fence.allowRevoke", "tester");
    lease.take_away(&boss, 2).assert_landed();
    assert_eq!(world.events("push.accepted").len(), 2);
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    assert_eq!(world.events("lease.revoked")[0]["words"], "it hangs");
    lease.take(&Agent::new("bob"), 3, "released").assert_landed();
    assert_eq!(lease.mark(), 2);
}

#[test]
fn people_who_are_exempt_push_beside_a_lease() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.configure("fence.exempt", "tester");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    world.push_token("main", "1").assert_refused("FENCE-LEASE-REQUIRED");
    lease.write(&anna, "main", 1, "first").assert_landed();
}

/// In what is kept, what is shown, and what is told to others.
#[test]
fn the_secret_is_nowhere() {
    let world = World::new(&any_git());
    let socket = world.path("syslog");
    let listener = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    world.configure("fence.syslog", socket.to_str().unwrap());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    let mut said = String::new();
    let mut hear = |pushed: Pushed| said += &pushed.text;
    hear(lease.take(&anna, 1, "first"));
    hear(lease.beat(&anna));
    hear(lease.write(&anna, "main", 1, "first"));
    let theirs = Agent { secret: anna.secret.clone(), ..bob.clone() };
    hear(lease.beat(&theirs));
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &[format!("fence-holder={}x", anna.secret)]));
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &[format!("fence-holder=nowhere:{}", anna.secret)]));
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &[anna.proof("repo"), bob.proof("repo")]));
    hear(lease.advance(&anna, 9, "first"));
    hear(lease.release(&anna, 2, "first"));
    said += &text(&world.hook_program().args(["status", "--json"]).arg(world.server()).output().unwrap().stdout);
    let mut buffer = vec![0; 65536];
    let mut heard = 0;
    while let Ok(n) = listener.recv(&mut buffer) {
        said += &text(&buffer[..n]);
        heard += 1;
    }
    assert!(heard > 8 && said.contains("FENCE-MALFORMED") && said.contains("lease.renewed"), "{said}");
    for (_, _, content) in crate::support::tree(&world.server().join("fence")) {
        said += &text(&content);
    }
    assert!(said.contains(&anna.holder()));
    for secret in [&anna.secret, &bob.secret] {
        assert!(!said.contains(&secret[..12]), "{said}");
    }
    world.assert_log_is_whole();
}

#[test]
fn leases_are_shown_and_counted() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::brief("b'ob"));
    let show = || world.ok(world.hook_program().arg("status").arg(world.server()));
    assert!(!show().contains("lease"));
    lease.take(&anna, 1, "first").assert_landed();
    Pushed::from(&lease.beat_command(&anna, "Fence-Progress: page 3 of 9\n").output().unwrap()).assert_landed();
    assert!(show().contains("  lease      held by 'anna', token 1, for another "), "{}", show());
    assert!(show().contains("progress 'page 3 of 9'"), "{}", show());
    let status = lease.status();
    assert_eq!((&status["state"], &status["ttl_s"], &status["reason"]), (&"held".into(), &600.into(), &"first".into()));
    assert!(status["left_ms"].as_u64().unwrap() > 0 && status["since"].as_str().unwrap().ends_with('Z'));
    lease.ask().assert_refused("FENCE-LEASE-HELD");
    lease.release(&anna, 1, "first").assert_landed();
    assert!(show().contains("  lease      free: released by 'anna' after token 1"), "{}", show());
    lease.take(&bob, 2, "released").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    assert!(show().contains("  lease      expired: 'b\\'ob' had it"), "{}", show());
    lease.take(&anna.again(), 3, "expired").assert_landed();
    assert!(revoke(&world, &["--reason", "enough"]).status.success());
    assert!(show().contains(", 'enough'"), "{}", show());
    let stats = |args: &[&str]| world.ok(world.hook_program().arg("stats").args(args).arg(world.server()));
    let figures: serde_json::Value = serde_json::from_str(&stats(&["--json"])).unwrap();
    let leases = &figures["leases"];
    let expected = serde_json::json!({ "first": 1, "released": 1, "expired": 1, "revoked": 0 });
    assert_eq!((&leases["granted"], &leases["granted_by_reason"]), (&3.into(), &expected));
    for (name, count) in [("found_held", 1), ("renewed", 1), ("released", 1), ("revoked", 1), ("advanced", 0)] {
        assert_eq!(leases[name], count, "{name}");
    }
    assert_eq!(leases["holds_us"]["count"], 3);
    assert_eq!(
        (&leases["wants_longer_ttl"], &leases["beat_gap_p95_percent"]),
        (&false.into(), &serde_json::Value::Null)
    );
    let prose = stats(&[]);
    for line in [
        "       3  leases granted",
        "       1    after a release",
        "       1  tries that found it held",
        "held, of those that ended",
    ] {
        assert!(prose.lines().any(|shown| shown == line), "{line:?} in\n{prose}");
    }
    let page = stats(&["--prometheus"]);
    assert!(page.contains("git_fence_lease_grants_total{") && page.contains(r#"reason="expired"} 1"#), "{page}");
    assert!(page.contains("git_fence_lease_hold_seconds_count{"), "{page}");
    let audit = world.ok(world.hook_program().arg("audit").arg(world.server()));
    assert!(audit.contains("granted") && audit.contains("(revoked: 'enough')"), "{audit}");
    world.assert_log_is_whole();
}

/// A lease's commits replace each other. Git minds that on branches only, also where it is told to.
#[test]
fn leases_move_where_git_wants_branches_to_go_forward() {
    for git in gits() {
        let world = World::with(&git, Door::Fence, &["--shared"]);
        world.configure("receive.denyNonFastForwards", "true");
        world.configure("receive.denyDeletes", "true");
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        lease.beat(&anna).assert_landed();
        lease.advance(&anna, 2, "first").assert_landed();
        lease.release(&anna, 2, "first").assert_landed();
    }
}

/// The grant is in the log, and git never hears that it was let through.
#[test]
fn a_hook_that_is_killed_after_granting_has_granted_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let installed = fs::read(world.hook("pre-receive")).unwrap();
    under_strace(&world, "exit_group -e inject=exit_group:signal=KILL");
    assert!(!lease.take(&Agent::new("anna"), 1, "first").ok);
    fs::write(world.hook("pre-receive"), installed).unwrap();
    assert_eq!(world.events("push.accepted")[0]["leases"][0]["change"], "grant");
    lease.take(&Agent::new("bob"), 1, "first").assert_landed();
    assert_eq!(lease.status()["owner"], "bob");
    assert_eq!(world.events("lease.granted").len() + world.events("lease.found").len(), 0, "it is not settled yet");
    world.assert_log_is_whole();
}

/// A takeover carries no token of its own, and is newer than the holder that waits behind it.
#[test]
fn a_stalled_takeover_is_not_evicted_by_whom_it_takes_from() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    world.configure("fence.wait", "1s");
    world.configure("fence.evictAfter", "1ms");
    stall_lease(&world);
    let _go = world.go_in_the_end();
    let takeover = Running::start(&mut lease.take_command(&bob, 2, "expired"));
    world.pid_in("stalled");
    lease.write(&anna, "main", 1, "first").assert_refused("FENCE-BUSY");
    assert!(world.events("push.evicted").is_empty());
    world.go();
    takeover.wait().assert_landed();
    lease.write(&anna, "main", 1, "first").assert_refused("FENCE-STALE");
}

#[test]
fn of_eight_who_want_a_lease_one_has_it() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let agents: Vec<Agent> = (0..8).map(|n| Agent::new(&format!("agent-{n}"))).collect();
        let tries: Vec<Running> =
            agents.iter().map(|agent| Running::start(&mut lease.take_command(agent, 1, "first"))).collect();
        let tries: Vec<Pushed> = tries.into_iter().map(Running::wait).collect();
        let winners: Vec<usize> = (0..8).filter(|n| tries[*n].ok).collect();
        let [winner] = winners[..] else { panic!("{winners:?} have it: {tries:#?}") };
        assert_eq!(lease.status()["owner"], agents[winner].name);
        for (n, tried) in tries.iter().enumerate().filter(|(n, _)| *n != winner) {
            assert!(tried.text.contains("FENCE-LEASE-HELD"), "{n}: {}", tried.text);
        }
        lease.write(&agents[winner], "main", 1, "first").assert_landed();
        assert_eq!(world.events("lease.granted").len(), 1);
        world.assert_log_is_whole();
    }
}
