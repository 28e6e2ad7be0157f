//! Users with read access only cannot block the fence. A process that does block it is named.

use crate::support::{
    World, any_git,
    needs::{Need, lacks},
    text,
};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

fn mode(path: &PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn command(world: &World, args: &[&str]) {
    world.ok(world.hook_program().args(args).arg(world.server()));
}

/// Every file and directory of the fence that a user with read access only can open.
fn what_readers_can_open(world: &World) -> Vec<PathBuf> {
    let files = fs::read_dir(world.fence_file("")).unwrap().map(|entry| entry.unwrap().path());
    let hooks = fs::read_dir(world.server().join("hooks")).unwrap().map(|entry| entry.unwrap().path());
    let dirs = [world.server(), world.fence_file(""), world.server().join("hooks")];
    files.chain(hooks).chain(dirs).filter(|path| mode(path) & 0o004 != 0).collect()
}

/// `flock` needs no write access: a process that can open a file can lock it.
#[test]
fn no_file_that_a_reader_can_open_blocks_pushes() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "200ms");
    for token in 1..=9 {
        let refspecs: Vec<String> = (0..60).map(|n| format!("HEAD:refs/heads/many/{token}/{n}")).collect();
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        world.push(&refspecs, &[&format!("fence-token={token}")]).assert_landed();
    }
    command(&world, &["rotate"]);
    let readable = what_readers_can_open(&world);
    for needed in ["server.git", "audit.jsonl", "installed.json", "pre-receive"] {
        assert!(readable.iter().any(|path| path.ends_with(needed)), "{needed} is not among {readable:?}");
    }
    let locked: Vec<File> = readable.iter().map(|path| File::open(path).unwrap()).collect();
    for file in &locked {
        file.lock().unwrap();
    }
    world.push_token("main", "10").assert_landed();
    command(&world, &["install"]);
    command(&world, &["raise", "--to", "20", "--reason", "a reader holds all that it can"]);
    command(&world, &["rotate"]);
    command(&world, &["repair"]);
    world.push_token("main", "21").assert_landed();
    command(&world, &["uninstall"]);
    world.assert_log_is_whole();
}

/// Only users who may write the directory may open the lock files.
#[test]
fn lock_files_are_readable_only_by_writers() {
    for (shared, expected) in [("false", 0o600), ("group", 0o660), ("0640", 0o600), ("0666", 0o666)] {
        let world = World::bare(&any_git(), &[]);
        fs::remove_dir_all(world.server()).unwrap();
        world.ok(world.git(".").args(["init", "-q", "--bare", &format!("--shared={shared}"), "server.git"]));
        let umask = format!("umask 0022; exec '{}' install server.git", env!("CARGO_BIN_EXE_git-fence-hook"));
        let mut shell = std::process::Command::new("sh");
        world.hermetic(&mut shell);
        world.ok(shell.args(["-c", &umask]).current_dir(world.path(".")));
        world.push_token("main", "5").assert_landed();
        for lock in ["mutex", "writer"] {
            assert_eq!(mode(&world.fence_file(lock)), expected, "{lock} with --shared={shared}");
        }
    }
}

/// As the previous version has left it, or a `chmod -R`.
#[test]
fn readable_lock_file_is_found_and_restricted_by_the_next_push() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let open = || {
        for lock in ["mutex", "writer"] {
            fs::set_permissions(world.fence_file(lock), fs::Permissions::from_mode(0o644)).unwrap();
        }
    };
    let is_closed = || ["mutex", "writer"].iter().all(|lock| mode(&world.fence_file(lock)) == 0o600);
    open();
    let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    let said = text(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{said}");
    assert!(said.contains("warning: lock-readable: ") && said.contains("fence/mutex'"), "{said}");
    assert!(!is_closed(), "reading changes nothing");
    world.push_token("main", "6").assert_landed();
    assert!(is_closed());
    open();
    command(&world, &["install"]);
    assert!(is_closed());
    assert!(world.hook_program().arg("doctor").arg(world.server()).output().unwrap().status.success());
}

/// Also for a log that the previous version has started, which has no second lock file yet.
#[test]
fn pusher_and_doctor_see_who_holds_the_lock() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "200ms");
    world.push_token("main", "1").assert_landed();
    for lock in ["mutex", "writer"] {
        let held = File::options().read(true).write(true).open(world.fence_file(lock)).unwrap();
        held.lock().unwrap();
        let pushed = world.push_token("main", "5");
        pushed.assert_refused("FENCE-BUSY");
        let doctor = world.hook_program().args(["doctor"]).arg(world.server()).output().unwrap();
        let said = text(&doctor.stdout);
        assert_eq!(doctor.status.code(), Some(1), "{said}");
        assert!(said.contains("error: lock-held: "), "{said}");
        for words in [format!("fence/{lock}'"), format!("process {}", std::process::id())] {
            assert!(pushed.text.contains(&words), "{words}: {}", pushed.text);
            assert!(said.contains(&words), "{words}: {said}");
        }
        assert!(!pushed.text.contains("refs are still moving"), "{}", pushed.text);
    }
    world.push_token("main", "5").assert_landed();
    assert!(world.hook_program().arg("doctor").arg(world.server()).output().unwrap().status.success());
}

/// Without write access, everything can still be read.
#[test]
fn readers_can_see_status_log_and_figures() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let program = world.path("gate-for-all");
    crate::support::copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &program);
    let as_nobody = |argv: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        world.hermetic(&mut command);
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(argv).current_dir("/");
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
        command.output().unwrap()
    };
    let server = world.server();
    for args in [&["status"][..], &["audit"], &["audit", "verify"], &["stats"]] {
        let ran = as_nobody(&[&[program.to_str().unwrap()], args, &[server.to_str().unwrap()]].concat());
        assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
        assert!(!ran.stdout.is_empty());
    }
    // It says what it could not check.
    let verified = as_nobody(&[program.to_str().unwrap(), "audit", "verify", server.to_str().unwrap()]);
    assert!(text(&verified.stderr).contains("fence/mutex"), "{}", text(&verified.stderr));
    for lock in ["mutex", "writer"] {
        let flock = as_nobody(&["flock", "-n", world.fence_file(lock).to_str().unwrap(), "true"]);
        assert!(!flock.status.success() && text(&flock.stderr).contains("ermission denied"), "{}", text(&flock.stderr));
    }
}
