//! Checks the fence itself: its files, git's ref locks, and the push in flight.

use crate::{
    commands::{
        advice::{self, install, quoted},
        audit,
        doctor::{
            finding::{Finding, Severity},
            halted, lock, store,
            stray::{self, StrayRefs},
        },
        install::takeover::{self, Raise},
    },
    failure::{self, CommandError},
    host::clock,
    log::{files::FenceDir, history, journal::Damage, store::read_plan},
    push::{
        catch_up,
        slot::{self, FlightState, Viewpoint},
    },
    repository::Repository,
};
use git_fence_core::{FenceName, InFlight, LeasePart, Mark, Mode, Place, Rules, Settings, State, TokenKind, text};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Age from which a lock of git counts as left behind rather than in use.
const LOCK_LEFT_AFTER: Duration = Duration::from_secs(60);

/// Everything that prevents the gate from deciding, or refs from moving.
pub(crate) fn check(repository: &Repository, settings: &Settings) -> Result<Vec<Finding>, CommandError> {
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let mut findings: Vec<Finding> = writable(repository, &dir).into_iter().collect();
    findings.extend(irregular(&dir, settings));
    if findings.iter().any(|finding| finding.name == "fence-not-a-file") {
        // Nothing can be read there, and this is the reason.
        return Ok(findings);
    }
    findings.extend(lock::check(&dir));
    let mut stray = StrayRefs::of(repository, &dir)?;
    let state = match audit::check(&dir, &here, |read| stray.line(read.line)) {
        Ok(journal) => {
            findings.extend(stray::finding(&stray.found(repository, settings)?, repository));
            if !journal.torn.is_empty() {
                let torn = Damage::Torn { path: dir.log(), line: journal.head.seq + 1 };
                findings.extend(damage(repository, &dir, &torn, settings));
            }
            Some(journal.state)
        }
        Err(CommandError::Damage(found)) => {
            // The damage that 'audit' finds may be irrelevant for pushes.
            let seen_by_push = history::current(&dir, &here.boot);
            findings.extend(match &seen_by_push {
                Ok(_) => harmless(repository, &dir, &found).or_else(|| damage(repository, &dir, &found, settings)),
                Err(closing) => damage(repository, &dir, closing, settings),
            });
            seen_by_push.ok().map(|current| current.journal.state)
        }
        Err(other) => return Err(other),
    };
    if let Some(state) = &state {
        findings.extend(in_flight(repository, &dir, state, settings, &here));
        findings.extend(behind_leases(repository, state, settings)?);
        findings.extend(leases_unlike_log(repository, state, settings, &here));
        findings.extend(leases_without_effect(repository, state, settings));
        findings.extend(marks_unlike_log(repository, state, settings));
        findings.extend(store::check(state, settings));
        findings.extend(halted::check(repository, state, settings));
        findings.extend(leftovers(repository, &dir));
    }
    findings.extend(locks(repository).into_iter().map(|lock| {
        let sentence =
            format!("'{}' was left behind by a git process that was killed: {}", lock.display(), effect_of(&lock));
        Finding::error("lock-left", sentence, format!("rm {}", quoted(&lock)))
    }));
    Ok(findings)
}

/// The hook runs as the pushing user: the owner of the repository, or a member of its group.
fn writable(repository: &Repository, dir: &FenceDir) -> Option<Finding> {
    let owner = fs::metadata(&repository.common_dir).ok()?;
    let fence = quoted(dir.path());
    for path in [dir.path().to_owned(), dir.log(), dir.mutex(), dir.writer(), dir.checkpoint()] {
        let Ok(found) = fs::metadata(&path) else { continue };
        let for_group = found.gid() == owner.gid() && found.mode() & 0o020 != 0;
        if found.uid() != owner.uid() && !for_group {
            let sentence =
                format!("'{}' does not belong to the repository's owner: pushes cannot write to it", path.display());
            let fix = format!("chown -R --reference={} {fence}", quoted(&repository.common_dir));
            return Some(Finding::error("fence-foreign-owner", sentence, fix));
        }
        if found.mode() & 0o200 == 0 {
            let sentence = format!("'{}' is not writable: all pushes except root's are refused", path.display());
            return Some(Finding::error("fence-not-writable", sentence, format!("chmod -R u+rwX {fence}")));
        }
    }
    None
}

/// Links and other files that are not opened.
fn irregular(dir: &FenceDir, settings: &Settings) -> Vec<Finding> {
    let paths = [dir.path().to_owned(), dir.log(), dir.mutex(), dir.writer(), dir.checkpoint()];
    let finding = |path: &PathBuf| {
        let is_rebuilt = *path != dir.path() && *path != dir.log();
        let what = if path == dir.path() { "directory" } else { "regular file" };
        let then = if is_rebuilt { "It will be recreated" } else { "Replace it with the original" };
        Finding {
            name: "fence-not-a-file",
            severity: Severity::Error,
            sentence: format!(
                "'{}' is not a {what}, and links are not followed here: {}. {then}",
                path.display(),
                effect_on_pushes(settings)
            ),
            fix: is_rebuilt.then(|| format!("rm {}", quoted(path))),
        }
    };
    paths.iter().filter(|path| dir.is_irregular(path)).map(finding).collect()
}

/// What happens to pushes if the log cannot be used.
fn effect_on_pushes(settings: &Settings) -> &'static str {
    if settings.enforces() {
        "every push to guarded refs is refused"
    } else if settings.fences.iter().any(|rules| rules.mode == Mode::Observe) {
        "pushes land unrecorded, because no fence enforces"
    } else {
        "pushes land, because every fence is off"
    }
}

fn damage(repository: &Repository, dir: &FenceDir, damage: &Damage, settings: &Settings) -> Option<Finding> {
    let anew = || format!("mv {} {} && {}", quoted(dir.path()), quoted(&free_name(dir.path())), install(repository));
    let repair = |reason: &str| repair(repository, reason);
    let closed = effect_on_pushes(settings);
    let adopt = format!(
        "{closed}. Restore it from a backup. If there is none, the command keeps the readable part of the log; then raise the marks"
    );
    let begin = format!(
        "{closed}. Restore it from a backup. If there is none, the command starts over, with marks at 0 or as leases require"
    );
    let closed = closed.to_owned();
    let (name, severity, then, fix) = match damage {
        Damage::NoLog(_) if settings.init_at_first_push => return None,
        Damage::NoLog(_) => ("log-missing", Severity::Error, closed, Some(install(repository))),
        Damage::LostLog(_) => ("log-lost", Severity::Error, begin, Some(anew())),
        Damage::Cut { .. } => ("log-cut", Severity::Error, adopt, Some(repair("--reason 'the end is lost' "))),
        Damage::Line { line, .. } if *line > 1 => {
            ("log-damaged", Severity::Error, adopt, Some(repair("--reason 'damaged' ")))
        }
        Damage::Empty(_) | Damage::Line { .. } => ("log-damaged", Severity::Error, begin, Some(anew())),
        Damage::Torn { .. } => {
            let then = "it was never acknowledged; the command or the next push moves it to a separate file".to_owned();
            ("log-torn", Severity::Warning, then, Some(repair("")))
        }
        Damage::Checkpoint(_) => {
            ("checkpoint-damaged", Severity::Warning, "it is rebuilt from the log".to_owned(), Some(repair("")))
        }
        Damage::CheckpointVersion { .. } => ("log-newer", Severity::Error, closed, None),
        Damage::Io { .. } => {
            let then = format!("if the pushing user cannot read it either, {closed}");
            ("log-unreadable", Severity::Error, then, Some(format!("chmod -R u+rwX {}", quoted(dir.path()))))
        }
    };
    Some(Finding { name, severity, sentence: format!("{damage}: {then}"), fix })
}

fn repair(repository: &Repository, reason: &str) -> String {
    format!("git-fence-hook repair --yes {reason}{}", quoted(&repository.git_dir))
}

/// Damage without effect on pushes: in a file that only 'audit' reads, or in lines before the checkpoint.
fn harmless(repository: &Repository, dir: &FenceDir, damage: &Damage) -> Option<Finding> {
    let path = match damage {
        Damage::Line { path, .. } | Damage::Torn { path, .. } | Damage::Empty(path) | Damage::Io { path, .. } => path,
        _ => return None,
    };
    if *path != dir.log() {
        let then = "pushes are checked and land as before, because only 'audit' reads that file. Restore it from a backup, or move it and all older ones elsewhere";
        let sentence = format!("{damage}: {then}");
        return Some(Finding { name: "archive-damaged", severity: Severity::Warning, sentence, fix: None });
    }
    let Damage::Line { .. } = damage else { return None };
    let sentence = format!(
        "{damage}: pushes are checked and land as before, because the checkpoint is past that line; without the checkpoint, they would be refused. The command moves the lines so far to an archive file"
    );
    Some(Finding::warning("log-damaged-before-checkpoint", sentence, repair(repository, "--reason 'damaged' ")))
}

/// Files left by an interrupted rotation.
fn leftovers(repository: &Repository, dir: &FenceDir) -> Vec<Finding> {
    let left = history::leftovers(dir).unwrap_or_default();
    let finding = |path: PathBuf| {
        let sentence = format!(
            "'{}' was left by an interrupted rotation: all its lines are also in the next file",
            path.display()
        );
        Finding::note("rotation-interrupted", sentence, repair(repository, ""))
    };
    left.into_iter().map(finding).collect()
}

/// Leases that have granted more than the marks show: the log is older than the refs.
fn behind_leases(repository: &Repository, state: &State, settings: &Settings) -> Result<Vec<Finding>, CommandError> {
    let raises = takeover::read(repository, settings)?.raises;
    // A push that is not settled yet may have raised the mark already.
    let in_flight = |raise: &Raise| {
        let tokens = state.in_flight.iter().filter_map(|flight| flight.token_for(&raise.fence));
        let changes = state.in_flight.iter().flat_map(|flight| &flight.leases);
        let leases = changes.filter(|change| change.fence == raise.fence).map(|change| change.raises_to);
        tokens.map(Mark::from).chain(leases).any(|mark| mark >= raise.mark)
    };
    let behind = raises.into_iter().filter(|raise| !raise.is_done(state) && !in_flight(raise));
    let finding = |raise: Raise| {
        let mark = state.fence(&raise.fence).mark;
        let is_off = settings.rules(&raise.fence).is_some_and(|rules| rules.mode == Mode::Off);
        if is_off {
            let sentence =
                format!("fence '{}' is off, and its lease '{}' has granted tokens meanwhile", raise.fence, raise.lease);
            return Finding::note("mark-behind-lease", sentence, install(repository));
        }
        let sentence = format!(
            "the mark of fence '{}' is {mark}, but '{}' has granted higher tokens: an older log was restored, and former holders could write again",
            raise.fence, raise.lease
        );
        Finding::error("mark-behind-lease", sentence, install(repository))
    };
    Ok(behind.map(finding).collect())
}

/// Unreadable lease refs, which close their fence, and lease refs that differ from the log.
fn leases_unlike_log(repository: &Repository, state: &State, settings: &Settings, here: &Place) -> Vec<Finding> {
    let now = clock::stamp(here);
    let check = |rules: &Rules| {
        let name = LeasePart::Lease.of(&rules.fence);
        match catch_up::compare_with_log(repository, state, rules, &now, "") {
            Ok(None) => None,
            Ok(Some(line)) if state.fence(&rules.fence).lease_is_at(line.standing.commit.as_ref()) => {
                let sentence = format!(
                    "the last renewal of '{name}' is in the future, by a clock that was wrong: the next push corrects it"
                );
                Some(Finding { fix: None, ..Finding::note("lease-ahead", sentence, "") })
            }
            Ok(Some(_)) => {
                let sentence = format!("'{name}' differs from the log: the next push records it");
                Some(Finding { fix: None, ..Finding::note("lease-moved", sentence, "") })
            }
            Err(reject) => {
                let fix = advice::git(repository, &catch_up::removal_arguments(&name));
                Some(Finding::error("lease-unreadable", format!("{reject}. Pushes to this fence are refused"), fix))
            }
        }
    };
    settings.fences.iter().filter(|rules| rules.mode != Mode::Off).filter_map(check).collect()
}

/// The same for the marks in the repository.
fn marks_unlike_log(repository: &Repository, state: &State, settings: &Settings) -> Vec<Finding> {
    let check = |rules: &Rules| {
        let name = LeasePart::Mark.of(&rules.fence);
        match catch_up::compare_mark_with_log(repository, state, rules, "") {
            Ok(None) => None,
            Ok(Some(_)) => {
                let sentence = format!("'{name}' differs from the log: the next push records it");
                Some(Finding { fix: None, ..Finding::note("mark-moved", sentence, "") })
            }
            Err(reject) => {
                let fix = advice::git(repository, &catch_up::removal_arguments(&name));
                Some(Finding::error("mark-unreadable", format!("{reject}. Pushes to this fence are refused"), fix))
            }
        }
    };
    settings.fences.iter().filter(|rules| rules.mode != Mode::Off).filter_map(check).collect()
}

/// Leases on fences that accept only own tokens.
fn leases_without_effect(repository: &Repository, state: &State, settings: &Settings) -> Vec<Finding> {
    let check = |rules: &Rules| {
        let (fence, name) = (state.fence(&rules.fence), LeasePart::Lease.of(&rules.fence));
        if let Some(held) = fence.lease.filter(|lease| lease.is_held()) {
            let sentence = format!(
                "fence '{}' accepts own tokens only, but its lease is held by {}, whose pushes are refused",
                rules.fence,
                text::in_quotes(&held.lease.owner)
            );
            let git_dir = quoted(&repository.git_dir);
            let end = format!("git-fence-hook tokens own --fence {} --reason 'no leases here' {git_dir}", rules.fence);
            return Some(Finding::warning("lease-shut-out", sentence, end));
        }
        // A lease ref that was revoked when the kind changed stays.
        let is_there = repository.ref_values([&name]).is_ok_and(|at| at.first().is_some_and(Option::is_some));
        let sentence = format!("fence '{}' accepts own tokens only: '{name}' has no effect", rules.fence);
        (is_there && fence.lease.is_none())
            .then(|| Finding { fix: None, ..Finding::note("lease-ignored", sentence, "") })
    };
    let own = |rules: &&Rules| state.fence(&rules.fence).kind(rules) == Some(TokenKind::Own);
    settings.fences.iter().filter(|rules| rules.mode != Mode::Off).filter(own).filter_map(check).collect()
}

/// An unused name next to `path`.
fn free_name(path: &Path) -> PathBuf {
    let names = std::iter::once("damaged".to_owned()).chain((2..).map(|n| format!("damaged-{n}")));
    let mut paths = names.map(|name| path.with_extension(name));
    paths.find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_else(|| path.with_extension("damaged"))
}

/// A push that blocks others, or that is not visible.
fn in_flight(
    repository: &Repository,
    dir: &FenceDir,
    state: &State,
    settings: &Settings,
    here: &Place,
) -> Vec<Finding> {
    let viewpoint = Viewpoint { here, watched: None };
    let check = |flight: &InFlight| {
        let bound = slot::bound_of(flight, settings);
        let plan = match read_plan(dir, flight) {
            Ok(plan) => plan,
            Err(e) => {
                let fences: Vec<String> = flight.stakes.iter().map(|stake| format!("'{}'", stake.fence)).collect();
                let whose = if fences.len() == 1 { "fence" } else { "fences" };
                let then = format!("pushes to {whose} {} are refused. Restore it from a backup", fences.join(", "));
                let (name, sentence) = ("plan-lost", format!("{e}: {then}"));
                return Some(Finding { name, severity: Severity::Error, sentence, fix: None });
            }
        };
        let running =
            matches!(slot::state_of(flight, &plan, viewpoint, bound, repository), Ok(FlightState::Running(_)));
        let age = slot::age_of(flight, viewpoint);
        let who = flight.stakes.first().map(|stake| slot::describe(flight, &stake.fence)).unwrap_or_default();
        match flight.receive_pack {
            _ if !running => None,
            Some(receive_pack) if !slot::is_bounded(flight, here) => (age > bound).then(|| {
                let pid = receive_pack.pid;
                let sentence = format!("{who}, has been in flight for longer than fence.wait: other pushes are refused. Its receive-pack is process {pid}");
                let fence = flight.stakes.first().map_or_else(FenceName::repo, |stake| stake.fence.clone());
                let evict = format!("evict --fence {fence} --reason 'stalled' {}", quoted(&repository.git_dir));
                Finding::error("push-stalled", sentence, format!("git-fence-hook {evict}"))
            }),
            _ => {
                let (name, severity) = ("push-out-of-sight", Severity::Warning);
                let sentence = format!("{who}, is not visible from here (bounded form): it counts as over when fence.wait has passed");
                Some(Finding { name, severity, sentence, fix: None })
            }
        }
    };
    state.in_flight.iter().filter_map(check).collect()
}

/// What is impossible while `lock` exists.
fn effect_of(lock: &Path) -> &'static str {
    match lock.file_name().and_then(|name| name.to_str()) {
        Some("config.lock") => "settings cannot be changed",
        Some("packed-refs.lock") => "refs cannot be deleted or packed",
        Some("HEAD.lock") => "HEAD and its branch cannot move",
        Some("tables.list.lock") => "no ref can move",
        _ => "that ref cannot move",
    }
}

/// Ref locks that are too old to be in use.
fn locks(repository: &Repository) -> Vec<PathBuf> {
    let common = &repository.common_dir;
    let names = ["packed-refs.lock", "HEAD.lock", "config.lock", "reftable/tables.list.lock"];
    let mut found: Vec<PathBuf> = names.iter().map(|name| common.join(name)).collect();
    let mut open = vec![common.join("refs")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(_) if path.extension().is_some_and(|end| end == "lock") => found.push(path),
                _ => {}
            }
        }
    }
    found.retain(|path| fs::symlink_metadata(path).is_ok_and(|lock| clock::age_of(&lock) > LOCK_LEFT_AFTER));
    found.sort();
    found
}
