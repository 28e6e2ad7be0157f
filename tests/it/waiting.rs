//! Waiting for a lease that another holds, and saying nothing about a skip.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git,
    needs::{Need, lacks},
    signal, text, wait_until,
};
use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// `a` wants the lease that `b` holds.
fn held_by_b(remote: Remote) -> World {
    let world = remote.world(&any_git());
    world.agent("a");
    world.agent("b").ok(&["acquire", "--ttl", "1h", "--owner", "b@host"]);
    world
}

fn agent<'w>(world: &'w World, name: &str) -> Agent<'w> {
    Agent { world, name: name.to_owned() }
}

/// A command in the background whose messages go to a file.
struct Waiting {
    child: Child,
    said: PathBuf,
}

impl Waiting {
    /// Starts it, and returns when it says that it waits.
    fn start(world: &World, command: &mut Command) -> Waiting {
        let said = world.path("said");
        let file = File::create(&said).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let waiting = Waiting { child, said };
        wait_until("it says that it waits", || waiting.said().contains("waiting up to"));
        waiting
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// The exit code, as a shell would have it, and the output.
    fn end(self) -> (i32, String) {
        let output = self.child.wait_with_output().unwrap();
        let by_signal = || 128 + output.status.signal().unwrap();
        (output.status.code().unwrap_or_else(by_signal), text(&output.stdout))
    }
}

#[test]
fn wait_alone_means_to_wait() {
    for remote in Remote::BOTH {
        let world = held_by_b(remote);
        let (a, b) = (agent(&world, "a"), agent(&world, "b"));
        let run = Waiting::start(&world, &mut a.run(&["--wait", "5m"], "echo ran"));
        // Who holds it, since when, and for how long yet.
        let said = run.said();
        assert!(said.contains("'b@host'") && said.contains("fence 'repo'") && said.contains(" since 20"), "{said}");
        b.ok(&["release"]);
        assert_eq!(run.end(), (0, "ran\n".to_owned()));
        assert_eq!(a.status()["outcome"], "ran");
    }
}

#[test]
fn wait_contradicts_the_other_ways_to_meet_a_held_lease() {
    let world = held_by_b(Remote::Bare);
    let a = agent(&world, "a");
    for other in ["skip", "fail"] {
        let (code, said) = a.code(&["run", "--wait", "5m", "--if-held", other, "--", "true"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("--wait") && said.contains("--if-held") && said.contains("hint: "), "{said}");
    }
}

#[test]
fn wait_that_runs_out_has_an_outcome_of_its_own() {
    let world = held_by_b(Remote::Gate);
    let a = agent(&world, "a");
    for (options, code) in [(&["--wait", "1s"][..], 0), (&["--if-held", "wait", "--wait", "1s", "-E", "9"], 9)] {
        let ran = a.run(options, "echo ran").output().unwrap();
        assert_eq!(code_of(&ran).0, code, "{}", text(&ran.stderr));
        let status = a.status();
        assert_eq!((&status["outcome"], &status["code"]), (&"timed-out".into(), &"FENCE-LEASE-HELD".into()));
        assert_eq!((&status["holder"]["owner"], &status["retryable"]), (&"b@host".into(), &true.into()));
        assert!(text(&ran.stderr).contains("timed out"), "{}", text(&ran.stderr));
    }
    for args in [&["acquire", "--wait", "1s", "--json"][..], &["push", "--wait", "1s", "--json"]] {
        let ended = a.fence(args).output().unwrap();
        assert_eq!(code_of(&ended).0, 11, "{args:?}: {}", text(&ended.stderr));
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!((&report["outcome"], &report["exit_code"]), (&"timed-out".into(), &11.into()), "{args:?}");
        assert_eq!(report["holder"]["owner"], "b@host", "{args:?}");
    }
}

#[test]
fn acquire_and_push_can_wait() {
    for remote in Remote::BOTH {
        let world = held_by_b(remote);
        let (a, b) = (agent(&world, "a"), agent(&world, "b"));
        let acquire = Waiting::start(&world, &mut a.fence(&["acquire", "--wait", "5m", "--owner", "a@host"]));
        b.ok(&["release"]);
        assert_eq!(acquire.end(), (0, format!("{}\n", world.lease_token())));
        assert_eq!(world.lease("Owner"), "a@host");
        let push = Waiting::start(&world, &mut b.fence(&["push", "--wait", "5m", "origin", "HEAD:refs/heads/b"]));
        a.ok(&["release"]);
        let (code, said) = push.end();
        assert!(code == 0 && said.contains("landed"), "{code}: {said}");
        assert!(world.server_ref("refs/heads/b").is_some());
    }
}

#[test]
fn acquire_does_not_wait_for_a_lease_of_its_own_clone() {
    let world = held_by_b(Remote::Bare);
    let (code, said) = agent(&world, "b").code(&["acquire", "--wait", "10m"]);
    assert!(code == 11 && said.contains("this clone"), "{code}: {said}");
}

#[test]
fn quiet_run_says_nothing_of_a_skip_and_still_reports_it() {
    let world = held_by_b(Remote::Bare);
    let a = agent(&world, "a");
    for options in [&["--quiet"][..], &["-q", "--wait", "1s"]] {
        let ran = a.run(options, "echo ran").output().unwrap();
        assert_eq!(code_of(&ran), (0, String::new()), "{options:?}");
        assert_ne!(a.status()["outcome"], "ran", "{options:?}");
    }
    // A failure is no skip.
    let (code, said) = a.code(&["run", "--quiet", "--if-held", "fail", "--", "true"]);
    assert!(code == 11 && said.contains("b@host"), "{code}: {said}");
    assert!(a.code(&["run", "--quiet", "--remote", "/no/such", "--", "true"]).1.contains("cannot reach"));
}

#[test]
fn waiting_on_a_terminal_is_one_line_that_is_updated() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    let world = held_by_b(Remote::Bare);
    let (a, b) = (agent(&world, "a"), agent(&world, "b"));
    let typescript = world.path("typescript");
    let mut script = a.git();
    script.arg("--version");
    let line = "git fence run --wait 5m -- echo ran";
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", line]).arg(&typescript).current_dir(a.path(""));
    terminal.env_clear().envs(script.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = terminal.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let shown = || fs::read_to_string(&typescript).unwrap_or_default();
    wait_until("the line was written twice", || shown().matches("\r\u{1b}[K").count() >= 2);
    b.ok(&["release"]);
    assert!(child.wait_with_output().unwrap().status.success(), "{}", shown());
    let line = shown().split("\r\u{1b}[K").nth(1).unwrap().to_owned();
    assert!(line.contains("waiting for 'b@host'") && !line.contains('\n'), "{line:?}");
    assert!(shown().contains("\r\u{1b}[Kran"), "the line is gone before the command writes: {:?}", shown());
}

#[test]
fn interrupted_wait_ends_at_once_and_takes_nothing() {
    let world = held_by_b(Remote::Bare);
    let a = agent(&world, "a");
    for args in [&["acquire", "--wait", "1h"][..], &["push", "--wait", "1h"], &["run", "--wait", "1h", "--", "true"]] {
        // The program itself: git would only pass the signal on.
        let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence"));
        let git = a.git();
        command.env_clear().envs(git.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let waiting = Waiting::start(&world, command.args(args).current_dir(a.path("")));
        signal(waiting.child.id(), "TERM");
        assert_eq!(waiting.end().0, 143, "{args:?}");
        let said = fs::read_to_string(world.path("said")).unwrap();
        assert!(!said.contains("busy"), "{args:?}: {said}");
        assert_eq!(world.lease("Owner"), "b@host");
    }
}
