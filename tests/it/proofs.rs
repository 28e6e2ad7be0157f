//! A holder proves that it holds the lease, and each proof is valid once: a proof that others can read is useless.

use crate::support::{
    Pushed, World,
    agents::Agent as Clone,
    any_git, gits,
    lease::{Agent, LeaseOf, commit},
    text,
};
use std::{fs, path::PathBuf};

/// Makes the server record every push option that it receives.
fn take_down_options(world: &World) {
    let gate = world.hook("pre-receive");
    fs::rename(&gate, world.hook("gate")).unwrap();
    let body = "env | grep '^GIT_PUSH_OPTION_[0-9]' >>options; exec \"$(dirname \"$0\")/gate\"";
    world.write_hook("pre-receive", body);
}

fn has_a_secret(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 64)
}

fn dir_of(clone: &Clone<'_>) -> PathBuf {
    fs::read_dir(clone.path(".git/git-fence/leases")).unwrap().next().unwrap().unwrap().path()
}

fn json(path: PathBuf) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Git keeps them in push certificates, which everyone can fetch, and over http passes them to a helper as arguments.
#[test]
fn no_secret_is_in_any_push_option() {
    for git in gits() {
        let world = World::new(&git);
        take_down_options(&world);
        let a = world.agent("a");
        a.ok(&["acquire"]);
        let master = json(dir_of(&a).join("lease.json"))["master"].as_str().unwrap_or_default().to_owned();
        for args in [&["renew"][..], &["push", "origin", "HEAD:main"], &["renew"], &["advance"], &["release"]] {
            a.ok(args);
        }
        let push = "git commit -q --allow-empty -m more && git push -q origin HEAD:main";
        world.ok(&mut a.run(&[], &format!("{push} && {push}")));
        let options = fs::read_to_string(world.server().join("options")).unwrap();
        assert!(options.matches("=fence-token=").count() >= 3, "{options}");
        assert!(!options.contains("fence-holder") && !has_a_secret(&options), "{options}");
        assert_eq!(world.events("lease.renewed").len(), 2, "the proofs were accepted");
        assert_eq!(master.len(), 64);
        for (name, _, content) in crate::support::tree(&world.server()) {
            assert!(!text(&content).contains(&master), "{name}");
        }
        let loose = world.ok(world.git("server.git").args(["cat-file", "--batch-all-objects", "--batch"]));
        assert!(loose.contains("Fence-Proof: ") && !loose.contains(&master));
        world.assert_log_is_whole();
    }
}

/// Everyone who may read the repository can fetch the records, with the proofs that they carry.
#[test]
fn fetched_proofs_move_nothing() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        lease.write(&anna, "main", 1, "first").assert_landed();
        lease.beat(&anna).assert_landed();
        lease.beat(&anna).assert_landed();
        let shown = |part: &str| {
            let name = lease.name(part);
            let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", &name]));
            format!("{}\n", message.lines().find(|line| line.starts_with("Fence-Proof: ")).unwrap())
        };
        let (of_lease, of_beat) = (shown("lease"), shown("beat"));
        let parents = lease.parents_of(&lease.at().unwrap());
        for proof in [&of_lease, &of_beat] {
            for message in [anna.lease(3, "held", "first"), anna.lease(2, "released", "first")] {
                let step = lease.record("lease", &format!("{message}{proof}"), &parents);
                lease.push(std::slice::from_ref(&step), &[]).assert_refused("FENCE-LEASE-INVALID");
                let stolen = Pushed::from(&lease.write_command(&anna, "main", 2, &step).output().unwrap());
                stolen.assert_refused("FENCE-LEASE-INVALID");
            }
            let beat = lease.record("beat", &format!("{}{proof}", anna.beat("")), &[]);
            lease.push(&[beat], &[]).assert_refused("FENCE-LEASE-INVALID");
        }
        lease.write(&anna, "main", 2, "first").assert_landed();
        lease.beat(&anna).assert_landed();
        world.assert_log_is_whole();
    }
}

/// Admitted by the gate and declined after it: nothing has landed, so no proof is used up.
#[test]
fn declined_move_is_retried_with_the_same_proof() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        let a = world.agent("a");
        world.write_hook("update", "exit 1");
        for _ in 0..2 {
            assert!(!lease.write(&anna, "main", 1, "first").ok);
            assert!(!lease.beat(&anna).ok);
        }
        fs::remove_file(world.hook("update")).unwrap();
        lease.beat(&anna).assert_landed();
        lease.write(&anna, "main", 1, "first").assert_landed();
        lease.release(&anna, 2, "first").assert_landed();
        // The same for the client.
        a.ok(&["acquire"]);
        world.write_hook("update", "exit 1");
        for args in [&["renew"][..], &["push", "origin", "HEAD:other"], &["advance"], &["release"]] {
            assert_ne!(a.code(args).0, 0, "{args:?}");
        }
        fs::remove_file(world.hook("update")).unwrap();
        for args in [&["renew"][..], &["push", "origin", "HEAD:other"], &["renew"], &["release"]] {
            a.ok(args);
        }
        world.assert_log_is_whole();
    }
}

/// The master secret of the next proof is on disk before the server receives anything.
#[test]
fn client_that_died_while_sending_can_prove_its_lease() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    let seen = world.path("seen");
    let leases = a.path(".git/git-fence/leases");
    world.write_hook("update", &format!("cat {}/*/lease.json >>{}", leases.display(), seen.display()));
    a.ok(&["acquire"]);
    let master = json(dir_of(&a).join("lease.json"))["master"].as_str().unwrap().to_owned();
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains(&master) && seen.contains("\"nonce\""), "{seen}");
}

/// A takeover that lands in part: the beat then belongs to another, and the holder continues from the beat in the log.
#[test]
fn foreign_beat_does_not_break_the_holders_chain() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    let lease = LeaseOf::repo(&world);
    a.ok(&["acquire"]);
    a.ok(&["renew"]);
    let foreign = commit(&world, &Agent::new("bob").beat(""), &[]);
    world.push(&[&format!("{foreign}:refs/outside/object")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["update-ref", &lease.name("beat"), &foreign]));
    a.ok(&["renew"]);
    a.ok(&["renew"]);
    a.ok(&["release"]);
}

/// It keeps its single secret and its push options. A new ownership in that format is refused.
#[test]
fn lease_of_the_previous_format_works_until_it_ends() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("receive.advertisePushOptions", "true");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        let (option, token) = ([anna.option_of_before("repo")], |n: u64| format!("fence-token={n}"));
        let old = |part: &str, message: &str, parents: &[String]| lease.record(part, &anna.as_before(message), parents);
        let taking = [old("lease", &anna.lease(7, "held", "first"), &[]), old("beat", &anna.beat(""), &[])];
        lease.push(&taking, &[]).assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        let beat = || lease.push(&[old("beat", &anna.beat(""), &[])], &option);
        beat().assert_landed();
        beat().assert_landed();
        lease.push(&[old("beat", &anna.beat(""), &[])], &[]).assert_refused("FENCE-LEASE-REQUIRED");
        lease.beat(&anna).assert_refused("FENCE-LEASE-INVALID");
        lease.advance(&anna, 8, "first").assert_refused("FENCE-LEASE-REQUIRED");
        let work = format!("{}:refs/heads/main", world.commit("work"));
        let step = old("lease", &anna.lease(8, "held", "first"), &[]);
        lease.push(&[work, step], &[token(7), option[0].clone()]).assert_landed();
        let step = old("lease", &anna.lease(9, "held", "first"), &[]);
        lease.push(&[step], &option).assert_landed();
        let step = old("lease", &anna.lease(9, "released", "first"), &[]);
        lease.push(&[step], &option).assert_landed();
        // After it has ended.
        let before = lease.before();
        let late = [
            lease.record("lease", &bob.as_before(&bob.lease(10, "held", "released")), &before),
            lease.record("beat", &bob.as_before(&bob.beat("")), &[]),
        ];
        let refused = lease.push(&late, &[]);
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("update git-fence"), "{}", refused.text);
        lease.take(&bob, 10, "released").assert_landed();
        world.assert_log_is_whole();
    }
}

/// A lease that `git fence` of the previous version has acquired in this clone.
fn as_taken_before(world: &World, a: &Clone<'_>) -> String {
    let lease = LeaseOf::repo(world);
    let dir = dir_of(a);
    let (mut held, mut pulse) = (json(dir.join("lease.json")), json(dir.join("beat.json")));
    let secret = held["master"].as_str().unwrap().to_owned();
    let agent = Agent { secret: secret.clone(), ..Agent::new("a") };
    for (part, place) in [("lease", &mut held["commit"]), ("beat", &mut pulse["commit"])] {
        let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", &lease.name(part)]));
        let record = lease.record(part, &agent.as_before(message.trim_end()), &[]);
        lease.push(std::slice::from_ref(&record), &[]).assert_landed();
        *place = record.split(':').next().unwrap().into();
    }
    let old = held.as_object_mut().unwrap();
    old.remove("master");
    old.insert("secret".to_owned(), secret.clone().into());
    let record = old["lease"].as_object_mut().unwrap();
    record.remove("format");
    record.insert("holder".to_owned(), agent.holder_of_before().into());
    pulse.as_object_mut().unwrap().remove("nonce");
    fs::write(dir.join("lease.json"), held.to_string()).unwrap();
    fs::write(dir.join("beat.json"), pulse.to_string()).unwrap();
    secret
}

/// Every user on the machine can see the arguments of a process, so the secret must not be there either.
#[test]
fn lease_acquired_by_the_previous_version_stays_valid_in_its_clone() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("receive.advertisePushOptions", "true");
        let a = world.agent("a");
        a.ok(&["acquire", "--owner", "a"]);
        let secret = as_taken_before(&world, &a);
        a.ok(&["renew"]);
        a.ok(&["advance"]);
        world.ok(world.hook_program().arg("install").arg(world.server()));
        let trace = world.path("trace");
        for args in [&["renew"][..], &["push", "origin", "HEAD:main"], &["renew"], &["advance"], &["release"]] {
            let ran = a.fence(args).env("GIT_TRACE", &trace).env("GIT_TRACE2_EVENT", &trace).output().unwrap();
            assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
        }
        // The server's own git, which is traced here as well, passes the options to its hook.
        let trace = fs::read_to_string(&trace).unwrap();
        let ours: Vec<&str> = trace.lines().filter(|line| !line.contains("GIT_PUSH_OPTION_COUNT")).collect();
        assert!(ours.iter().any(|line| line.contains("receive-pack")));
        assert!(!ours.iter().any(|line| line.contains(&secret)), "the secret is in the trace");
        assert_eq!(world.lease("Format"), "1");
        // The next lease is acquired in the current format.
        a.ok(&["acquire"]);
        assert_eq!(world.lease("Format"), "2");
        a.ok(&["push", "origin", "HEAD:other"]);
        world.assert_log_is_whole();
    }
}
