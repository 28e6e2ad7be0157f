//! Whether the fence itself works: its files, git's ref locks, and the push in flight.

use crate::{
    audit, catch_up, clock,
    failure::{self, Failure},
    files::FenceDir,
    gate_checks::{Finding, Severity, install, quoted},
    journal::Damage,
    repository::Repository,
    slot::{self, Fate, Lookout},
    store::read_plan,
    takeover::{self, Raise},
};
use git_fence_core::{FenceName, InFlight, LeasePart, Mark, Mode, Place, Rules, Settings, State};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A lock that git has left behind is told from one in use by its age.
const LOCKS_LAST: Duration = Duration::from_secs(60);

/// Everything that keeps the gate from deciding, or refs from moving.
pub(crate) fn check(repository: &Repository, settings: &Settings) -> Result<Vec<Finding>, Failure> {
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let mut findings: Vec<Finding> = writable(repository, &dir).into_iter().collect();
    match audit::check(&dir, &here) {
        Ok(journal) => {
            if !journal.torn.is_empty() {
                let torn = Damage::Torn { path: dir.log(), line: journal.head.seq + 1 };
                findings.extend(damage(repository, &dir, &torn, settings));
            }
            findings.extend(in_flight(repository, &dir, &journal.state, settings, &here));
            findings.extend(behind_leases(repository, &journal.state, settings)?);
            findings.extend(leases_out_of_place(repository, &journal.state, settings, &here));
        }
        Err(Failure::Damage(found)) => findings.extend(damage(repository, &dir, &found, settings)),
        Err(other) => return Err(other),
    }
    findings.extend(locks(repository).into_iter().map(|lock| {
        let sentence = format!("'{}' was left behind by a git that was killed: refs cannot move", lock.display());
        Finding::error("lock-left", sentence, format!("rm {}", quoted(&lock)))
    }));
    Ok(findings)
}

/// The hook runs as whoever pushes, and that is the owner of the repository, or its group.
fn writable(repository: &Repository, dir: &FenceDir) -> Option<Finding> {
    let owner = fs::metadata(&repository.common_dir).ok()?;
    let fence = quoted(dir.path());
    for path in [dir.path().to_owned(), dir.log(), dir.mutex(), dir.checkpoint()] {
        let Ok(found) = fs::metadata(&path) else { continue };
        let for_group = found.gid() == owner.gid() && found.mode() & 0o020 != 0;
        if found.uid() != owner.uid() && !for_group {
            let sentence = format!(
                "'{}' does not belong to the owner of the repository: pushes cannot write there",
                path.display()
            );
            let mend = format!("chown -R --reference={} {fence}", quoted(&repository.common_dir));
            return Some(Finding::error("fence-foreign-owner", sentence, mend));
        }
        if found.mode() & 0o200 == 0 {
            let sentence = format!("'{}' is not writable: every push is refused", path.display());
            return Some(Finding::error("fence-not-writable", sentence, format!("chmod -R u+rwX {fence}")));
        }
    }
    None
}

fn damage(repository: &Repository, dir: &FenceDir, damage: &Damage, settings: &Settings) -> Option<Finding> {
    let anew = || format!("mv {} {} && {}", quoted(dir.path()), quoted(&free_name(dir.path())), install(repository));
    let repair = |reason: &str| format!("git-fence-hook repair --yes {reason}{}", quoted(&repository.git_dir));
    let adopt = "every push is refused. Restore it from a backup; without one, the command takes it for the log as far as it can be read, and you raise the marks";
    let closed = "every push is refused. Restore it from a backup; without one, the command begins anew, with marks at 0 but for what leases say";
    let (name, severity, then, mend) = match damage {
        Damage::NoLog(_) if settings.init_at_first_push => return None,
        Damage::NoLog(_) => ("log-missing", Severity::Error, "every push is refused", Some(install(repository))),
        Damage::LostLog(_) => ("log-lost", Severity::Error, closed, Some(anew())),
        Damage::Cut { .. } => ("log-cut", Severity::Error, adopt, Some(repair("--reason 'its tail is lost' "))),
        Damage::Line { line, .. } if *line > 1 => {
            ("log-damaged", Severity::Error, adopt, Some(repair("--reason 'it is damaged' ")))
        }
        Damage::Empty(_) | Damage::Line { .. } => ("log-damaged", Severity::Error, closed, Some(anew())),
        Damage::Torn { .. } => {
            let then = "it was never acknowledged, and is set aside by the command or the next push";
            ("log-torn", Severity::Warning, then, Some(repair("")))
        }
        Damage::Checkpoint(_) => {
            ("checkpoint-damaged", Severity::Warning, "it is made again from the log", Some(repair("")))
        }
        Damage::CheckpointVersion { .. } => ("log-newer", Severity::Error, "every push is refused", None),
        Damage::Io { .. } => (
            "log-unreadable",
            Severity::Error,
            "every push is refused",
            Some(format!("chmod -R u+rwX {}", quoted(dir.path()))),
        ),
    };
    Some(Finding { name, severity, sentence: format!("{damage}: {then}"), mend })
}

/// Leases that have granted more than the marks know: the log is older than the refs beside it.
fn behind_leases(repository: &Repository, state: &State, settings: &Settings) -> Result<Vec<Finding>, Failure> {
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
                format!("leases of fence '{}' went on while it is off, up to '{}'", raise.fence, raise.lease);
            return Finding::note("mark-behind-lease", sentence, install(repository));
        }
        let sentence = format!(
            "the mark of fence '{}' is {mark}, but '{}' has granted more: an older log was restored, and holders of then could write again",
            raise.fence, raise.lease
        );
        Finding::error("mark-behind-lease", sentence, install(repository))
    };
    Ok(behind.map(finding).collect())
}

/// Leases that close their fence because they cannot be read, and leases that the next push will find.
fn leases_out_of_place(repository: &Repository, state: &State, settings: &Settings, here: &Place) -> Vec<Finding> {
    let now = clock::stamp(here);
    let look = |rules: &Rules| {
        let name = LeasePart::Lease.of(&rules.fence);
        match catch_up::look(repository, state, rules, &now, "") {
            Ok(None) => None,
            Ok(Some(line)) if state.fence(&rules.fence).lease_is_at(line.standing.commit.as_ref()) => {
                let sentence = format!(
                    "the holder of '{name}' was last heard of in the future, by a clock that was wrong: the next push records that it was now"
                );
                Some(Finding { mend: None, ..Finding::note("lease-ahead", sentence, "") })
            }
            Ok(Some(_)) => {
                let sentence = format!("'{name}' is not where the log has it: the next push takes that down");
                Some(Finding { mend: None, ..Finding::note("lease-moved", sentence, "") })
            }
            Err(reject) => {
                let mend = format!("git -C {} {}", quoted(&repository.common_dir), catch_up::mend(&name));
                Some(Finding::error("lease-unreadable", format!("{reject}: what it guards is refused"), mend))
            }
        }
    };
    settings.fences.iter().filter(|rules| rules.mode != Mode::Off).filter_map(look).collect()
}

/// A name beside `path` that nothing has yet.
fn free_name(path: &Path) -> PathBuf {
    let names = std::iter::once("damaged".to_owned()).chain((2..).map(|n| format!("damaged-{n}")));
    let mut paths = names.map(|name| path.with_extension(name));
    paths.find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_else(|| path.with_extension("damaged"))
}

/// A push that holds everybody up, or that nobody can see.
fn in_flight(
    repository: &Repository,
    dir: &FenceDir,
    state: &State,
    settings: &Settings,
    here: &Place,
) -> Vec<Finding> {
    let lookout = Lookout { here, watched: None };
    let look = |flight: &InFlight| {
        let bound = slot::bound_of(flight, settings);
        let plan = match read_plan(dir, flight) {
            Ok(plan) => plan,
            Err(e) => {
                let (name, sentence) = ("plan-lost", format!("{e}: every push is refused. Restore it from a backup"));
                return Some(Finding { name, severity: Severity::Error, sentence, mend: None });
            }
        };
        let running = matches!(slot::fate_of(flight, &plan, lookout, bound, repository), Ok(Fate::Running(_)));
        let age = slot::age_of(flight, lookout);
        let who = flight.stakes.first().map(|stake| slot::describe(flight, &stake.fence)).unwrap_or_default();
        match flight.receive_pack {
            _ if !running => None,
            Some(receive_pack) if !slot::is_bounded(flight, here) => (age > bound).then(|| {
                let pid = receive_pack.pid;
                let sentence = format!("{who}, is still moving its refs, for longer than fence.wait: others are refused. Its receive-pack is process {pid}");
                let fence = flight.stakes.first().map_or_else(FenceName::repo, |stake| stake.fence.clone());
                let evict = format!("evict --fence {fence} --reason 'it stalls' {}", quoted(&repository.git_dir));
                Finding::error("push-stalled", sentence, format!("git-fence-hook {evict}"))
            }),
            _ => {
                let (name, severity) = ("push-out-of-sight", Severity::Warning);
                let sentence = format!("{who}, runs where it cannot be seen (the bounded form): it counts as over when fence.wait has passed");
                Some(Finding { name, severity, sentence, mend: None })
            }
        }
    };
    state.in_flight.iter().filter_map(look).collect()
}

/// Locks of refs that are older than any git needs them.
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
    found.retain(|path| fs::symlink_metadata(path).is_ok_and(|lock| clock::age_of(&lock) > LOCKS_LAST));
    found.sort();
    found
}
