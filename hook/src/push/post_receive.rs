//! The companion: after a push, git lists the refs that it has updated, and the companion records them at once.
//!
//! It runs before any other `post-receive` hook: a merge queue's hook may delete what was just pushed. Whatever fails
//! here, the other hook still runs, and the next push settles this one by comparing refs.

use crate::{
    host::{
        clock::{self, WaitBudget},
        kept_hook::{self, HookOutcome},
        process,
        surroundings::Environment,
        syslog,
    },
    log::{
        files::FenceDir,
        lookback,
        store::{Durability, Store, StoreError},
    },
    push::{
        forgetting::{self, families_that_grow},
        messages,
        settling::SettlingError,
    },
    repository::{Repository, config_trust::ConfigReader, settings},
};
use git_fence_core::{
    Evidence, InFlight, LeasePart, Line, Place, PlannedRef, Push, ReceivePack, RefUpdate, Settings, settle_as_reported,
};
use git_fence_system::env;
use std::{
    ffi::OsString,
    io::{self, Read as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// How far back to search the log for a push that was settled before git reported on it, if its process is not visible.
const LOOKBACK_MS: u64 = 24 * 60 * 60 * 1000;

/// Runs as `post-receive`. Git ignores the exit code; this returns that of the hook that was installed before.
pub(crate) fn run(args: &[OsString], environment: &Environment) -> ExitCode {
    let start = Instant::now();
    let mut input = Vec::new();
    let _ = io::stdin().lock().read_to_end(&mut input);
    let recorded = catch_unwind(AssertUnwindSafe(|| record(&input, environment, start)));
    if let Err(why) = recorded.unwrap_or_else(|_| Err("internal error".to_owned())) {
        messages::not_recorded(&why);
    }
    let kept = args.split_first().map(|(own_file, args)| kept_hook::run(Path::new(own_file), args, &input));
    match kept {
        Some(Ok(HookOutcome::Refused(code))) => ExitCode::from(code),
        Some(Err(reject)) => {
            messages::refused(&reject.into());
            ExitCode::FAILURE
        }
        None | Some(Ok(HookOutcome::Continue)) => ExitCode::SUCCESS,
    }
}

/// The refs that git has updated, and the receive-pack that updated them.
struct Updated<'a> {
    here: &'a Place,
    receive_pack: Option<ReceivePack>,
    updated: Push,
}

fn record(input: &[u8], environment: &Environment, start: Instant) -> Result<(), String> {
    let updated = Push::parse(input).map_err(|e| e.to_string())?;
    // A heartbeat takes no slot.
    if updated.commands.iter().all(is_beat) {
        return Ok(());
    }
    let git_dir = environment.path(env::GIT_DIR).unwrap_or_else(|| PathBuf::from("."));
    let receive_pack = process::receive_pack_ancestors().next();
    let git = receive_pack.as_ref().and_then(process::program_of);
    let repository = Repository::open(&git_dir, git.as_deref(), environment, ConfigReader::Push);
    let repository = repository.map_err(|e| e.to_string())?;
    let dir = FenceDir::at(repository.fence_dir());
    if !dir.has(&dir.log()) {
        return Ok(());
    }
    let here = process::here().map_err(|e| e.to_string())?;
    let report = Updated { here: &here, receive_pack, updated };
    let budget = WaitBudget::of(LOCK_TIMEOUT, start);
    let store = Store::lock(&dir, &here.boot, &budget).map_err(|e| e.to_string())?;
    let families = families_that_grow(store.state(), |flight| report.is_report_on(flight));
    let written = report.settle(store, &dir, &repository).map_err(|e| e.to_string())?;
    syslog::announce(settings::syslog(&repository.config).as_ref(), &written);
    if !families.is_empty() {
        // Nothing depends on it: the next push that begins a member tries again.
        let lock = || Store::lock(&dir, &here.boot, &budget).ok();
        let forgotten = forgetting::forget(lock, &families, &repository, &here).unwrap_or_default();
        syslog::announce(settings::syslog(&repository.config).as_ref(), &forgotten);
    }
    Ok(())
}

/// How long to wait for the lock. It is held only briefly.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

fn is_beat(command: &RefUpdate) -> bool {
    matches!(LeasePart::in_name(&command.name), Some((_, LeasePart::Beat)))
}

impl Updated<'_> {
    /// Settles the push, or corrects a settlement that came too early. Not synced: after a power loss, the surviving
    /// refs settle the push.
    fn settle(&self, mut store: Store, dir: &FenceDir, repository: &Repository) -> Result<Vec<Line>, SettlingError> {
        if let Some(flight) = store.state().in_flight.iter().find(|flight| self.is_report_on(flight)).cloned() {
            let plan = store.plan_of(&flight)?;
            let settlement = settle_as_reported(&flight, &plan, &self.updated);
            return Ok(store.settle_or_defer(&flight, settlement, plan.len(), Evidence::Reported)?);
        }
        // Settings that are unreadable by now do not change what has moved.
        let settings = settings::read(&repository.config).ok();
        let settings = settings.as_ref();
        let guards = |command: &RefUpdate| {
            command.name.is_lease() || settings.is_none_or(|settings| settings.fence_of(&command.name).is_some())
        };
        if !self.updated.commands.iter().any(guards) {
            return Ok(Vec::new());
        }
        let settled = lookback::find(dir, |flight| self.is_report_on(flight), |flight| self.is_before(flight));
        if let Some((flight, known)) = settled.map_err(StoreError::from)? {
            let plan = self.plan_of(&flight, settings);
            let settlement = settle_as_reported(&flight, &plan, &self.updated);
            if let Some(event) = settlement.after_all(&flight, &known, store.state(), flight.plan.count) {
                store.append(event)?;
                // The earlier settlement was wrong. This line keeps the token spent, so it has to survive a crash.
                return Ok(store.commit(Durability::Synced)?);
            }
        }
        Ok(Vec::new())
    }

    /// Whether git reports on this push. It is identified by its receive-pack, or by its planned refs if the receive-pack
    /// was not visible when the push was admitted.
    fn is_report_on(&self, flight: &InFlight) -> bool {
        let is_here = flight.place.boot == self.here.boot && flight.place.pid_ns == self.here.pid_ns;
        is_here
            && match flight.receive_pack {
                Some(theirs) => self.receive_pack == Some(theirs),
                None => self.lists_plan(&flight.plan.refs),
            }
    }

    fn lists_plan(&self, planned: &[PlannedRef]) -> bool {
        let matches = planned.iter().filter_map(|planned| {
            let name = planned.via.as_ref().unwrap_or(&planned.name);
            let command = self.updated.commands.iter().find(|command| command.name == *name)?;
            Some(command.new == planned.new)
        });
        let matches: Vec<bool> = matches.collect();
        !matches.is_empty() && matches.into_iter().all(|is_same| is_same)
    }

    /// Whether `flight` was admitted before this push began: it and everything older cannot be this push.
    fn is_before(&self, flight: &InFlight) -> bool {
        let began = self.receive_pack.map_or_else(
            || clock::uptime_ms().saturating_sub(LOOKBACK_MS),
            |receive_pack| receive_pack.started_ms(git_fence_system::process::starts_per_second()),
        );
        flight.place.boot == self.here.boot && flight.place.uptime_ms < began
    }

    /// The planned refs of the push. Once a push is settled, the complete list of a long plan is gone: the refs that git
    /// has updated then replace it, each with the fence that guards it now.
    fn plan_of(&self, flight: &InFlight, settings: Option<&Settings>) -> Vec<PlannedRef> {
        match settings {
            Some(settings) if !flight.plan.is_whole() => self.as_plan(settings).collect(),
            _ => flight.plan.refs.clone(),
        }
    }

    fn as_plan<'s>(&'s self, settings: &'s Settings) -> impl Iterator<Item = PlannedRef> + 's {
        self.updated.commands.iter().filter_map(|command| {
            Some(PlannedRef {
                name: command.name.clone(),
                fence: settings.fence_name_of(&command.name)?,
                old: command.claimed.clone(),
                new: command.new.clone(),
                claimed: None,
                via: None,
            })
        })
    }
}
