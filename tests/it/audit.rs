//! Reading the log: only the requested lines, in the requested format, as they are written.

use crate::support::{
    World, any_git,
    needs::{Need, lacks},
    text, wait_until,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read as _},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

fn audit(world: &World, args: &[&str]) -> Output {
    world.hook_program().arg("audit").args(args).arg(world.server()).output().unwrap()
}

/// The numbers of the lines that `audit` shows.
fn shown(world: &World, args: &[&str]) -> Vec<u64> {
    let ran = audit(world, &[&["--json"], args].concat());
    assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
    text(&ran.stdout).lines().map(number).collect()
}

fn numbers(lines: &[serde_json::Value], wanted: impl Fn(&serde_json::Value) -> bool) -> Vec<u64> {
    lines.iter().filter(|line| wanted(line)).map(|line| line["seq"].as_u64().unwrap()).collect()
}

/// A server with two fences, pushes to both, one push over both, refusals, and a period in observe mode.
fn busy_world() -> World {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    let commit = world.commit("for both");
    let both = [&format!("{commit}:refs/heads/main")[..], &format!("{commit}:refs/heads/deploy/a")];
    let forced: Vec<String> = both.iter().map(|refspec| format!("+{refspec}")).collect();
    let forced: Vec<&str> = forced.iter().map(String::as_str).collect();
    world.push(&forced, &["fence-token=repo:6", "fence-token=deploy:9"]).assert_landed();
    let bob = world.push_token_command("main", "7").env("GL_USERNAME", "bob").output().unwrap();
    assert!(bob.status.success(), "{}", text(&bob.stderr));
    world.configure("fence.mode", "observe");
    world.push_token("main", "3").assert_landed();
    world
}

#[test]
fn filters_show_only_matching_lines() {
    let world = busy_world();
    let all = world.audit();
    let refused = numbers(&all, |line| line["event"] == "push.rejected" || line["code"].is_string());
    assert_eq!(refused.len(), 2, "one refused, one that would have been refused");
    assert_eq!(shown(&world, &["--rejected"]), refused);
    let of_deploy = numbers(&all, |line| line["also"][0]["fence"] == "deploy" || line["fence"] == "deploy");
    assert!(!of_deploy.is_empty());
    assert_eq!(shown(&world, &["--fence", "deploy"]), of_deploy);
    assert_eq!(shown(&world, &["--pusher", "bob"]), numbers(&all, |line| line["pusher"] == "bob"));
    assert_eq!(shown(&world, &["--token", "4"]), numbers(&all, |line| line["token"] == 4));
    assert_eq!(shown(&world, &["--token", "9", "--fence", "repo"]), [0; 0], "9 is the token for the other fence");
    assert_eq!(shown(&world, &["--rejected", "--token", "3"]), refused[1..]);
    assert_eq!(shown(&world, &["--pusher", "nobody"]), [0; 0]);
}

#[test]
fn since_and_until_are_exact_to_the_millisecond() {
    let world = busy_world();
    let all = world.audit();
    let time = |at: usize| all[at]["time"].as_str().unwrap();
    let (from, to) = (time(3), time(all.len() - 1));
    let wanted = numbers(&all, |line| (from..to).contains(&line["time"].as_str().unwrap()));
    assert_eq!(shown(&world, &["--since", from, "--until", to]), wanted);
    let everything = numbers(&all, |_| true);
    let today = &to[..10];
    for args in
        [&["--since", "2h"][..], &["--since", "7d", "--until", "0s"], &["--until", today], &["--since", "2026-01-31"]]
    {
        assert_eq!(shown(&world, args), everything, "{args:?}");
    }
    for args in [&["--until", "2h"][..], &["--since", "9999-12-31"], &["--until", "2026-01-31T12:00:00+02:00"]] {
        assert_eq!(shown(&world, args), [0; 0], "{args:?}");
    }
}

#[test]
fn invalid_queries_are_usage_errors() {
    let world = World::new(&any_git());
    for (args, why) in [
        (&["--since", "yesterday"][..], "not a time"),
        (&["--until", "2026-02-30"], "not a time"),
        (&["--token", "07"], "starts with a zero"),
        (&["--fence", "A/B"], "not a valid fence name"),
        (&["--json", "--csv"], "cannot be used with"),
    ] {
        let ran = audit(&world, args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(text(&ran.stderr).contains(why), "{args:?}: {}", text(&ran.stderr));
        assert_eq!(text(&ran.stdout), "");
    }
}

/// Read back by an independent CSV parser.
#[test]
fn csv_quotes_special_characters() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = World::new(&any_git());
    let owner = "a \"b\", =c;\u{e4}'d";
    let commit = world.commit("x");
    let option = format!("fence-owner={owner}");
    let mut push = world.push_command(&[&format!("{commit}:refs/heads/ma,in\"")], &["fence-token=5", &option]);
    assert!(push.env("GL_USERNAME", ",\"\",").output().unwrap().status.success());
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    let file = world.path("audit.csv");
    fs::write(&file, audit(&world, &["--csv"]).stdout).unwrap();
    let script = "import csv,json,sys; print(json.dumps(list(csv.DictReader(open(sys.argv[1], newline='', encoding='utf-8'), strict=True))))";
    let read = world.ok(Command::new("python3").args(["-c", script]).arg(&file));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&read).unwrap();
    let all = world.audit();
    assert_eq!(rows.len(), all.len());
    for (row, line) in rows.iter().zip(&all) {
        assert_eq!(row.as_object().unwrap().len(), 18, "{row}");
        for field in ["time", "event", "owner", "pusher", "code", "reason"] {
            assert_eq!(row[field], line[field].as_str().unwrap_or_default(), "{field} of {line}");
        }
        assert_eq!(row["token"], line["token"].as_u64().map_or(String::new(), |n| n.to_string()));
    }
    let accepted = rows.iter().find(|row| row["event"] == "push.accepted").unwrap();
    assert_eq!((&accepted["owner"], &accepted["pusher"]), (&owner.into(), &",\"\",".into()));
    assert_eq!(accepted["refs"], "refs/heads/ma,in\"");
}

#[test]
fn output_is_truncated_on_a_narrow_terminal_but_not_in_a_pipe() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    let program =
        format!("stty cols 40 && exec {} audit {}", env!("CARGO_BIN_EXE_git-fence-hook"), world.server().display());
    let mut script = Command::new("script");
    world.hermetic(&mut script);
    let seen = world.ok(script.args(["-q", "-e", "-c", &program, "/dev/null"])).replace('\r', "");
    assert!(seen.lines().all(|line| line.chars().count() <= 40), "{seen}");
    let user = world.audit()[0]["pusher"].as_str().unwrap().to_owned();
    let with_time = |line: &str| line.len() > 26 && line.as_bytes()[11] == b'-' && line.as_bytes()[20] == b':';
    let normal: Vec<String> =
        seen.lines()
            .map(|line| {
                if with_time(line) { format!("{}<day and second>{}", &line[..7], &line[26..]) } else { line.to_owned() }
            })
            .collect();
    insta::assert_snapshot!(normal.join("\n").replacen(&user, "<user>", 1));
    let piped = text(&audit(&world, &[]).stdout);
    assert!(piped.contains("token 4 is not above 5, the mark of fence 'repo'") && !piped.contains('…'), "{piped}");
}

#[test]
fn columns_are_named_and_the_last_lines_are_shown() {
    let world = busy_world();
    let all = world.audit();
    let table = |args: &[&str]| text(&audit(&world, args).stdout);
    let heading = "   SEQ  TIME                      EVENT        TOKEN  PUSHER        DETAIL\n";
    let whole = table(&[]);
    assert!(whole.starts_with(heading) && whole.lines().count() == all.len() + 1, "{whole}");
    assert_eq!(whole.strip_prefix(heading), Some(table(&["--no-headings"]).as_str()));
    assert_eq!(table(&["--pusher", "nobody"]), "", "no headings without lines");
    let last: Vec<&str> = whole.lines().skip(all.len() - 1).collect();
    assert_eq!(table(&["-n", "2"]), format!("{heading}{}\n", last.join("\n")));
    let numbers = numbers(&all, |_| true);
    assert_eq!(shown(&world, &["-n", "3"]), numbers[numbers.len() - 3..]);
    assert_eq!(shown(&world, &["--last", "1", "--rejected"]).len(), 1);
    assert_eq!(shown(&world, &["-n", "0"]), [0; 0]);
    assert_eq!(shown(&world, &["-n", "10000"]), numbers);
    let csv = |args: &[&str]| table(&[&["--csv", "-n", "1"], args].concat()).lines().count();
    assert_eq!((csv(&[]), csv(&["--no-headings"])), (2, 1));
    let follower = Follower::start(&world, &["--json", "-n", "1"]);
    wait_until("the last line is shown", || follower.lines().len() == 1);
    world.push_token("main", "8").assert_landed();
    let more = world.audit().len() - all.len();
    wait_until("new lines are shown", || follower.lines().len() == 1 + more);
}

/// `audit --follow` and its output so far. Ended by pid when the test is over.
struct Follower {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(world: &World, args: &[&str]) -> Follower {
        let mut program = world.hook_program();
        let program = program.args(["audit", "--follow"]).args(args).arg(world.server());
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, lines) = (child.stdout.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = lines.clone();
        let reader = thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| seen.lock().unwrap().push(line));
        });
        Follower { child, lines, reader: Some(reader) }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Its standard error, once it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

#[test]
fn follow_shows_every_line_once_across_rotation() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let rotate = || world.ok(world.hook_program().arg("rotate").arg(world.server()));
    rotate();
    let follower = Follower::start(&world, &["--json"]);
    let refusals = Follower::start(&world, &["--json", "--rejected"]);
    wait_until("the existing lines are shown", || follower.lines().len() >= 4);
    for token in 2..=9 {
        world.push_token("main", &token.to_string()).assert_landed();
        rotate();
        if token % 3 == 0 {
            // Twice in a row, so that a whole file appears and disappears between two polls.
            world.push_token("main", "1").assert_refused("FENCE-STALE");
            rotate();
        }
        if token % 4 == 0 {
            let last = world.audit().len();
            wait_until("new lines are shown", || follower.lines().len() >= last);
        }
    }
    world.push_token("main", "1").assert_refused("FENCE-STALE");
    let raw = text(&audit(&world, &["--json"]).stdout);
    let all: Vec<String> = raw.lines().map(str::to_owned).collect();
    wait_until("all lines are shown", || follower.lines().len() >= all.len());
    assert_eq!(follower.lines(), all);
    wait_until("all refusals are shown", || refusals.lines().len() >= 4);
    let of_refusals: Vec<String> = all.into_iter().filter(|line| line.contains("\"push.rejected\"")).collect();
    assert_eq!(refusals.lines(), of_refusals);
}

#[test]
fn follow_exits_when_its_reader_is_gone_even_without_new_lines() {
    let world = World::new(&any_git());
    let mut program = world.hook_program();
    let program = program.args(["audit", "--follow", "--no-headings"]).arg(world.server());
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(first.contains("begun"), "{first}");
    assert!(child.try_wait().unwrap().is_none(), "it is following");
    // If it does not end by itself, it is ended with the test.
    let mut follower = Follower { child, lines: Arc::default(), reader: None };
    drop(stdout);
    wait_until("it has ended", || follower.child.try_wait().unwrap().is_some());
    assert!(follower.child.wait().unwrap().success());
    assert_eq!(follower.said(), "");
}

#[test]
fn follow_reports_a_truncated_log() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let mut follower = Follower::start(&world, &[]);
    wait_until("the existing lines are shown", || follower.lines().len() >= 3);
    let log = world.fence_file("audit.jsonl");
    let cut = fs::read(&log).unwrap();
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(cut.len() as u64 - 10).unwrap();
    wait_until("it has ended", || follower.child.try_wait().unwrap().is_some());
    let said = follower.said();
    assert!(said.contains("has been cut off") && said.contains("hint: "), "{said}");
}
