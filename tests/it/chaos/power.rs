//! The power goes at each write of a push: what was not synced is gone, cut in half, or zeros. Then the machine
//! comes up again, and the fence must still know what it has promised.

use super::disk::{Disk, Files, Loss};
use crate::{
    state::reboot,
    support::{Pushed, World, any_git, program_exists, sh, text},
};
use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// A push whose writes are looked at one by one.
#[derive(Debug, Clone, Copy)]
enum Scene {
    /// After a landed push and some refusals, which are not synced.
    OfOneRef,
    /// Its list of refs does not fit into a line, and has a file of its own.
    OfManyRefs,
    /// The push before had such a file: it is settled, and the file goes.
    AfterOneOfManyRefs,
    /// The log has become so long that a checkpoint is written.
    WithCheckpoint,
}

const CALLS: &str = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat";

fn many(world: &World, count: u64, token: u64) -> Pushed {
    let refs: Vec<String> = (0..count).map(|n| format!("HEAD:refs/heads/many/{token}/{n}")).collect();
    let refs: Vec<&str> = refs.iter().map(String::as_str).collect();
    world.push(&refs, &[&format!("fence-token={token}")])
}

impl Scene {
    /// What goes before; the token that was used last.
    fn prepare(self, world: &World) -> u64 {
        world.push_token("main", "5").assert_landed();
        world.push_token("main", "3").assert_refused("FENCE-STALE");
        match self {
            Scene::OfOneRef | Scene::OfManyRefs => 5,
            Scene::AfterOneOfManyRefs => {
                many(world, 200, 6).assert_landed();
                6
            }
            Scene::WithCheckpoint => {
                let log = || fs::metadata(world.fence_file("audit.jsonl")).unwrap().len();
                let mut token = 5;
                while log() < 30 * 1024 {
                    token += 1;
                    let count = ((33 * 1024 - log()) / 400).clamp(1, 40);
                    many(world, count, token).assert_landed();
                }
                token
            }
        }
    }

    fn push(self, world: &World, token: u64) -> Pushed {
        match self {
            Scene::OfOneRef | Scene::AfterOneOfManyRefs => world.push_token("main", &token.to_string()),
            Scene::OfManyRefs => many(world, 200, token),
            Scene::WithCheckpoint => many(world, 60, token),
        }
    }
}

fn files_in(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Puts `files` in the place of the fence's, beside the refs of `refs`, and boots.
fn come_up(world: &World, refs: &Path, files: &Files) {
    copy(refs, &world.server());
    let fence = world.server().join("fence");
    fs::remove_dir_all(&fence).unwrap();
    fs::create_dir(&fence).unwrap();
    files.iter().for_each(|(name, data)| fs::write(fence.join(name), data).unwrap());
    let has_witness = serde_json::from_slice::<serde_json::Value>(&files["mutex"]).is_ok();
    if has_witness {
        reboot(world);
    }
}

/// The push with `token` was on its way when the power went. Says what is broken, if anything is.
fn check(world: &World, token: u64, accepted: bool, moved: bool) -> Result<(), String> {
    let broken = |pushed: &Pushed| match pushed.code().as_deref() {
        Some("FENCE-BROKEN") => Err(pushed.text.clone()),
        _ => Ok(()),
    };
    // What has moved refs is never admitted again.
    let old = if moved { token } else { token - 1 };
    let again = world.push_token("again", &old.to_string());
    broken(&again)?;
    again.assert_refused("FENCE-STALE");
    // The record of a push that was let through is there, and says what became of it.
    let on_record = |event: &str| {
        let lines = world.events(event);
        lines.into_iter().find(|line| line["token"] == token)
    };
    assert!(!accepted || on_record("push.accepted").is_some(), "the acceptance of {token} is lost");
    let next = world.push_token("again", &(if moved { token + 1 } else { token }).to_string());
    broken(&next)?;
    next.assert_landed();
    assert!(!moved || on_record("push.settled").is_some_and(|line| line["moved"].as_u64() > Some(0)));
    world.assert_log_is_whole();
    let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));
    Ok(())
}

fn the_power_goes_during(scene: Scene) {
    assert!(program_exists("strace"), "this test needs strace: apt-get install strace");
    let world = World::new(&any_git());
    // What is on the disk while git moves the refs, and nobody has given word of it.
    world.companion_never_runs();
    let token = scene.prepare(&world) + 1;
    let installed = fs::read(world.hook("pre-receive")).unwrap();
    let fence = world.server().join("fence").canonicalize().unwrap();
    let mut disk = Disk::new(&fence, &files_in(&fence));
    let (before, after, trace) = (world.path("before.git"), world.path("after.git"), world.path("trace"));
    copy(&world.server(), &before);

    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    let strace = format!("exec strace -qq -y -xx -s 1000000 -e trace={CALLS} -o {} {gate} pre-receive", sh(&trace));
    world.write_hook("pre-receive", &strace);
    scene.push(&world, token).assert_landed();
    fs::write(world.hook("pre-receive"), &installed).unwrap();
    copy(&world.server(), &after);

    let mut states: Vec<(bool, Loss, Files)> = Vec::new();
    let trace = fs::read_to_string(trace).unwrap();
    let calls = trace.lines().filter(|line| disk.take(line)).count();
    let mut disk = Disk::new(&fence, &files_in(&before.join("fence")));
    for line in trace.lines() {
        if disk.take(line) {
            states.extend(disk.all_after().into_iter().map(|(loss, files)| (false, loss, files)));
        }
    }
    assert_eq!(
        disk.after(Loss::Nothing),
        files_in(&after.join("fence")),
        "{scene:?}: the small disk is not the real one"
    );
    // From here on git moves the refs.
    states.extend(disk.all_after().into_iter().map(|(loss, files)| (true, loss, files)));

    let mut tried: BTreeMap<Loss, u64> = BTreeMap::new();
    let mut seen: Vec<(bool, Files)> = Vec::new();
    for (accepted, loss, files) in states {
        if seen.contains(&(accepted, files.clone())) {
            continue;
        }
        for moved in [false, true] {
            if moved && !accepted {
                continue;
            }
            come_up(&world, if moved { &after } else { &before }, &files);
            let checked = check(&world, token, accepted, moved);
            assert!(
                checked.is_ok(),
                "{scene:?}, lost {loss:?}, accepted {accepted}, moved {moved}: jammed\n{checked:?}\n{:?}",
                files.keys()
            );
            *tried.entry(loss).or_default() += 1;
        }
        seen.push((accepted, files));
    }
    println!("{scene:?}: {calls} writes, the power went {} times: {tried:?}", tried.values().sum::<u64>());
    assert!(tried.len() > 3, "{scene:?}: {tried:?}");
}

#[test]
fn when_the_power_goes_no_acceptance_is_lost_and_no_spent_token_comes_back() {
    the_power_goes_during(Scene::OfOneRef);
}

#[test]
fn when_the_power_goes_a_list_of_refs_that_is_needed_is_there() {
    the_power_goes_during(Scene::OfManyRefs);
}

#[test]
fn when_the_power_goes_a_list_of_refs_that_is_not_needed_may_come_back() {
    the_power_goes_during(Scene::AfterOneOfManyRefs);
}

#[test]
fn when_the_power_goes_a_checkpoint_may_be_lost_or_garbage() {
    the_power_goes_during(Scene::WithCheckpoint);
}
