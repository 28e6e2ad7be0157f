//! The figures match the log, in each format.

use crate::support::{
    World, any_git, fixture,
    lease::{Agent, LeaseOf},
    needs::{Need, is_installed, lacks},
    text,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn stats(world: &World, args: &[&str], dir: &Path) -> Output {
    world.hook_program().arg("stats").args(args).arg(dir).output().unwrap()
}

fn figures(world: &World, args: &[&str]) -> serde_json::Value {
    let ran = stats(world, &[&["--json"], args].concat(), &world.server());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    serde_json::from_str(&text(&ran.stdout)).unwrap()
}

/// The output for people, without parts that differ from run to run.
fn shown(world: &World) -> String {
    let shown = text(&stats(world, &[], &world.server()).stdout);
    let shown = shown.replace(&world.server().display().to_string(), "<server>");
    let normal = |line: &str| match line.split_once("  ") {
        Some((word @ ("first" | "last" | "since"), _)) => format!("{word}  <time>"),
        _ => match line.rsplit_once("  ") {
            Some((_, word @ ("median" | "p95" | "longest"))) => format!("<length>  {word}"),
            _ => line.to_owned(),
        },
    };
    shown.lines().map(normal).collect::<Vec<_>>().join("\n")
}

/// Two fences, pushes to both at once and to one, refusals, and a push that moved nothing.
fn busy_world() -> World {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    world.push(&["HEAD:refs/heads/none"], &[]).assert_refused("FENCE-MISSING");
    let both = ["HEAD:refs/heads/both", "HEAD:refs/heads/deploy/a"];
    world.push(&both, &["fence-token=repo:6", "fence-token=deploy:9"]).assert_landed();
    world.write_hook("update", "exit 1");
    assert!(!world.push_token("main", "7").ok, "declined after the gate has admitted it");
    fs::remove_file(world.hook("update")).unwrap();
    world.companion_never_runs();
    world.push_token("main", "8").assert_landed();
    world
}

#[test]
fn figures_match_the_log_across_rotation() {
    let world = busy_world();
    let check = |lines: usize| {
        let figures = figures(&world, &[]);
        assert_eq!(figures["lines"], lines);
        let pushes = &figures["pushes"];
        for (name, count) in [("accepted", 4), ("refused", 3), ("moved", 2), ("unmoved", 1), ("unsettled", 1)] {
            assert_eq!(pushes[name], count, "{name} of {pushes}");
        }
        assert_eq!(
            (&pushes["refused_by_code"]["FENCE-STALE"], &pushes["refused_by_code"]["FENCE-BUSY"]),
            (&2.into(), &0.into())
        );
        let fence = |at: usize| {
            let fence = &figures["fences"][at];
            let number = |name: &str| fence[name].as_u64().unwrap();
            (fence["fence"].as_str().unwrap(), number("pushes"), number("refused"), number("moved"), number("mark"))
        };
        assert_eq!((fence(0), fence(1)), (("repo", 7, 3, 2, 6), ("deploy", 1, 0, 1, 9)), "the busiest first");
        figures
    };
    let before = check(world.audit().len());
    let elapsed: Vec<u64> = world.audit().iter().filter_map(|line| line["elapsed_us"].as_u64()).collect();
    let waits = &before["waits_us"];
    assert_eq!((waits["count"].as_u64(), waits["sum"].as_u64()), (Some(7), Some(elapsed.iter().sum())));
    assert_eq!(waits["max"].as_u64(), elapsed.iter().max().copied());
    let mut sorted = elapsed;
    sorted.sort_unstable();
    let median = waits["median"].as_u64().unwrap();
    assert!(median >= sorted[3] && median <= sorted[3] + sorted[3] / 32, "{median} for {sorted:?}");

    // Rotation settles pushes that are over.
    world.ok(world.hook_program().arg("rotate").arg(world.server()));
    let after = figures(&world, &[]);
    assert_eq!((&after["pushes"]["accepted"], &after["pushes"]["moved"]), (&4.into(), &3.into()));
    assert_eq!((&after["fences"][0]["mark"], &after["pushes"]["unsettled"]), (&8.into(), &0.into()));
}

/// Runs that ended well, and one that was revoked, which says nothing about how long runs take.
#[test]
fn ttl_is_suggested_from_the_longest_of_five_healthy_runs() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let suggested = || figures(&world, &[])["fences"][0]["suggested_ttl_s"].clone();
    for n in 1..=5 {
        assert_eq!(suggested(), serde_json::Value::Null, "after {} runs", n - 1);
        let agent = Agent::new(&format!("agent-{n}"));
        let reason = if n == 1 { "first" } else { "released" };
        lease.take(&agent, n, reason).assert_landed();
        lease.release(&agent, n, reason).assert_landed();
    }
    let fence = figures(&world, &[])["fences"][0].clone();
    assert_eq!((&fence["suggested_ttl_s"], &fence["healthy_runs"]), (&30.into(), &5.into()), "{fence}");
    assert!(fence["longest_run_ms"].as_u64().is_some_and(|ms| ms < 30_000), "{fence}");
    let shown = shown(&world);
    assert!(shown.contains("fence 'repo': the longest of 5 runs that ended well took "), "{shown}");
    assert!(shown.contains("--ttl 30s"), "{shown}");
    lease.take(&Agent::new("agent-6"), 6, "released").assert_landed();
    let revoked = world.hook_program().args(["revoke", "--reason", "x"]).arg(world.server()).output().unwrap();
    assert!(revoked.status.success());
    assert_eq!(figures(&world, &[])["fences"][0]["healthy_runs"], 5);
    let page = stats(&world, &["--prometheus"], &world.server());
    assert!(text(&page.stdout).contains("git_fence_lease_suggested_ttl_seconds{"), "{}", text(&page.stdout));
}

#[test]
fn since_limits_the_figures_but_not_the_marks() {
    let world = busy_world();
    let last = world.audit().last().unwrap()["time"].as_str().unwrap().to_owned();
    let figures_since = figures(&world, &["--since", &last]);
    assert_eq!((&figures_since["pushes"]["accepted"], &figures_since["pushes"]["refused"]), (&1.into(), &0.into()));
    assert_eq!((&figures_since["first"], &figures_since["since"]), (&last.as_str().into(), &last.as_str().into()));
    assert_eq!(figures_since["fences"][0]["mark"], 6);
    let none = figures(&world, &["--since", "9999-12-31"]);
    assert_eq!((&none["lines"], &none["waits_us"]["median"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(figures(&world, &["--since", "1h"])["pushes"], figures(&world, &[])["pushes"]);
    for args in [&["--since", "soon"][..], &["--json", "--prometheus"], &["--prometheus", "--since", "1h"]] {
        assert_eq!(stats(&world, args, &world.server()).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn figures_are_a_narrow_table() {
    let world = busy_world();
    let seen = shown(&world);
    insta::assert_snapshot!(seen);
    let whole = text(&stats(&world, &[], &world.server()).stdout);
    assert!(whole.lines().skip(1).all(|line| line.chars().count() <= 40), "{whole}");
}

#[test]
fn observe_mode_reports_what_would_have_been_refused() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    world.push_token("main", "5").assert_landed();
    assert!(shown(&world).ends_with("no push would have been refused"), "{}", shown(&world));
    world.push_token("main", "4").assert_landed();
    world.push(&["HEAD:refs/heads/none"], &[]).assert_landed();
    let bob = world.push_token_command("main", "3").env("GL_USERNAME", "bob's").output().unwrap();
    assert!(bob.status.success());
    // This push cannot be parsed at all, and is still admitted.
    let mut push = world.push_command(&["HEAD:refs/heads/odd"], &["fence-token=7"]);
    assert!(push.arg("--receive-pack=git --namespace=ns receive-pack").output().unwrap().status.success());
    assert_eq!(world.events("push.observed").len(), 1);
    insta::assert_snapshot!(shown(&world));
    let figures = figures(&world, &[]);
    let observed = &figures["observed"];
    assert_eq!((&observed["count"], &observed["by_code"]["FENCE-STALE"]), (&4.into(), &2.into()));
    assert_eq!(observed["by_pusher"][0], serde_json::json!({"pusher": "tester", "count": 3}));
    assert_eq!((&figures["pushes"]["accepted"], &figures["pushes"]["refused"]), (&5.into(), &0.into()));
    let last = world.audit().into_iter().rfind(|line| line["code"].is_string()).unwrap();
    assert_eq!(observed["last"], last["time"]);
    world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
    assert!(shown(&world).contains("pushes that would have been refused"), "the report stays");
    assert!(!shown(&world).contains("to refuse such pushes"));
}

/// One sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses the text format strictly, and returns all samples.
fn parse_prometheus(page: &str) -> Vec<Sample> {
    assert!(page.ends_with('\n'));
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let (mut samples, mut families, mut series) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let (mut helped, mut family) = (String::new(), String::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a HELP line has text").0.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(is_name(name) && name == helped, "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            family = name.to_owned();
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            let of_summary = families[&family] == "summary"
                && [format!("{family}_sum"), format!("{family}_count")].contains(&name.to_owned());
            assert!(name == family || of_summary, "{line} under {family}");
            let (labels, value) = parse_labels(rest);
            assert!(series.insert((name.to_owned(), labels.clone())), "{line} twice");
            samples.push((name.to_owned(), labels, value.strip_prefix(' ').unwrap().parse().expect(line)));
        }
    }
    samples
}

/// The labels up to the closing brace, and the rest.
fn parse_labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let (mut labels, mut rest) = (BTreeMap::new(), text);
    loop {
        let (name, quoted) = rest.split_once("=\"").unwrap();
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        let end = loop {
            match chars.next().expect("the quote is closed") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} is not an escape"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').unwrap()),
        }
    }
}

#[test]
fn prometheus_output_parses_for_any_repository_name() {
    let world = busy_world();
    let odd = world.path("o\"dd\\na\nme.git");
    fs::rename(world.server(), &odd).unwrap();
    let ran = stats(&world, &["--prometheus"], &odd);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let page = text(&ran.stdout);
    let samples = parse_prometheus(&page);
    assert!(samples.iter().all(|(_, labels, _)| labels["repository"] == odd.to_str().unwrap()), "{page}");
    let value = |name: &str, wanted: &[(&str, &str)]| {
        let is_it = |(found, labels, _): &&Sample| {
            found == name && wanted.iter().all(|(label, value)| labels.get(*label).is_some_and(|is| is == value))
        };
        let found: Vec<&Sample> = samples.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name} {wanted:?}");
        found[0].2
    };
    for (name, labels, expected) in [
        ("git_fence_pushes_accepted_total", &[][..], 4.0),
        ("git_fence_pushes_refused_total", &[("code", "FENCE-STALE")], 2.0),
        ("git_fence_pushes_refused_total", &[("code", "FENCE-BUSY")], 0.0),
        ("git_fence_pushes_settled_total", &[("moved", "true")], 2.0),
        ("git_fence_fence_mark", &[("fence", "deploy")], 9.0),
        ("git_fence_fence_pushes_total", &[("fence", "repo"), ("verdict", "refused")], 3.0),
        ("git_fence_decision_seconds_count", &[], 7.0),
    ] {
        assert_eq!(value(name, labels).to_bits(), f64::to_bits(expected), "{name} {labels:?}");
    }
    let median = value("git_fence_decision_seconds", &[("quantile", "0.5")]);
    assert!(median > 0.0 && median <= value("git_fence_decision_longest_seconds", &[]));
    // Prometheus' own checker, if it is installed.
    if is_installed("promtool") {
        let mut promtool = Command::new("promtool");
        let mut child = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), page.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    // An empty log has no quantiles, and that parses too.
    let empty = World::new(&any_git());
    let page = text(&stats(&empty, &["--prometheus"], &empty.server()).stdout);
    assert!(parse_prometheus(&page).iter().any(|(_, _, value)| value.is_nan()), "{page}");
}

#[test]
fn stats_handles_no_repository_no_log_damage_and_a_closed_pipe() {
    let world = busy_world();
    for (dir, why) in [(world.path("home"), "not a git repository"), (world.path("work"), "does not exist")] {
        let ran = stats(&world, &[], &dir);
        assert_eq!(ran.status.code(), Some(1));
        assert!(text(&ran.stderr).contains(why) && text(&ran.stderr).contains("hint: "), "{}", text(&ran.stderr));
    }
    for args in [&[][..], &["--json"], &["--prometheus"]] {
        let mut program = world.hook_program();
        let program = program.arg("stats").args(args).arg(world.server());
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{args:?}: {}", text(&ended.stderr));
    }
    let log = world.fence_file("audit.jsonl");
    fs::write(&log, fs::read_to_string(&log).unwrap().replacen("tester", "nobody", 1)).unwrap();
    let ran = stats(&world, &["--prometheus"], &world.server());
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(text(&ran.stdout), "", "no figures are printed for a log that cannot be trusted");
    assert!(text(&ran.stderr).contains("has been changed"), "{}", text(&ran.stderr));
}

/// A log of many lines is read as a stream: memory does not grow with it. Prints what each command took:
/// `cargo test --release --test it -- --ignored --nocapture million`
fn long_log(lines: u64, most_kilobytes: u64) {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = World::new(&any_git());
    for file in fs::read_dir(world.server().join("fence")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let log = world.fence_file("audit.jsonl");
    world.ok(Command::new(fixture("long-log.py")).arg(lines.to_string()).arg(&log));
    let pushes = (lines - 1) / 3;
    let figures = figures(&world, &[]);
    assert_eq!((&figures["lines"], &figures["pushes"]["accepted"]), (&lines.into(), &pushes.into()));
    let script = "import resource,subprocess,sys,time; begun=time.monotonic(); \
                  child=subprocess.Popen(sys.argv[1:],stdout=subprocess.PIPE); \
                  lines=sum(1 for _ in child.stdout); assert child.wait()==0; \
                  print(lines, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, \
                  '%.2f s' % (time.monotonic()-begun))";
    for args in [&["audit", "--rejected", "--since", "1h"][..], &["stats"], &["audit", "verify"]] {
        let mut python = Command::new("python3");
        world.hermetic(&mut python);
        python.args(["-c", script, env!("CARGO_BIN_EXE_git-fence-hook")]).args(args).arg(world.server());
        let measured = world.ok(&mut python);
        println!("{args:?}: lines shown, kB, time: {measured}");
        let numbers: Vec<u64> = measured.split(' ').take(2).map(|n| n.parse().unwrap()).collect();
        assert!(numbers[0] > 0 && numbers[1] < most_kilobytes, "{args:?}: {measured}");
    }
}

#[test]
fn every_command_reads_a_log_of_ten_thousand_lines() {
    long_log(10_000, 40_000);
}

#[test]
#[ignore = "takes a minute and half a gigabyte of disk"]
fn log_of_a_million_lines_is_read_in_little_memory() {
    long_log(1_000_000, 40_000);
}
