//! Every allowed move of a lease, and those that are refused.

use super::json;
use crate::support::{
    Door, Pushed, World, any_git, gits,
    lease::{Agent, LeaseOf, commit, hash_of},
    raw,
};

#[test]
fn lease_goes_through_its_whole_life() {
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
            assert_eq!(written.remote, "", "an accepted push prints nothing");
            lease.write(&anna, "main", 2, "first").assert_landed();
            assert_eq!(lease.mark(), 2);
            lease.advance(&anna, 4, "first").assert_landed();
            assert_eq!(lease.mark(), 3, "the holder of 3 is too late");
            lease.release(&anna, 4, "first").assert_landed();
            lease.take(&bob, 5, "released").assert_landed();
            assert_eq!(lease.mark(), 4);
            // Its history shows who held it.
            assert_eq!(lease.parents_of(&lease.at().unwrap()).len(), 1);
            lease.write(&bob, "main", 5, "released").assert_landed();
            lease.beat(&bob).assert_landed();
            let events: Vec<String> = world
                .audit()
                .iter()
                .map(|line| line["event"].as_str().unwrap().to_owned())
                .filter(|event| event.starts_with("lease.") && event != "lease.refused")
                .collect();
            let steps = "granted renewed advanced advanced advanced released granted advanced renewed";
            assert_eq!(events, steps.split(' ').map(|step| format!("lease.{step}")).collect::<Vec<_>>(), "{init:?}");
            world.assert_log_is_whole();
        }
    }
}

/// Every way to move a lease that is held, with the code that refuses it. Each is a forced push, so that only the gate
/// can refuse it, and afterwards everything is unchanged.
#[test]
fn anything_but_the_holders_next_step_is_refused_and_changes_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.write(&anna, "main", 1, "first").assert_landed();
    lease.release(&anna, 2, "first").assert_landed();
    let anna = anna.again();
    lease.take(&anna, 3, "released").assert_landed();
    let (at, parent) = (lease.at().unwrap(), lease.parents_of(&lease.at().unwrap()));
    let held = |agent: &Agent, token| agent.lease(token, "held", "released");
    let unproven = |message: &str| vec![lease.record("lease", message, &parent)];
    let step = |message: &str| unproven(&lease.proven(&anna, "lease", message));
    let was = lease.proven(&anna, "lease", "");
    let new = |agent: &Agent, message: &str, parents: &[String]| {
        vec![lease.record("lease", message, parents), lease.record("beat", &agent.beat(""), &[])]
    };
    let renamed = Agent { name: "mallory".to_owned(), ..anna.clone() };
    let slower = Agent { ttl: "86400s".to_owned(), ..anna.clone() };
    let beat = |agent: &Agent| vec![lease.record("beat", &agent.beat(""), &[])];
    let rewind = vec![format!("{}:{}", parent[0], lease.name("lease"))];
    let with_proof_of = |agent: &Agent, message: &str| lease.proven(agent, "lease", message);
    let reused = held(&anna, 4);
    let (head, tail) = reused.split_once("Fence-Holder: ").unwrap();
    let shown = was.trim_end().strip_prefix("Fence-Proof: ").unwrap();
    let reused = format!("{head}Fence-Holder: {}{}", hash_of(shown), &tail[64..]);
    let at_list = [at];
    let none = Vec::new;
    for (what, refspecs, options, code) in [
        ("an advance without a proof", unproven(&held(&anna, 4)), none(), "FENCE-LEASE-REQUIRED"),
        ("one with another's", unproven(&with_proof_of(&bob, &held(&anna, 4))), none(), "FENCE-LEASE-INVALID"),
        ("one with the beat's", unproven(&lease.proven(&anna, "beat", &held(&anna, 4))), none(), "FENCE-LEASE-INVALID"),
        ("one with its proof as an option", unproven(&held(&anna, 4)), vec![was_option(shown)], "FENCE-LEASE-REQUIRED"),
        ("a proof that is to be good again", step(&reused), none(), "FENCE-LEASE-INVALID"),
        ("an advance by two", step(&held(&anna, 5)), none(), "FENCE-LEASE-INVALID"),
        ("an advance by none", step(&held(&anna, 3)), none(), "FENCE-LEASE-INVALID"),
        ("an advance back", step(&held(&anna, 2)), none(), "FENCE-LEASE-INVALID"),
        ("another name", step(&held(&renamed, 4)), none(), "FENCE-LEASE-INVALID"),
        ("the format before", step(&anna.as_before(&held(&anna, 4))), none(), "FENCE-LEASE-REQUIRED"),
        ("another TTL", step(&held(&slower, 4)), none(), "FENCE-LEASE-INVALID"),
        (
            "a history that grows",
            vec![lease.record("lease", &with_proof_of(&anna, &held(&anna, 4)), &at_list)],
            none(),
            "FENCE-LEASE-INVALID",
        ),
        (
            "a history that is cut",
            vec![lease.record("lease", &with_proof_of(&anna, &held(&anna, 4)), &[])],
            none(),
            "FENCE-LEASE-INVALID",
        ),
        ("a release with a token", step(&anna.lease(4, "released", "released")), none(), "FENCE-LEASE-INVALID"),
        ("a release without a proof", unproven(&anna.lease(3, "released", "released")), none(), "FENCE-LEASE-REQUIRED"),
        ("a rewind", rewind, none(), "FENCE-LEASE-LOST"),
        (
            "a takeover of what is held",
            new(&bob, &bob.lease(4, "held", "expired"), &at_list),
            none(),
            "FENCE-LEASE-HELD",
        ),
        (
            "the same as a revocation",
            new(&bob, &bob.lease(4, "released", "revoked"), &at_list),
            none(),
            "FENCE-LEASE-INVALID",
        ),
        ("another agent's beat", vec![lease.beating(&bob, "")], none(), "FENCE-LEASE-LOST"),
        ("a beat without a proof", beat(&anna), none(), "FENCE-LEASE-REQUIRED"),
        ("a beat with a secret in an option", beat(&anna), vec![was_option(shown)], "FENCE-LEASE-REQUIRED"),
        (
            "a beat with another's",
            vec![lease.record("beat", &lease.proven(&bob, "beat", &anna.beat("")), &[])],
            none(),
            "FENCE-LEASE-INVALID",
        ),
        ("a secret that is none", beat(&anna), vec!["fence-holder=xyz".to_owned()], "FENCE-MALFORMED"),
    ] {
        let (refs, lines) = (world.server_ref("refs/"), world.audit().len());
        let pushed = lease.push(&refspecs, &options);
        assert_eq!(pushed.code().as_deref(), Some(code), "{what}: {}", pushed.text);
        pushed.assert_refused(code);
        assert_eq!(world.server_ref("refs/"), refs, "{what}");
        assert!(world.audit().len() > lines, "{what} is not recorded");
    }
    lease.write(&anna, "main", 3, "released").assert_landed();
    // Even when it is free, not everything is allowed.
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
    // The lease is no longer anna's, whatever secret she has.
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    lease.advance(&anna, 5, "released").assert_refused("FENCE-LEASE-LOST");
    lease.release(&anna, 4, "released").assert_refused("FENCE-LEASE-LOST");
    lease.take(&bob, 5, "released").assert_landed();
    world.assert_log_is_whole();
}

fn was_option(secret: &str) -> String {
    format!("fence-holder={secret}")
}

#[test]
fn refused_low_grant_names_the_next_token() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    world.ok(world.hook_program().args(["raise", "--to", "41", "--reason", "x"]).arg(world.server()));
    let anna = Agent::new("anna");
    let told = lease.take(&anna, 1, "first");
    told.assert_refused("FENCE-STALE");
    assert_eq!((json(&told)["token"].as_u64(), json(&told)["mark"].as_u64()), (Some(1), Some(41)));
    lease.take(&anna, 42, "first").assert_landed();
    assert_eq!(lease.mark(), 41);
    lease.release(&anna, 42, "first").assert_landed();
    // 42 was granted and has not written: the mark alone would not show it.
    let told = lease.take(&Agent::new("bob"), 42, "released");
    told.assert_refused("FENCE-STALE");
    assert_eq!(json(&told)["mark"], 42);
    assert_eq!(world.events("lease.refused").last().unwrap()["mark"], 42);
}

#[test]
fn last_token_may_be_spent_with_the_release() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    let release = lease.released(&anna, 1, "first");
    Pushed::from(&lease.write_command(&anna, "main", 1, &release).output().unwrap()).assert_landed();
    assert_eq!((lease.mark(), &lease.status()["state"]), (1, &"released".into()));
    // Between leases nobody writes without one either.
    world.push_token("main", "2").assert_refused("FENCE-LEASE-REQUIRED");
    // Acquiring and writing are two steps: a lease that is acquired together with a branch was never held.
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

/// A token beside a lease alone would be spent without a move, and lock everyone out.
#[test]
fn huge_token_beside_a_grant_is_not_spent() {
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
        // A fence with mode off judges nothing.
        world.push(&["HEAD:refs/fence/quiet/lease"], &[]).assert_landed();
        world.push(&[":refs/fence/quiet/lease"], &[]).assert_landed();
        lease.take(&anna, 1, "first").assert_landed();
        for part in ["lease", "beat"] {
            let deleted = lease.push(&[format!(":{}", lease.name(part))], &[]);
            deleted.assert_refused("FENCE-LEASE-INVALID");
            assert!(deleted.text.contains("must not be deleted"), "{}", deleted.text);
        }
        let blob = world.ok(world.git("work").args(["hash-object", "-w", "--stdin"]));
        let tagged = lease.at().unwrap();
        world.ok(world.git("work").args(["tag", "-f", "-a", "-m", "x", "tagged", &tagged]));
        let tag = world.ok(world.git("work").args(["rev-parse", "tagged"]));
        let future = anna.lease(2, "held", "first").replace("Fence-Format: 2", "Fence-Format: 4");
        let future = commit(&world, &future, &[]);
        let large = anna.lease(2, "held", "first").replace("\n\n", &format!("\n\n{}\n\n", "x".repeat(70_000)));
        let large = commit(&world, &large, &[]);
        let head = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
        for (object, word) in [
            (&blob, "a blob"),
            (&tag, "a tag"),
            (&future, "has format 4"),
            (&large, "larger than"),
            (&head, "not a record"),
        ] {
            for part in ["lease", "beat"] {
                let pushed = raw_or_real(&lease, object, part);
                pushed.assert_refused("FENCE-LEASE-INVALID");
                assert!(pushed.text.contains(word), "{}", pushed.text);
            }
        }
        // Under another name.
        world.ok(world.git("server.git").args(["symbolic-ref", "refs/aside/alias", &lease.name("lease")]));
        world.ok(world.git("server.git").args(["symbolic-ref", "refs/fence/repo/beat", "refs/heads/main"]));
        world.push(&[&format!("+{head}:refs/aside/alias")], &[]).assert_refused("FENCE-LEASE-INVALID");
        // Not even by a heartbeat that is otherwise correct.
        lease.beat(&anna).assert_refused("FENCE-LEASE-INVALID");
        assert_eq!(world.server_ref("refs/heads/main"), None);
        assert_eq!(lease.at().unwrap(), tagged);
        // Twice in one push.
        let next = lease.advanced(&anna, 2, "first");
        let (new, name) = next.split_once(':').unwrap();
        world.push(&[&format!("{new}:refs/outside/object")], &[]).assert_landed();
        let there_and_back = [raw::RawCommand::new(&tagged, new, name), raw::RawCommand::new(new, &tagged, name)];
        let twice = raw::push(&world, &there_and_back, &[]);
        twice.assert_refused("FENCE-MALFORMED");
        world.assert_log_is_whole();
    }
}

/// Git itself refuses to push some objects to some names. The server must refuse them.
fn raw_or_real(lease: &LeaseOf<'_>, object: &str, part: &str) -> Pushed {
    lease.push(&[format!("{object}:{}", lease.name(part))], &[])
}

/// The commits of a lease replace each other. Git checks fast-forwards on branches only, even with this setting.
#[test]
fn leases_move_despite_deny_non_fast_forwards() {
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
