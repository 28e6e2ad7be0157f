//! `git fence demo`: what it tells is what happened, and nothing is left behind.

use crate::support::{
    Git, World, any_git, as_if_from_a_shell, copy_program, gits,
    needs::{Need, lacks},
    sh, signal, text, wait_until, write_script,
};
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A place for the demo's files, and an environment of a user whose own settings would stop it.
struct Theatre {
    world: World,
}

impl Theatre {
    fn new(git: &Git) -> Theatre {
        let theatre = Theatre { world: World::bare(git, &[]) };
        fs::create_dir(theatre.tmp()).unwrap();
        write_script(&theatre.world.path("refuse"), "exit 1");
        fs::write(
            theatre.world.path("home/.gitconfig"),
            format!(
                "[core]\n\thooksPath = {hooks}\n[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {refuse}\n\
                 [push]\n\tgpgSign = true\n\tpushOption = fence-token=9\n[init]\n\tdefaultBranch = other\n\
                 [url \"none:\"]\n\tinsteadOf = /\n[alias]\n\tfence = !false\n",
                hooks = theatre.world.path("hooks").display(),
                refuse = theatre.world.path("refuse").display(),
            ),
        )
        .unwrap();
        fs::create_dir(theatre.world.path("hooks")).unwrap();
        for hook in ["pre-commit", "pre-push", "pre-receive"] {
            write_script(&theatre.world.path("hooks").join(hook), "exit 1");
        }
        theatre
    }

    fn tmp(&self) -> PathBuf {
        self.world.path("tmp")
    }

    /// `git fence demo`, started directly, as `cargo run` does.
    fn demo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence"));
        self.world.hermetic(&mut command);
        command.env_remove("GIT_CONFIG_GLOBAL").env("TMPDIR", self.tmp());
        command.env("GIT_DIR", "/nowhere").env("GIT_FENCE", "docs").env("GIT_FENCE_LEASE", "0".repeat(32));
        command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
        command.arg("demo").args(args).current_dir("/");
        command
    }

    /// Puts a git before the real one that notes what the remote's branches are when the demo reads them.
    fn note_branches(&self, demo: &mut Command) -> PathBuf {
        let (bin, notes) = (self.world.path("bin"), self.world.path("notes"));
        fs::create_dir(&bin).unwrap();
        let path = demo.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path).unwrap().to_owned();
        let path = path.to_str().unwrap();
        let git = std::env::split_paths(path).map(|dir| dir.join("git")).find(|git| git.is_file()).unwrap();
        let note = format!("{} for-each-ref --format='%(refname) %(subject)' refs/heads >{}", sh(&git), sh(&notes));
        write_script(
            &bin.join("git"),
            &format!("case \"$*\" in *refs/heads/live*) {note};; esac\nexec {} \"$@\"", sh(&git)),
        );
        demo.env("PATH", format!("{}:{path}", bin.display()));
        notes
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        assert_eq!(fs::read_dir(self.tmp()).unwrap().count(), 0, "files are left");
        let left = processes_that_mention(&self.tmp());
        assert_eq!(left, Vec::<String>::new(), "processes are left");
    }
}

/// Processes with the directory in their arguments, or that are in it.
fn processes_that_mention(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let mentions = |process: &Path| {
        let arguments = text(&fs::read(process.join("cmdline")).unwrap_or_default()).replace('\0', " ");
        let cwd = fs::read_link(process.join("cwd")).map(|cwd| cwd.display().to_string()).unwrap_or_default();
        (arguments.contains(dir) || cwd.starts_with(dir)).then_some(arguments)
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| mentions(&entry.unwrap().path())).collect()
}

/// Plays it in a pipe. Returns its output, and the branches of the remote at the end.
fn play(git: &Git, args: &[&str]) -> (Output, String) {
    let theatre = Theatre::new(git);
    let mut demo = theatre.demo(args);
    let notes = theatre.note_branches(&mut demo);
    let played = demo.output().unwrap();
    theatre.assert_nothing_is_left();
    let branches = fs::read_to_string(notes).unwrap_or_default();
    assert_eq!(text(&played.stderr), "");
    assert_eq!(text(&played.stdout).lines().count(), 1, "quiet in a pipe: {}", text(&played.stdout));
    (played, branches)
}

const UNTOUCHED: &str = "refs/heads/live version 0\nrefs/heads/main Revert \"version 1\"\n";
const OVERWRITTEN: &str = "refs/heads/live version 1\nrefs/heads/main Revert \"version 1\"\n";

#[test]
fn late_push_is_refused_with_the_fence() {
    for git in gits() {
        let (played, branches) = play(&git, &[]);
        assert_eq!(played.status.code(), Some(0), "{}", text(&played.stdout));
        assert!(text(&played.stdout).starts_with("The promise held, with the fence: "), "{}", text(&played.stdout));
        assert!(text(&played.stdout).ends_with(" (exit code 75).\n"), "{}", text(&played.stdout));
        assert_eq!(branches, UNTOUCHED);
    }
}

#[test]
fn late_push_is_refused_by_git_itself_without_a_hook() {
    for git in gits() {
        let (played, branches) = play(&git, &["--hookless"]);
        assert_eq!(played.status.code(), Some(0), "{}", text(&played.stdout));
        assert!(text(&played.stdout).starts_with("The promise held, on a remote that runs no hook: "));
        assert_eq!(branches, UNTOUCHED);
    }
}

#[test]
fn late_push_lands_with_the_usual_hook() {
    for git in gits() {
        let (played, branches) = play(&git, &["--without-fence"]);
        assert_eq!(played.status.code(), Some(1), "{}", text(&played.stdout));
        assert!(text(&played.stdout).starts_with("The promise did not hold, as expected with the usual hook: "));
        assert_eq!(branches, OVERWRITTEN);
    }
}

fn give_environment(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// On a terminal of 80 columns, with or without colours.
fn on_a_terminal(args: &str, no_color: bool) -> String {
    let theatre = Theatre::new(&any_git());
    let demo = theatre.demo(&[]);
    let line = format!("stty cols 80 && exec {} demo {args}", sh(env!("CARGO_BIN_EXE_git-fence")));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).current_dir("/");
    give_environment(&demo, &mut script);
    script.env("TERM", "xterm");
    if no_color {
        script.env("NO_COLOR", "1");
    } else {
        script.env_remove("NO_COLOR");
    }
    let played = script.output().unwrap();
    assert_eq!(played.status.code(), Some(0), "{}", text(&played.stdout));
    theatre.assert_nothing_is_left();
    text(&played.stdout).replace('\r', "")
}

#[test]
fn play_is_told_on_a_terminal_of_80_columns() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    let told = on_a_terminal("", true);
    let too_long: Vec<&str> = told.lines().filter(|line| line.chars().count() > 79).collect();
    assert_eq!(too_long, Vec::<&str>::new());
    assert!(!told.contains('\x1b'), "NO_COLOR is set: {told}");
    let scenes = [
        "git fence demo: a push that wakes up too late, with the fence",
        "1. agent-1 has the lease, and token 1.",
        "agent-1$ git fence run --owner agent-1 --ttl ",
        "2. ... and at this moment agent-1 freezes.",
        "3. agent-2 gets the lease, and token 2.",
        "agent-2$ git fence run --owner agent-2 -- ./undo.sh",
        "4. agent-1 wakes up",
        " ! [remote rejected] main -> live (FENCE-LEASE-LOST ",
        "| exit code 75",
        "the remote took nothing of it",
        "What the remote has now",
        "| live   version 0",
        "What the remote wrote down",
        "push.accepted       1   live",
        "push.evicted ",
        "push.accepted       2   main",
        "Who had the lease, newest first",
        "'agent-1' held it until it expired",
        "The promise held, with the fence: ",
        "git fence demo --without-fence",
    ];
    let mut rest = told.as_str();
    for scene in scenes {
        let at = rest.find(scene).unwrap_or_else(|| panic!("'{scene}' is missing, or not in its place: {told}"));
        rest = &rest[at..];
    }
    assert!(!told.contains("git-fence-demo-"), "no path of the throw-away remote: {told}");
}

#[test]
fn play_is_told_in_colours_on_a_terminal() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    assert!(on_a_terminal("--hookless", false).contains("\x1b[1;32mThe promise held"));
}

#[test]
fn colours_are_as_asked_for_in_a_pipe() {
    let theatre = Theatre::new(&any_git());
    let played = theatre.demo(&["--hookless", "--color", "always"]).env("NO_COLOR", "1").output().unwrap();
    assert!(text(&played.stdout).starts_with("\x1b[1;32mThe promise held"), "{}", text(&played.stdout));
    let both = theatre.demo(&["--hookless", "--without-fence"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
}

/// The demo is interrupted when its first agent is frozen.
fn interrupt(mut demo: Command, theatre: &Theatre, name: &str) -> Output {
    let demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_frozen = || {
        let stage = fs::read_dir(theatre.tmp()).unwrap().next();
        stage.is_some_and(|stage| stage.unwrap().path().join("shop.git/frozen").exists())
    };
    wait_until("agent-1 is frozen", is_frozen);
    signal(demo.id(), name);
    demo.wait_with_output().unwrap()
}

#[test]
fn nothing_is_left_behind_after_a_signal() {
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let theatre = Theatre::new(&any_git());
        let ended = interrupt(as_if_from_a_shell(&theatre.demo(&[])), &theatre, name);
        theatre.assert_nothing_is_left();
        assert_eq!(ended.status.signal(), Some(number), "{}", text(&ended.stderr));
        assert_eq!(text(&ended.stdout), "");
    }
}

/// As `cargo run` leaves it: this program alone.
fn alone(theatre: &Theatre) -> (Command, PathBuf) {
    let dir = theatre.world.path("target/debug");
    fs::create_dir_all(&dir).unwrap();
    copy_program(env!("CARGO_BIN_EXE_git-fence"), &dir.join("git-fence"));
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap()).find(|dir| dir.join("git").is_file());
    let mut alone = Command::new(dir.join("git-fence"));
    alone.arg("demo").arg("--hookless").env_clear().env("TMPDIR", theatre.tmp());
    alone.env("PATH", std::env::join_paths([git.unwrap(), "/usr/bin".into(), "/bin".into()]).unwrap());
    (alone, dir)
}

#[test]
fn programs_that_cargo_run_leaves_out_are_built() {
    let theatre = Theatre::new(&any_git());
    let (mut demo, dir) = alone(&theatre);
    let cargo = theatre.world.path("cargo");
    let ours = Path::new(env!("CARGO_BIN_EXE_git-fence")).parent().unwrap();
    let copy = format!("cp {0}/git-fence-hook {0}/git-remote-fence {1}", sh(ours), sh(&dir));
    write_script(&cargo, &format!("echo \"$@\" >{}\n{copy}", sh(theatre.world.path("built"))));
    let played = demo.env("CARGO", &cargo).env("CARGO_MANIFEST_DIR", "/src/git-fence").output().unwrap();
    assert_eq!(played.status.code(), Some(0), "{}", text(&played.stderr));
    assert_eq!(
        text(&played.stderr),
        "note: building git-fence-hook and git-remote-fence, which cargo run leaves out\n"
    );
    let built = fs::read_to_string(theatre.world.path("built")).unwrap();
    assert_eq!(built, "build --quiet --locked --bins --profile dev --manifest-path /src/git-fence/Cargo.toml\n");
    theatre.assert_nothing_is_left();
}

#[test]
fn missing_program_is_named_and_proves_nothing() {
    let theatre = Theatre::new(&any_git());
    let played = alone(&theatre).0.output().unwrap();
    assert_eq!(played.status.code(), Some(69), "{}", text(&played.stderr));
    assert!(text(&played.stderr).contains("'git-fence-hook' is neither beside this program nor in the PATH"));
    assert_eq!(text(&played.stdout), "");
}

/// Git skips hooks that it may not run: the demo must not tell what that leads to.
#[test]
fn directory_that_runs_no_programs_is_named_and_proves_nothing() {
    if lacks(&[Need::Mount]) {
        return;
    }
    let theatre = Theatre::new(&any_git());
    let demo = theatre.demo(&["--without-fence"]);
    let program = sh(demo.get_program());
    let script = format!("mount -t tmpfs -o noexec tmpfs {} && exec {program} demo --without-fence", sh(theatre.tmp()));
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", &script]).stdin(Stdio::null());
    give_environment(&demo, &mut unshare);
    let played = unshare.output().unwrap();
    assert_eq!(played.status.code(), Some(69), "{}", text(&played.stderr));
    assert!(text(&played.stderr).contains("set TMPDIR to another directory"), "{}", text(&played.stderr));
    assert_eq!(text(&played.stdout), "");
}
