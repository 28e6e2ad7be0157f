//! Stores that do not answer, that let nobody in, or whose records or clocks are wrong.

use super::{agent_at, everywhere, in_one_of, keep_in, only_where, record, record_name, witness};
use crate::support::{
    agents::{Agent, code_of},
    engines::{Kind, PASSWORD, free_port},
    records::Records,
    runs::{Background, holding, take_over, wait_for},
    text, wait_until,
};
use std::{
    fs,
    process::Command,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// What a run says whose command must not start.
#[track_caller]
fn does_not_run(agent: &Agent<'_>, code: i32, outcome: &str) -> String {
    let (got, said) = code_of(&agent.run(&[], "touch ../ran").output().unwrap());
    assert_eq!((got, agent.status()["outcome"].as_str()), (code, Some(outcome)), "{said}");
    assert!(!agent.path("../ran").exists() && !said.contains("skipped:"), "{said}");
    said
}

#[test]
fn engine_that_cannot_be_reached_is_never_taken_for_held() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        let nowhere = match place.kind {
            Kind::Http => format!("http://bot:{PASSWORD}@127.0.0.1:{}/leases", free_port()),
            Kind::Etcd => format!("etcd://bot:{PASSWORD}@127.0.0.1:{}", free_port()),
            Kind::Postgres | Kind::Redis => place.engine().url_at(free_port()),
        };
        let b = agent_at(&world, "b", &nowhere);
        a.ok(&["acquire"]);
        // Each takes as long as the client is patient.
        thread::scope(|scope| {
            scope.spawn(|| {
                let said = does_not_run(&b, 69, "unreachable");
                assert!(said.contains("cannot reach the store ") && !said.contains(PASSWORD), "{said}");
            });
            scope.spawn(|| assert_eq!(b.code(&["acquire"]).0, 69));
            scope.spawn(|| assert_eq!(b.code(&["push", "origin", "HEAD:main"]).0, 69));
            scope.spawn(|| assert_eq!(b.code(&["revoke", "--reason", "x"]).0, 69));
        });
        assert_eq!(world.server_ref("refs/heads/main"), None);
        a.ok(&["renew"]);
    });
}

/// The engine stops in the middle: the run ends with its lease, and nothing of it lands later.
#[test]
fn run_whose_engine_goes_silent_ends_with_its_lease() {
    only_where(in_one_of(&[Kind::Redis, Kind::Etcd]), |place| {
        let engine = place.kind.own();
        let world = place.world_at(&engine.url);
        let a = agent_at(&world, "a", &engine.url);
        let run = holding(&a, &["--ttl", "3s"], "true");
        engine.processes[0].signal("STOP");
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(a.status()["outcome"], "lost");
        engine.processes[0].signal("CONT");
    });
}

#[test]
fn wrong_password_is_denied_and_not_shown() {
    only_where(in_one_of(&[Kind::Postgres, Kind::Redis]), |place| {
        let world = place.world();
        let a = agent_at(&world, "a", &place.engine().url.replace(PASSWORD, "wrong-secret"));
        let said = does_not_run(&a, 77, "denied");
        assert!(said.contains("no access to the store ") && !said.contains("wrong-secret"), "{said}");
        for args in [&["acquire", "--json"][..], &["push", "origin", "HEAD:main"]] {
            let (code, said) = a.code(args);
            assert_eq!((code, said.contains("wrong-secret")), (77, false), "{said}");
        }
    });
}

#[test]
fn records_that_are_not_ours_are_left_alone() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["acquire"]);
        let (url, name) = (&place.engine().url, record_name(&world));
        let good = Records::at(url).body(&name).unwrap();
        for (body, words) in [
            ("garbage", "it is not a record of git-fence: "),
            ("{}", "it is not a record of git-fence: "),
            (&good[..good.len() / 2], "it is not a record of git-fence: "),
            (
                &good.replacen("\"format\":1", "\"format\":3", 1),
                "it has format 3, and this git-fence supports formats 1 and 2",
            ),
            (&good.replacen(&name, "another/name/repo", 1), "it is the record of 'another/name/repo'"),
        ] {
            Records::at(url).put(&name, body);
            for args in [&["acquire"][..], &["renew"], &["advance"], &["release"]] {
                let (code, said) = a.code(args);
                assert!(code == 1 || (args[0] == "acquire" && code == 11), "{args:?} {words}: {code}: {said}");
                assert!(code == 11 || said.contains(words), "{args:?}: {said}");
            }
            let b = world.agent(&format!("b{}", body.len()));
            keep_in(&b, url);
            let said = does_not_run(&b, 1, "broken");
            assert!(said.contains(words) && said.contains("nothing was written"), "{said}");
            assert_eq!(Records::at(url).body(&name).as_deref(), Some(body), "it is as it was");
        }
        Records::at(url).put(&name, &good);
        // Numbers that went unused do no harm.
        let landed = a.ok(&["push", "origin", "HEAD:main"]);
        assert!(landed.starts_with("landed with token "), "{landed}");
        a.ok(&["renew"]);
        a.ok(&["release"]);
        witness::assert_fenced(&world);
    });
}

/// Clocks decide who may try, never whose write counts.
#[test]
fn store_whose_clock_jumps_costs_work_and_never_correctness() {
    only_where(in_one_of(&[Kind::Http]), |place| {
        let engine = Kind::Http.own();
        let web = engine.web.as_ref().unwrap();
        let world = place.world_at(&engine.url);
        let [a, b] = ["a", "b"].map(|name| agent_at(&world, name, &engine.url));
        a.ok(&["acquire", "--ttl", "1h"]);
        a.ok(&["push", "origin", "HEAD:main"]);
        assert_eq!(b.code(&["acquire"]).0, 11);
        web.set_ahead(7200);
        assert_eq!(b.ok(&["acquire", "--ttl", "2s"]), "2");
        let (code, said) = a.code(&["push", "origin", "HEAD:other"]);
        assert_eq!(code, 75, "{said}");
        assert_eq!(a.code(&["renew"]).0, 12);
        // Now the stamp of the holder is in the future: it counts as long as it is renewed, and then by watching.
        web.set_ahead(-7200);
        assert_eq!(a.code(&["acquire", "--skew", "0s"]).0, 11);
        b.ok(&["renew"]);
        b.ok(&["push", "origin", "+HEAD:main"]);
        web.set_ahead(-14400);
        b.ok(&["push", "origin", "HEAD:other"]);
        let done = world.path("done");
        thread::scope(|scope| {
            scope.spawn(|| {
                take_over(&a, &[], "git push -q origin +HEAD:main");
                fs::write(&done, "").unwrap();
            });
            // Nobody renews it any more.
            wait_until("it was taken over", || done.exists());
        });
        assert_eq!(b.code(&["push", "origin", "HEAD:late"]).0, 75);
        assert_eq!(world.server_ref("refs/heads/late"), None);
        witness::assert_fenced(&world);
    });
}

/// Stamps are in the time of the store, also those of a command that has not read anything before.
#[test]
fn clock_of_the_holder_does_not_matter() {
    everywhere(|place| {
        for offset in ["-7200", "7200"] {
            let world = place.world();
            let [a, b] = place.agents(&world, ["a", "b"]);
            for args in [&["acquire", "--ttl", "10m"][..], &["renew"]] {
                let ran = a.fence(args).env("GIT_FENCE_CLOCK_OFFSET", offset).output().unwrap();
                assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
                let record = record(&world, &place.engine().url);
                let deadline = record["beat"]["deadline"].as_str().unwrap();
                let deadline = world.ok(Command::new("date").args(["-u", "+%s", "-d", deadline]));
                let left = deadline.parse::<u64>().unwrap().saturating_sub(now());
                assert!((300..=600).contains(&left), "{offset} {args:?}: {left} s left");
            }
            assert_eq!(b.code(&["acquire"]).0, 11, "{offset}");
        }
    });
}

/// In seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The password is nowhere but where it was set, and in the local state of the lease.
#[test]
fn password_of_the_store_is_shown_nowhere() {
    only_where(in_one_of(&[Kind::Postgres, Kind::Redis]), |place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let seen = world.path("seen");
        let script =
            format!("env; git push origin HEAD:slow; git fence status --json; git fence log; {}", wait_for(&seen));
        let run = Background::start(&mut a.run(&["--ttl", "2s"], &script));
        world.pid_in("stalled");
        let mut said = run.arguments();
        assert!(said.contains("git-fence-store") && said.contains("receive-pack"), "{said}");
        world.go();
        for args in [
            &["acquire", "--json"][..],
            &["status"],
            &["push", "--json", "origin", "HEAD:b"],
            &["revoke", "--json", "--reason", "x"],
            &["log"],
            &["release"],
        ] {
            said += &b.code(args).1;
        }
        fs::write(&seen, "").unwrap();
        let ended = run.end();
        said += &(text(&ended.stdout) + &text(&ended.stderr));
        said += &a.status().to_string();
        said += &world.ok(world.git("server.git").args(["log", "--all", "--format=%an %ae %B", "--", "."]));
        let refs = ["for-each-ref", "--format=%(refname) %(contents)"];
        said += &world.ok(world.git("server.git").args(refs));
        assert!(said.contains("Fence-Store: "), "{said}");
        assert!(!said.contains(PASSWORD), "{said}");
    });
}
