//! Every JSON that the programs print is what docs/git-fence.schema.json says.

use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git,
    schema::{assert_is, schema},
    text, wait_until,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, process::Command};

/// Outcomes that this test does not provoke, each with the module that does. What the tests' tools read from the programs
/// (status files, the gate's lines, `status` and `audit` of the gate) is compared with the schema everywhere.
const ELSEWHERE: [(&str, &str); 12] = [
    ("running", "run"),
    ("interrupted", "interrupted"),
    ("stalled", "run"),
    ("busy", "contention"),
    ("denied", "denied"),
    ("unknown", "lost_answers"),
    ("not-landed", "lost_answers"),
    ("landed-in-part", "lost_answers"),
    ("checked", "stores::managing"),
    ("made", "stores::managing"),
    ("moved", "stores::managing"),
    ("kept-elsewhere", "stores::one_place"),
];

/// The line that a command prints as JSON. It is on a line of its own, the last.
fn line(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    let last = stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {stdout}\n{}", text(&output.stderr)))
}

/// Runs `git fence` with `--json`, and checks its result.
fn result(agent: &Agent<'_>, args: &[&str], seen: &mut BTreeSet<String>) -> Value {
    let (command, rest) = args.split_first().unwrap();
    let value = line(&mut agent.fence(&[&[*command, "--json"], rest].concat()));
    assert_is("result", &value);
    seen.insert(value["outcome"].as_str().unwrap().to_owned());
    value
}

/// What the gate says to programs.
fn gate_lines(said: &str) -> Vec<Value> {
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix("remote: fence: "));
    lines.map(|line| serde_json::from_str(line.trim()).unwrap()).collect()
}

/// A life of a lease, from the first grant to a loss; returns the outcomes that were seen.
fn life(world: &World, remote: Remote) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let (a, b) = (world.agent("a"), world.agent("b"));
    let mut of = |agent: &Agent<'_>, args: &[&str]| result(agent, args, &mut seen);
    of(&a, &["status"]);
    of(&a, &["release"]);
    of(&a, &["acquire", "--ttl", "1h", "--owner", "agent a", "--reason", "nightly"]);
    of(&a, &["acquire"]);
    let held = of(&b, &["acquire", "--owner", "agent b"]);
    assert_eq!((&held["owner"], &held["holder"]["owner"]), (&"agent b".into(), &"agent a".into()));
    assert_eq!((&held["code"], &held["exit_code"]), (&"FENCE-LEASE-HELD".into(), &11.into()));
    of(&b, &["push", "origin", "HEAD:refs/heads/x"]);
    of(&b, &["status"]);
    of(&b, &["run", "--", "true"]);
    of(&b, &["run", "--if-held", "fail", "--", "true"]);
    of(&b, &["run", "--wait", "1s", "--", "true"]);
    of(&a, &["progress", "page 3 of 9"]);
    of(&a, &["renew"]);
    of(&a, &["advance"]);
    of(&a, &["push", "--dry-run", "origin", "HEAD:refs/heads/x"]);
    of(&a, &["push", "origin", "HEAD:refs/heads/x"]);
    of(&b, &["revoke", "--reason", "it hangs"]);
    let lost = of(&a, &["renew"]);
    if remote == Remote::Gate {
        assert_eq!((&lost["outcome"], &lost["code"]), (&"lost".into(), &"FENCE-LEASE-LOST".into()), "{lost}");
    }
    of(&a, &["release"]);
    of(&b, &["revoke", "--reason", "it hangs"]);
    of(&b, &["status"]);
    assert_eq!(of(&b, &["resume", "--reason", "x"])["outcome"], "not-halted");
    let halted = of(&b, &["halt", "--owner", "boss", "--reason", "enough"]);
    assert_eq!((&halted["outcome"], &halted["halt"]["by"]), (&"halted".into(), &"boss".into()));
    of(&a, &["acquire"]);
    of(&b, &["status"]);
    assert_eq!(of(&a, &["run", "--", "true"])["outcome"], "halted");
    assert_eq!(of(&b, &["resume", "--reason", "x"])["outcome"], "resumed");
    of(&b, &["acquire", "--ttl", "no time"]);
    let refused = of(&b, &["push", "origin", "HEAD~0:refs/heads/x"]);
    assert_eq!(refused["outcome"], "refused", "{refused}");
    of(&b, &["push", "origin", "nothing:refs/heads/x"]);
    of(&b, &["run", "--", "no-such-command"]);
    of(&b, &["run", "--max-hold", "1s", "--", "sleep", "60"]);
    let ran = of(&b, &["run", "--", "printf", "no newline"]);
    assert_eq!((&ran["outcome"], &ran["exit_code"]), (&"ran".into(), &0.into()), "{ran}");
    let scheduled = &["run", "--every", "100d", "--job", "nightly"][..];
    for outcome in ["ran", "already-done"] {
        assert_eq!(of(&b, &[scheduled, &["--", "true"]].concat())["outcome"], outcome);
    }
    let too_late = of(&b, &["run", "--every", "50d", "--job", "late", "--start-within", "1s", "--", "true"]);
    assert_eq!(too_late["outcome"], "not-due", "{too_late}");
    assert_eq!(of(&b, &["ticks"])["jobs"][0]["job"], "nightly");
    of(&b, &["ticks", "reschedule", "nightly", "--cron", "30 3 * * *"]);
    of(&b, &["ticks", "forget", "nightly", "--reason", "not needed"]);
    of(&b, &["acquire"]);
    of(&b, &["release"]);
    if remote == Remote::Bare {
        world.ok(b.git().args(["push", "-q", "origin", "HEAD:refs/fence/bad/lease"]));
        assert_eq!(of(&b, &["status", "--fence", "bad"])["outcome"], "broken");
    }
    assert_is("log", &line(&mut b.fence(&["log", "--json"])));
    of(&b, &["status", "--remote", "/nowhere"]);
    seen
}

#[test]
fn every_command_prints_what_the_schema_says() {
    let mut seen = BTreeSet::new();
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        if remote == Remote::Gate {
            world.configure("fence.allowRevoke", "tester");
        }
        seen.extend(life(&world, remote));
        if remote == Remote::Gate {
            let agent = world.agent("c");
            seen.insert(result(&agent, &["status", "--fence", "typo"], &mut seen.clone())["outcome"].to_string());
            of_the_gate(&world, &agent);
        }
    }
    let world = Remote::Gate.world(&any_git());
    let agent = world.agent("own");
    let mut push = || result(&agent, &["push", "--token", "7", "origin", "HEAD:refs/heads/x"], &mut seen);
    assert_eq!(push()["outcome"], "landed");
    // With nothing to push, git sends the options to a receive-pack that may have ended, and then dies of SIGPIPE: `unknown`.
    wait_until("it is told as up to date", || push()["outcome"] == "up-to-date");
    let stale = result(&agent, &["push", "--token", "7", "origin", "HEAD:refs/heads/y"], &mut seen);
    assert_eq!((&stale["outcome"], &stale["code"]), (&"refused".into(), &"FENCE-STALE".into()), "{stale}");
    world.ok(agent.git().args(["remote", "set-url", "origin", "/nowhere"]));
    result(&agent, &["acquire"], &mut seen);

    let seen: BTreeSet<String> = seen.iter().map(|outcome| outcome.trim_matches('"').to_owned()).collect();
    let schema = schema();
    let named = schema["$defs"]["outcome"]["enum"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let missing: Vec<&str> =
        named.filter(|name| !seen.contains(*name) && !ELSEWHERE.iter().any(|(known, _)| known == name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "outcomes that no command has printed; seen: {seen:?}");
}

/// What the gate and its operator's commands print.
fn of_the_gate(world: &World, agent: &Agent<'_>) {
    world.ok(&mut agent.fence(&["acquire", "--ttl", "1h"]));
    let pushed = agent.git().args(["push", "origin", "HEAD:refs/heads/z"]).output().unwrap();
    let refused = gate_lines(&text(&pushed.stderr));
    assert!(!refused.is_empty(), "{}", text(&pushed.stderr));
    let asked = agent.git().args(["push", "origin", "HEAD:refs/fence/repo/lease/ask"]).output().unwrap();
    let held = gate_lines(&text(&asked.stderr));
    assert!(held.iter().any(|line| line["holder"]["since"].is_string()), "{}", text(&asked.stderr));
    let typo = agent.git().args(["push", "origin", "HEAD:refs/fence/typo/lease/ask"]).output().unwrap();
    let typo = gate_lines(&text(&typo.stderr));
    assert_eq!(typo[0]["fences"], json!(["repo"]), "{typo:?}");
    for line in refused.iter().chain(&held).chain(&typo) {
        assert_is("gate_line", line);
    }
    for command in ["status", "doctor", "stats", "audit"] {
        let definition = if command == "status" { "hook_status" } else { command };
        let output = world.hook_program().arg(command).arg(world.server()).arg("--json").output().unwrap();
        for line in text(&output.stdout).lines() {
            assert_is(definition, &serde_json::from_str(line).unwrap());
        }
    }
}

#[test]
fn schema_refuses_what_it_does_not_know() {
    let good = json!({ "outcome": "ran", "exit_code": 0, "owner": "me", "retryable": false, "message": "done" });
    assert_is("result", &good);
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for (key, value) in
        [("outcome", json!("walked")), ("new", json!(1)), ("message", json!("two\nlines")), ("token", json!(0))]
    {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(!validator.is_valid(&bad), "{bad}");
    }
    for key in ["outcome", "exit_code", "owner", "retryable", "message"] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(key);
        assert!(!validator.is_valid(&bad), "{bad}");
    }
    let lost = json!({ "outcome": "lost", "exit_code": 75, "owner": "me", "retryable": false, "message": "gone" });
    assert!(!validator.is_valid(&lost), "a lost lease has a code");
}
