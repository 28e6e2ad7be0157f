//! The power fails at each write of a push: unsynced data is lost, cut in half, or zeros. Then the machine
//! restarts, and the fence must keep its promises.

use super::disk::{Disk, Files, Loss};
use crate::{
    state::reboot,
    support::{
        Pushed, World, any_git,
        needs::{Need, lacks},
        sh,
    },
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A push whose writes are examined one by one.
#[derive(Debug, Clone, Copy)]
enum Scene {
    /// After a landed push and some refusals, which are not synced.
    OfOneRef,
    /// Its ref list does not fit in a line, and has a separate file.
    OfManyRefs,
    /// The previous push had such a file: it is settled, and the file is removed.
    AfterOneOfManyRefs,
    /// The log is so long that a checkpoint is written.
    WithCheckpoint,
    /// With many refs, and the settling line makes a checkpoint due.
    SettledWithCheckpoint,
    /// The log cannot grow when it is settled, and git's report is kept in the mutex file.
    SettledWithoutRoom,
}

/// The process whose writes are examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Gate,
    Companion,
}

const CALLS: &str = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat";

fn many(world: &World, count: u64, token: u64) -> Pushed {
    let refs: Vec<String> = (0..count).map(|n| format!("HEAD:refs/heads/many/{token}/{n}")).collect();
    let refs: Vec<&str> = refs.iter().map(String::as_str).collect();
    world.push(&refs, &[&format!("fence-token={token}")])
}

impl Scene {
    /// Prepares the repository; returns the last used token.
    fn prepare(self, world: &World) -> u64 {
        world.push_token("main", "5").assert_landed();
        world.push_token("main", "3").assert_refused("FENCE-STALE");
        match self {
            Scene::OfOneRef | Scene::OfManyRefs => 5,
            Scene::SettledWithoutRoom => {
                (6..9).for_each(|token| world.push_token("main", &token.to_string()).assert_landed());
                8
            }
            Scene::SettledWithCheckpoint => {
                many(world, 200, 6).assert_landed();
                fill_up_to_a_checkpoint(world);
                6
            }
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
            Scene::OfOneRef | Scene::AfterOneOfManyRefs | Scene::SettledWithoutRoom => {
                world.push_token("main", &token.to_string())
            }
            Scene::OfManyRefs | Scene::SettledWithCheckpoint => many(world, 200, token),
            Scene::WithCheckpoint => many(world, 60, token),
        }
    }
}

/// Fills the log with refusals until the settling line of a push like the last one makes a checkpoint due.
fn fill_up_to_a_checkpoint(world: &World) {
    let log = || fs::read_to_string(world.fence_file("audit.jsonl")).unwrap();
    let length_of = |event: &str| {
        let lines = log();
        let last = lines.lines().rfind(|line| line.contains(&format!("\"{event}\"")));
        last.unwrap().len() + 1
    };
    let refuse = |owner: usize| {
        let owner = format!("fence-owner={}", "x".repeat(owner));
        world.push(&["HEAD:refs/heads/refused"], &["fence-token=3", &owner]).assert_refused("FENCE-STALE");
    };
    refuse(10);
    let refused = length_of("push.rejected");
    let (accepted, settled) = (length_of("push.accepted"), length_of("push.settled"));
    let missing = CHECKPOINT_EVERY - accepted - settled / 2 - log().len();
    let count = missing / refused;
    (0..count).for_each(|_| refuse(10 + missing % refused / count));
    let length = log().len() + accepted;
    assert!((CHECKPOINT_EVERY - settled + 20..CHECKPOINT_EVERY - 20).contains(&length), "{length}");
}

/// The length of the log at which a checkpoint is written.
const CHECKPOINT_EVERY: usize = 32 * 1024;

fn files_in(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Replaces the fence's files by `files`, with the refs of `refs`, and reboots.
fn come_up(world: &World, refs: &Path, files: &Files) {
    copy(refs, &world.server());
    let fence = world.server().join("fence");
    fs::remove_dir_all(&fence).unwrap();
    fs::create_dir(&fence).unwrap();
    files.iter().for_each(|(name, data)| fs::write(fence.join(name), data).unwrap());
    if witness_in(files).is_some() {
        reboot(world);
    }
}

fn witness_in(files: &Files) -> Option<serde_json::Value> {
    serde_json::from_slice(files["mutex"].split(|b| *b == b'\n').next()?).ok()
}

/// Whether these files record that the push with `token` has landed: in a complete line, or in the report in the mutex.
fn has_word_of(files: &Files, token: u64) -> bool {
    let lines = files["audit.jsonl"].split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut lines = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let is_settled = lines.any(|line| line["event"] == "push.settled" && line["token"] == token);
    is_settled || witness_in(files).is_some_and(|witness| witness["unwritten"].is_array())
}

/// The push with `token` was in flight when the power failed; `moved` if a ref shows it or the record says so, and
/// `refs_lost` if only the record does. Returns what is broken, if anything.
fn check(world: &World, token: u64, accepted: bool, moved: bool, refs_lost: bool) -> Result<(), String> {
    let broken = |pushed: &Pushed| match pushed.code().as_deref() {
        Some("FENCE-BROKEN") => Err(pushed.text.clone()),
        _ => Ok(()),
    };
    // A push that has moved refs is never admitted again.
    let old = if moved { token } else { token - 1 };
    let again = world.push_token("again", &old.to_string());
    broken(&again)?;
    again.assert_refused("FENCE-STALE");
    // The record of an accepted push exists, and contains its result.
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
    let doctor = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let found = report["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] != "note");
    let found: Vec<&str> = found.filter_map(|finding| finding["name"].as_str()).collect();
    // A push that its pusher was told of is gone from the refs: doctor says so where the log lists all its refs.
    assert!(found.iter().all(|name| refs_lost && *name == "moved-without-gate"), "{report:#}");
    Ok(())
}

/// Runs gate and companion under strace; returns the files with their traces.
fn watch(world: &World, scene: Scene) -> [PathBuf; 2] {
    let traces = [world.path("trace-of-gate"), world.path("trace-of-companion")];
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    let strace = |trace: &Path| format!("exec strace -qq -y -xx -s 1000000 -e trace={CALLS} -o {}", sh(trace));
    world.write_hook("pre-receive", &format!("{} {gate} pre-receive", strace(&traces[0])));
    let starts = match scene {
        // The limit is for the companion, not for strace.
        Scene::SettledWithoutRoom => format!("{} sh -c 'ulimit -f 4; exec \"$@\"' sh", strace(&traces[1])),
        _ => strace(&traces[1]),
    };
    world.companion_under(&starts);
    traces
}

/// The possible disk states after each write of `writer`, and whether the push had been accepted by then.
fn states_of(disk: &mut Disk, writer: Writer, [gate, companion]: &[String; 2]) -> (usize, Vec<(bool, Loss, Files)>) {
    let (mut states, mut calls) = (Vec::new(), 0);
    let mut all_of = |disk: &Disk, accepted: bool| {
        states.extend(disk.all_after().into_iter().map(|(loss, files)| (accepted, loss, files)));
    };
    for line in gate.lines() {
        if disk.take(line) && writer == Writer::Gate {
            all_of(disk, false);
            calls += 1;
        }
    }
    // From here on git moves the refs.
    all_of(disk, true);
    for line in companion.lines() {
        if disk.take(line) {
            all_of(disk, true);
            calls += 1;
        }
    }
    (calls, states)
}

fn the_power_goes_during(scene: Scene, writer: Writer) {
    if lacks(&[Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    if writer == Writer::Gate {
        // The disk state while git moves the refs, before git's report.
        world.companion_never_runs();
    }
    let token = scene.prepare(&world) + 1;
    let hooks = ["pre-receive", "post-receive"].map(|name| (world.hook(name), fs::read(world.hook(name)).unwrap()));
    let fence = world.server().join("fence").canonicalize().unwrap();
    let (before, after) = (world.path("before.git"), world.path("after.git"));
    copy(&world.server(), &before);

    let traces = watch(&world, scene);
    if writer == Writer::Gate {
        world.companion_never_runs();
    }
    scene.push(&world, token).assert_landed();
    hooks.iter().for_each(|(path, installed)| fs::write(path, installed).unwrap());
    copy(&world.server(), &after);

    let mut disk = Disk::new(&fence, &files_in(&before.join("fence")));
    let traces = traces.map(|trace| fs::read_to_string(trace).unwrap_or_default());
    let (calls, states) = states_of(&mut disk, writer, &traces);
    assert_eq!(
        disk.after(Loss::Nothing),
        files_in(&after.join("fence")),
        "{scene:?}: the model of the disk differs from the real directory"
    );

    let mut tried: BTreeMap<Loss, u64> = BTreeMap::new();
    let mut seen: Vec<(bool, Files)> = Vec::new();
    let mut had_word = [false; 2];
    for (accepted, loss, files) in states {
        if seen.contains(&(accepted, files.clone())) {
            continue;
        }
        let has_word = has_word_of(&files, token);
        had_word[usize::from(has_word)] = true;
        for moved in [false, true] {
            if moved && !accepted {
                continue;
            }
            come_up(&world, if moved { &after } else { &before }, &files);
            // A recorded landing stays spent, even if git's refs were lost.
            let checked = check(&world, token, accepted, moved || has_word, has_word && !moved);
            assert!(
                checked.is_ok(),
                "{scene:?}, lost {loss:?}, accepted {accepted}, moved {moved}: jammed\n{checked:?}\n{:?}",
                files.keys()
            );
            *tried.entry(loss).or_default() += 1;
        }
        seen.push((accepted, files));
    }
    println!(
        "{scene:?}, {writer:?}: {calls} writes, the power failed {} times: {tried:?}",
        tried.values().sum::<u64>()
    );
    assert!(tried.len() > 3, "{scene:?}: {tried:?}");
    let checkpoint = "state.json".bytes().map(|b| format!("\\x{b:02x}")).collect::<String>();
    let makes_one = traces[1].lines().any(|line| line.starts_with("rename") && line.contains(&checkpoint));
    assert_eq!(makes_one, matches!(scene, Scene::SettledWithCheckpoint), "{scene:?}");
    assert_eq!(
        had_word,
        [true, writer == Writer::Companion],
        "{scene:?}: a report in the mutex is present, and is lost"
    );
}

#[test]
fn power_loss_loses_no_acceptance_and_revives_no_spent_token() {
    the_power_goes_during(Scene::OfOneRef, Writer::Gate);
}

#[test]
fn power_loss_keeps_the_ref_list_that_is_needed() {
    the_power_goes_during(Scene::OfManyRefs, Writer::Gate);
}

#[test]
fn power_loss_may_revive_a_ref_list_that_is_not_needed() {
    the_power_goes_during(Scene::AfterOneOfManyRefs, Writer::Gate);
}

#[test]
fn power_loss_may_lose_or_corrupt_a_checkpoint() {
    the_power_goes_during(Scene::WithCheckpoint, Writer::Gate);
}

/// The companion syncs nothing itself: lost lines are settled from the surviving refs.
#[test]
fn power_loss_may_lose_lines_of_the_companion() {
    the_power_goes_during(Scene::OfOneRef, Writer::Companion);
}

#[test]
fn power_loss_finds_the_ref_list_that_the_companion_still_needs() {
    the_power_goes_during(Scene::OfManyRefs, Writer::Companion);
}

#[test]
fn power_loss_may_lose_or_corrupt_a_checkpoint_of_the_companion() {
    the_power_goes_during(Scene::SettledWithCheckpoint, Writer::Companion);
}

#[test]
fn power_loss_may_lose_a_report_kept_in_the_mutex() {
    the_power_goes_during(Scene::SettledWithoutRoom, Writer::Companion);
}
