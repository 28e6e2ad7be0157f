//! The command under its keeper: how its exit status is passed on, and that it ends when `run` does.

use crate::support::{
    World, any_git, as_if_from_a_shell,
    needs::{Need, lacks},
    schema::assert_is,
    sh, signal, signal_group, text, try_signal, wait_until, write_script,
};
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Output, Stdio},
};

/// A clone of a bare repository without hooks, and beside it a directory in which processes write their
/// pids, each to a file of its name. When the test is over, in any case, those that are still alive are
/// killed.
struct Place {
    world: World,
}

impl Place {
    fn new() -> Place {
        let world = World::bare(&any_git(), &[]);
        world.ok(world.git("work").args(["remote", "add", "origin"]).arg(world.server()));
        Place { world }
    }

    /// `run` around a shell script.
    fn run(&self, options: &[&str], script: &str) -> Command {
        self.run_command(options, &["sh", "-c", script])
    }

    /// `run` around a command.
    fn run_command<S: AsRef<OsStr>>(&self, options: &[&str], argv: &[S]) -> Command {
        let mut command = self.as_if_from_a_shell(env!("CARGO_BIN_EXE_git-fence"));
        command.current_dir(self.path("work")).arg("run").arg("--status-file").arg(self.path("status.json"));
        command.args(options).arg("--").args(argv);
        command
    }

    fn as_if_from_a_shell(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.world.hermetic(&mut command);
        as_if_from_a_shell(&command)
    }

    /// The outcome that `run` reports.
    fn outcome(&self) -> String {
        let status: serde_json::Value = serde_json::from_slice(&fs::read(self.path("status.json")).unwrap()).unwrap();
        assert_is("result", &status);
        status["outcome"].as_str().unwrap().to_owned()
    }

    /// Revokes the lease from another clone.
    fn revoke(&self) {
        self.world.ok(self.world.git(".").args(["clone", "-q", "server.git", "other"]));
        let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence"));
        self.world.hermetic(&mut command);
        command.current_dir(self.path("other")).args(["revoke", "--reason", "it hangs"]);
        self.world.ok(&mut command);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// The shell code that writes the pid to the file `name` atomically.
    fn word(&self, name: &str) -> String {
        let path = self.path(&format!("{name}.pid"));
        format!("echo $$ >{0}.new; mv {0}.new {0}", sh(&path))
    }

    /// A process that writes its pid to the file `name` and runs until it is ended.
    fn stays(&self, name: &str) -> String {
        let path = self.path(&format!("{name}.pid"));
        format!("sh -c {}", sh(format!("{}; exec tail -f {} >/dev/null", self.word(name), sh(path))))
    }

    fn pid(&self, name: &str) -> u32 {
        let path = self.path(&format!("{name}.pid"));
        wait_until(&format!("'{name}' has left word"), || path.exists());
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    fn wait_for_end_of(&self, names: &[&str]) {
        for name in names {
            let pid = self.pid(name);
            wait_until(&format!("'{name}' has ended"), || !self.is_alive(pid));
        }
    }

    /// Whether a process that was started here is alive: its command line contains this directory.
    fn is_alive(&self, pid: u32) -> bool {
        let place = self.path("");
        text(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).contains(place.to_str().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let entries = fs::read_dir(self.path("")).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries.filter(|path| path.extension().is_some_and(|extension| extension == "pid")) {
            let word = fs::read_to_string(path).unwrap_or_default();
            if let Some(pid) = word.trim().parse().ok().filter(|pid| self.is_alive(*pid)) {
                try_signal(pid, "KILL");
            }
        }
    }
}

/// A running `run`. Killed when the test is over, in any case.
struct Started {
    child: Option<Child>,
    stderr: PathBuf,
}

impl Started {
    fn by(command: &mut Command, place: &Place) -> Started {
        let stderr = place.path("stderr");
        // Output goes to a file: a pipe would stay open as long as any process has it.
        let child = command.stdout(Stdio::null()).stderr(fs::File::create(&stderr).unwrap()).spawn().unwrap();
        Started { child: Some(child), stderr }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    fn stdin(&mut self) -> ChildStdin {
        self.child.as_mut().unwrap().stdin.take().unwrap()
    }

    fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.take().unwrap().wait().unwrap();
        (status.code(), fs::read_to_string(&self.stderr).unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    (output, said)
}

fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn is_stopped(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("State:\tT")
}

#[test]
fn exit_codes_and_signals_of_the_command_pass_through() {
    let place = Place::new();
    for (script, code) in
        [("exit 0", 0), ("exit 42", 42), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let (output, stderr) = output(&mut place.run(&[], script));
        assert_eq!(output.status.code(), Some(code), "{script}: {stderr}");
        assert_eq!((place.outcome().as_str(), stderr.as_str()), ("ran", ""), "{script}");
    }
}

#[test]
fn input_output_arguments_and_environment_are_passed_unchanged() {
    let place = Place::new();
    let not_utf8 = OsStr::from_bytes(b"\xff $x\n'");
    let script = "cat; printf %s \"$1\"; echo error >&2; echo \"$KEPT $GIT_FENCE_TOKEN\"";
    let argv = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), OsStr::new("--help"), not_utf8];
    let mut command = place.run_command(&[], &argv);
    let mut child = command
        .env("KEPT", OsStr::from_bytes(b"a=\xffb"))
        // The variables that run sets precede existing ones.
        .env("GIT_FENCE_TOKEN", "before")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from outside\0").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "error\n");
    assert_eq!(output.stdout, b"from outside\0\xff $x\n'a=\xffb 1\n");
}

#[test]
fn command_that_cannot_be_executed_differs_from_one_not_found() {
    let place = Place::new();
    let write = |name: &str, content: &str, mode: u32| {
        fs::write(place.path(name), content).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
        place.path(name).to_str().unwrap().to_owned()
    };
    for (program, code, why) in [
        ("git-fence-no-such-program".to_owned(), 127, "No such file"),
        (place.path("absent").to_str().unwrap().to_owned(), 127, "No such file"),
        (write("plain", "#!/bin/sh\n", 0o644), 126, "Permission denied"),
        (write("garbage", "\x01\x02", 0o755), 126, "Exec format error"),
        (write("lost", "#!/nonexistent/interpreter\n", 0o755), 126, "its interpreter was not found"),
        (place.path("").to_str().unwrap().to_owned(), 126, "Permission denied"),
    ] {
        let (output, stderr) = output(&mut place.run_command(&[], &[&program]));
        assert_eq!(output.status.code(), Some(code), "{program}: {stderr}");
        assert!(stderr.contains(&program) && stderr.contains(why), "{program}: {stderr}");
        assert_eq!(place.outcome(), "not-started", "{program}: {stderr}");
    }
}

#[test]
fn command_inherits_no_socket_and_no_signal_setting() {
    let place = Place::new();
    let script = "ls -l /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let (output, stderr) = output(&mut place.run(&[], script));
    let seen = text(&output.stdout);
    assert!(!seen.contains("socket:"), "{seen}");
    let signals = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 0x7fff_ffff
    };
    assert_eq!((signals("SigBlk:"), signals("SigIgn:")), (0, 0), "{seen}{stderr}");
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = Place::new();
    let program = sh(env!("CARGO_BIN_EXE_git-fence"));
    let inner = format!("trap '' HUP INT; exec {program} run -- grep SigIgn /proc/self/status");
    let mut shell = place.as_if_from_a_shell("sh");
    let (output, stderr) = output(shell.current_dir(place.path("work")).args(["-c", &inner]));
    let mask = text(&output.stdout).trim().trim_start_matches("SigIgn:").trim().to_owned();
    assert_eq!(u64::from_str_radix(&mask, 16).unwrap() & 0x7fff_ffff, 0b11, "{mask} {stderr}");
}

#[test]
fn killing_run_ends_the_command_and_its_children() {
    let place = Place::new();
    // `timeout` creates its own process group.
    let script = format!(
        "{} & timeout 1000 {} & (sh -c {} &) ; {}; wait",
        place.stays("child"),
        place.stays("grouped"),
        sh(place.stays("orphan")),
        place.word("command")
    );
    let started = Started::by(&mut place.run(&[], &script), &place);
    let names = ["command", "child", "grouped", "orphan"];
    for name in names {
        place.pid(name);
    }
    started.kill();
    place.wait_for_end_of(&names);
}

#[test]
fn killing_the_process_group_of_run_ends_the_command_too() {
    let place = Place::new();
    let started = Started::by(place.run(&[], &place.stays("command")).process_group(0), &place);
    let keeper = parent_of(place.pid("command"));
    assert_ne!(keeper, started.pid());
    signal_group(started.pid(), "KILL");
    assert_eq!(started.end().0, None);
    place.wait_for_end_of(&["command"]);
    wait_until("the keeper has ended", || !PathBuf::from(format!("/proc/{keeper}/cmdline")).exists());
}

#[test]
fn command_that_ignores_sigterm_is_killed_with_run() {
    let place = Place::new();
    let script = format!("trap '' TERM HUP INT; {} & {}; wait", place.stays("child"), place.word("command"));
    // A sixth of the TTL is the time between SIGTERM and SIGKILL.
    let started = Started::by(&mut place.run(&["--ttl", "6s"], &script), &place);
    place.pid("child");
    place.pid("command");
    started.kill();
    place.wait_for_end_of(&["command", "child"]);
}

#[test]
fn command_can_clean_up_when_run_is_killed() {
    let place = Place::new();
    let cleaned = place.path("cleaned");
    let script = format!(
        "trap 'sleep 0.1; touch {}; exit' TERM; {}; while :; do sleep 0.05; done",
        sh(&cleaned),
        place.word("command")
    );
    let started = Started::by(&mut place.run(&[], &script), &place);
    place.pid("command");
    started.kill();
    place.wait_for_end_of(&["command"]);
    assert!(cleaned.exists());
}

/// It is continued to receive SIGTERM; it does not stay stopped until it is killed.
#[test]
fn stopped_command_is_continued_and_ends_when_run_is_killed() {
    let place = Place::new();
    let cleaned = place.path("cleaned");
    let script =
        format!("trap 'touch {}; exit' TERM; {}; while :; do sleep 0.05; done", sh(&cleaned), place.word("command"));
    let started = Started::by(&mut place.run(&[], &script), &place);
    let command = place.pid("command");
    signal(command, "STOP");
    wait_until("the command has stopped", || is_stopped(command));
    started.kill();
    place.wait_for_end_of(&["command"]);
    assert!(cleaned.exists());
}

/// `run`, started by a shell in its own pid namespace, in which its session and process group have no number: as
/// by a container runtime or a sandbox. The shell is the first process of the namespace, which must not be run itself.
/// None if the system does not allow such a namespace.
fn run_in_pid_namespace(place: &Place, options: &[&str], script: &str) -> Option<(Output, String)> {
    if lacks(&[Need::PidNamespace]) {
        return None;
    }
    let enter = |argv: &[&str]| {
        let mut unshare = Command::new("unshare");
        place.world.hermetic(&mut unshare);
        unshare.args(["--map-root-user", "--pid", "--fork"]).args(options).args(argv);
        unshare.current_dir(place.path("work"));
        unshare
    };
    let run = place.run(&[], script);
    let mut unshare = enter(&["sh", "-c", "grep NSsid /proc/self/status; \"$@\"; exit $?", "sh"]);
    Some(output(unshare.arg(run.get_program()).args(run.get_args())))
}

#[test]
fn session_from_outside_the_pid_namespace_works_like_any_other() {
    let place = Place::new();
    let word = sh(place.path("left.pid"));
    let script = format!("{} & until [ -e {word} ]; do sleep 0.02; done; exit 3", place.stays("left"));
    let Some((output, said)) = run_in_pid_namespace(&place, &["--mount-proc"], &script) else { return };
    assert_eq!(text(&output.stdout).trim(), "NSsid:\t0", "the session is visible from inside: {said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("left a process running"), "{said}");
    assert_eq!(place.outcome(), "ran");
}

/// With such a `/proc`, unrelated processes would be mistaken for children of the command.
#[test]
fn nothing_starts_if_proc_shows_another_pid_namespace() {
    let place = Place::new();
    let Some((output, said)) = run_in_pid_namespace(&place, &[], "touch started") else { return };
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("/proc belongs to another PID namespace"), "{said}");
    assert!(!place.path("work/started").exists());
    assert_eq!(place.outcome(), "not-started");
}

/// The lease is revoked, and the next heartbeat finds out.
#[test]
fn sigterm_comes_first_and_sigkill_only_for_survivors() {
    for stays in [true, false] {
        let place = Place::new();
        let asked = place.path("asked");
        let and_then = if stays { "" } else { "; exit 5" };
        let script = format!(
            "trap 'touch {}{and_then}' TERM; {}; while :; do sleep 0.05; done",
            sh(&asked),
            place.word("command")
        );
        let started = Started::by(&mut place.run(&["--ttl", "3s"], &script), &place);
        let command = place.pid("command");
        place.revoke();
        let (code, said) = started.end();
        assert_eq!((code, place.outcome().as_str()), (Some(75), "lost"), "{said}");
        assert!(asked.exists(), "{said}");
        assert!(!place.is_alive(command), "it is still alive after run has ended");
        assert!(!said.contains("stopping what is left"), "{said}");
    }
}

#[test]
fn processes_left_by_the_command_are_ended_and_reported() {
    let place = Place::new();
    let script = format!(
        "trap '' TERM; {} & {} & while ! [ -e {} ] || ! [ -e {} ]; do sleep 0.02; done; exit 3",
        place.stays("stubborn"),
        place.stays("child"),
        sh(place.path("stubborn.pid")),
        sh(place.path("child.pid")),
    );
    let (code, said) = Started::by(&mut place.run(&[], &script), &place).end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("left 2 processes running"), "{said}");
    for name in ["stubborn", "child"] {
        assert!(!place.is_alive(place.pid(name)), "'{name}' is still alive after run has ended");
    }
    let word = sh(place.path("single.pid"));
    let script = format!("{} & until [ -e {word} ]; do sleep 0.02; done", place.stays("single"));
    let (code, said) = Started::by(&mut place.run(&[], &script), &place).end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("left a process running"), "{said}");
}

#[test]
fn exiting_processes_are_left_alone() {
    let place = Place::new();
    let (fifo, log) = (place.path("fifo"), place.path("log"));
    let script = format!(
        "mkfifo {0}; sh -c {1} & exec >{0}; echo the last line",
        sh(&fifo),
        sh(format!("cat <{0} >{1}; echo done >>{1}", sh(&fifo), sh(&log)))
    );
    let (code, said) = Started::by(&mut place.run(&[], &script), &place).end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read_to_string(log).unwrap(), "the last line\ndone\n", "{said}");
}

#[test]
fn daemon_with_its_own_session_is_left_alone() {
    let place = Place::new();
    let daemon = place.path("daemon.pid");
    let script = format!("setsid {} & while ! [ -e {} ]; do sleep 0.02; done", place.stays("daemon"), sh(&daemon));
    let (code, said) = Started::by(&mut place.run(&[], &script), &place).end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "");
    assert!(place.is_alive(place.pid("daemon")));
}

#[test]
fn signals_to_run_and_to_the_keeper_are_passed_on() {
    for (name, code) in [("TERM", 15), ("HUP", 1), ("INT", 2), ("QUIT", 3)] {
        for to_keeper in [false, true] {
            let place = Place::new();
            let script = format!("trap 'exit {code}' {name}; {}; while :; do sleep 0.05; done", place.word("command"));
            let started = Started::by(&mut place.run(&[], &script), &place);
            let keeper = parent_of(place.pid("command"));
            signal(if to_keeper { keeper } else { started.pid() }, name);
            let (ended, said) = started.end();
            assert_eq!(ended, Some(code), "{name}: {said}");
        }
    }
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let place = Place::new();
    let orphan = place.stays("orphan");
    let started = Started::by(
        &mut place.run(&[], &format!("({orphan} &); {}; while :; do sleep 0.1; done", place.word("command"))),
        &place,
    );
    let (orphan, keeper) = (place.pid("orphan"), parent_of(place.pid("command")));
    wait_until("the keeper has adopted the orphan", || parent_of(orphan) == keeper);
    signal(orphan, "KILL");
    wait_until("the orphan is reaped", || !PathBuf::from(format!("/proc/{orphan}/stat")).exists());
    assert!(place.is_alive(place.pid("command")));
    started.kill();
    place.wait_for_end_of(&["command"]);
}

#[test]
fn killing_the_keeper_ends_the_command_too() {
    let place = Place::new();
    let script = format!("{} & {}; wait", place.stays("child"), place.word("command"));
    let started = Started::by(&mut place.run(&[], &script), &place);
    place.pid("child");
    signal(parent_of(place.pid("command")), "KILL");
    let (code, said) = started.end();
    assert_eq!(code, Some(137), "{said}");
    assert!(said.contains("the keeper of the command died"), "{said}");
    for name in ["command", "child"] {
        assert!(!place.is_alive(place.pid(name)), "'{name}' is still alive after run has ended");
    }
}

/// `run` of a shell script in the foreground of a terminal, under a shell with job control. If it is
/// stopped, the shell brings it to the foreground again when `go` exists.
fn run_in_terminal(script: &str, place: &Place) -> Option<Started> {
    if lacks(&[Need::Terminal]) {
        return None;
    }
    write_script(&place.path("command"), script);
    let [command, said, go, code] = ["command", "said", "go", "code"].map(|name| sh(place.path(name)));
    let program = sh(env!("CARGO_BIN_EXE_git-fence"));
    let shell = format!(
        "set -m; {program} run -- {command} 2>{said}; code=$?\n\
         while [ $code = 148 ]; do if [ -e {go} ]; then fg; code=$?; else sleep 0.05; fi; done\n\
         echo $code >{code}.new; mv {code}.new {code}"
    );
    write_script(&place.path("shell"), &shell);
    let mut script = place.as_if_from_a_shell("script");
    script.args(["-qec", &sh(place.path("shell")), "/dev/null"]).env("SHELL", "/bin/sh");
    script.current_dir(place.path("work")).stdin(Stdio::piped());
    Some(Started::by(&mut script, place))
}

fn code_and_talk(place: &Place) -> (String, String) {
    wait_until("run has ended", || place.path("code").exists());
    (fs::read_to_string(place.path("code")).unwrap(), fs::read_to_string(place.path("said")).unwrap())
}

#[test]
fn command_reads_from_the_terminal_and_ctrl_c_ends_it() {
    let place = Place::new();
    let answer = place.path("answer");
    let script =
        format!("read line; echo \"$line\" >{0}; {1}; while :; do sleep 0.1; done", sh(&answer), place.word("command"));
    let Some(mut started) = run_in_terminal(&script, &place) else { return };
    let mut keyboard = started.stdin();
    keyboard.write_all(b"typed\n").unwrap();
    place.pid("command");
    assert_eq!(fs::read_to_string(&answer).unwrap(), "typed\n");
    keyboard.write_all(b"\x03").unwrap();
    let (code, said) = code_and_talk(&place);
    assert_eq!(code, "130\n", "{said}");
    place.wait_for_end_of(&["command"]);
}

#[test]
fn ctrl_c_arrives_once() {
    let place = Place::new();
    let count = place.path("count");
    let script = format!(
        "trap 'echo x >>{}' INT; trap 'exit 9' HUP; {}; while :; do sleep 0.05; done",
        sh(&count),
        place.word("command")
    );
    let Some(mut started) = run_in_terminal(&script, &place) else { return };
    let mut keyboard = started.stdin();
    let command = place.pid("command");
    keyboard.write_all(b"\x03").unwrap();
    wait_until("the command has received it", || count.exists());
    // Sent in the same way as a duplicate would have been, and after it.
    signal(parent_of(parent_of(command)), "HUP");
    let (code, said) = code_and_talk(&place);
    assert_eq!((code.as_str(), fs::read_to_string(count).unwrap().as_str()), ("9\n", "x\n"), "{said}");
}

#[test]
fn killing_run_in_a_terminal_ends_the_command_and_its_children() {
    let place = Place::new();
    let script = format!(
        "{} & timeout 1000 {} & ({} &) ; {}; wait",
        place.stays("child"),
        place.stays("grouped"),
        place.stays("orphan"),
        place.word("command")
    );
    let Some(mut started) = run_in_terminal(&script, &place) else { return };
    let _keyboard = started.stdin();
    let names = ["command", "child", "grouped", "orphan"];
    for name in names {
        place.pid(name);
    }
    let run = parent_of(parent_of(place.pid("command")));
    assert!(text(&fs::read(format!("/proc/{run}/cmdline")).unwrap()).contains("\0run\0"));
    signal(run, "KILL");
    place.wait_for_end_of(&names);
}

#[test]
fn ctrl_z_stops_everything_and_fg_continues() {
    let place = Place::new();
    // A shell that is starting a process cannot stop before that process has started, so it reads.
    let Some(mut started) = run_in_terminal(&format!("{}; read line; exit 4", place.word("command")), &place) else {
        return;
    };
    let mut keyboard = started.stdin();
    let command = place.pid("command");
    let keeper = parent_of(command);
    keyboard.write_all(b"\x1a").unwrap();
    for process in [command, keeper, parent_of(keeper)] {
        wait_until("it has stopped", || is_stopped(process));
    }
    fs::write(place.path("go"), "").unwrap();
    keyboard.write_all(b"\n").unwrap();
    let (code, said) = code_and_talk(&place);
    assert_eq!(code, "4\n", "{said}");
}
