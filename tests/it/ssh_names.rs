//! `git-fence-hook as NAME`: one ssh account, and a name for each key.

use crate::support::{
    Pushed, World, any_git, gits,
    needs::{Need, lacks},
    sh,
    sshd::Sshd,
    text,
};
use std::process::{Command, Output};

/// The line of `authorized_keys` that gives a key a name.
fn named(name: &str) -> String {
    format!("command=\"{} as {name}\",restrict", env!("CARGO_BIN_EXE_git-fence-hook"))
}

/// A push without a token of a new commit to `main`, over ssh.
fn push(world: &World, sshd: &Sshd, ssh: &str) -> Pushed {
    let commit = world.commit(&format!("by {ssh}"));
    Pushed::from(&push_command(world, sshd, ssh, &commit).output().unwrap())
}

fn push_command(world: &World, sshd: &Sshd, ssh: &str, commit: &str) -> Command {
    let mut command = world.git("work");
    command.env("GIT_SSH_COMMAND", ssh).env_remove("GL_USERNAME");
    command.arg("push").arg(sshd.url(world)).arg(format!("+{commit}:refs/heads/main"));
    command
}

fn last_pusher(world: &World) -> String {
    let pushes = world.audit().into_iter().filter(|line| line["event"].as_str().unwrap().starts_with("push."));
    pushes.filter_map(|line| line["pusher"].as_str().map(str::to_owned)).next_back().unwrap()
}

#[test]
fn a_key_has_a_name_in_the_log_and_in_the_exemptions() {
    if lacks(&[Need::Sshd]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.exempt", "anna");
        let sshd = Sshd::new(&world, &[]);
        let (anna, bob) = (sshd.key("anna", &named("anna")), sshd.key("bob", &named("bob")));
        push(&world, &sshd, &bob).assert_refused("FENCE-MISSING");
        assert_eq!(last_pusher(&world), "bob");
        push(&world, &sshd, &anna).assert_landed();
        assert_eq!(last_pusher(&world), "anna");
        let mut fetch = world.git("work");
        world.ok(fetch.env("GIT_SSH_COMMAND", &bob).args(["fetch", "-q", &sshd.url(&world), "main"]));
    }
}

/// An sshd that accepts every variable is no way around the gate, and not to another name.
#[test]
fn a_client_cannot_choose_its_name_or_settings() {
    if lacks(&[Need::Sshd]) {
        return;
    }
    let world = World::new(&any_git());
    world.configure("fence.exempt", "anna");
    let sshd = Sshd::new(&world, &["AcceptEnv *"]);
    let bob = sshd.key("bob", &named("bob"));
    let nobody = sshd.key("nobody", "restrict");
    let forged = "-o SetEnv='GIT_FENCE_PUSHER=anna GL_USERNAME=anna REMOTE_USER=anna'";
    let hookless = "-o SetEnv='GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null'";
    for sent in [forged, hookless] {
        push(&world, &sshd, &format!("{bob} {sent}")).assert_refused("FENCE-MISSING");
        assert_eq!(last_pusher(&world), "bob");
        // The variables do arrive, with a key that has no name.
        push(&world, &sshd, &format!("{nobody} {sent}")).assert_landed();
    }
}

#[test]
fn a_key_with_a_name_gets_no_shell() {
    if lacks(&[Need::Sshd]) {
        return;
    }
    let world = World::new(&any_git());
    let sshd = Sshd::new(&world, &[]);
    let anna = sshd.key("anna", &named("anna"));
    let login = |command: &str| Command::new("sh").args(["-c", &format!("{anna} server {command}")]).output().unwrap();
    let shell = login("");
    assert!(text(&shell.stderr).contains("there is no shell here: 'anna' may fetch and push with git"), "{shell:?}");
    assert_eq!(shell.status.code(), Some(1));
    let touched = world.path("touched");
    let other = login(&sh(format!("touch {}", touched.display())));
    assert!(text(&other.stderr).contains("is not a command of git"), "{other:?}");
    assert_eq!((other.status.code(), touched.exists()), (Some(1), false));
}

/// What sshd runs, without sshd.
fn ask(world: &World, args: &[&str], command: &str) -> Output {
    let mut login = world.hook_program();
    login.arg("as").args(args).env("SSH_ORIGINAL_COMMAND", command).output().unwrap()
}

#[test]
fn only_what_git_serves_is_run_and_only_below_the_root() {
    let world = World::new(&any_git());
    let (server, dir) = (world.server().display().to_string(), world.path("").display().to_string());
    let root = dir.trim_end_matches('/');
    let advertised = |output: &Output| text(&output.stdout).contains("report-status");
    let refused = |output: &Output, why: &str| {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    };
    for (args, repository) in [
        (vec!["anna"], server.as_str()),
        (vec!["anna", "--root", root], server.as_str()),
        (vec!["anna", "--root", root], "server.git"),
        (vec!["anna", "--root", root], "server"),
    ] {
        let served = ask(&world, &args, &format!("git-receive-pack '{repository}'"));
        assert!(advertised(&served), "{args:?} {repository}: {served:?}");
        let served = ask(&world, &args, &format!("git receive-pack '{repository}'"));
        assert!(advertised(&served), "{args:?} {repository}: {served:?}");
    }
    let home = world.path("home").display().to_string();
    for repository in [server.as_str(), "../server.git", ".", ".."] {
        let outside = ask(&world, &["anna", "--root", &home], &format!("git-upload-pack '{repository}'"));
        refused(&outside, "there is no repository");
    }
    for (command, why) in [
        ("git-receive-pack '-x'", "cannot begin with '-'"),
        ("git-receive-pack --advertise-refs '/'", "in single quotes"),
        ("sh -c id", "is not a command of git"),
    ] {
        refused(&ask(&world, &["anna"], command), why);
    }
    let longest = "x".repeat(201);
    for name in ["", " ", "an\nna", "an\u{1b}na", &longest] {
        refused(&ask(&world, &[name], &format!("git-upload-pack '{server}'")), "cannot be the name of a pusher");
    }
    assert_eq!(ask(&world, &[], "git-upload-pack 'x'").status.code(), Some(2), "a line without a name");
}
