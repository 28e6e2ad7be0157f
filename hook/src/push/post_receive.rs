//! The companion: after a push, git lists the refs that it has updated, and that goes on record at once.
//!
//! It comes before anybody else's `post-receive`: a merge queue's may take away what was just pushed. Whatever goes wrong
//! here, the other hook still runs, and the push is settled by the next one, by comparing refs.

use crate::{
    host::{
        clock::{self, Patience},
        kept_hook::{self, Word},
        process,
        surroundings::Environment,
        syslog,
    },
    log::{
        files::FenceDir,
        lookback,
        store::{Durability, Store, StoreError},
    },
    push::{settling::SettlingError, voice},
    repository::{Repository, settings, whose::Asker},
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

/// How far back a push is looked for that was settled before git gave word of it, where nobody can see its process.
const A_DAY: u64 = 24 * 60 * 60 * 1000;

/// Runs as `post-receive`. Git goes on whatever the exit code: it is that of the hook that was here before.
pub(crate) fn run(args: &[OsString], environment: &Environment) -> ExitCode {
    let start = Instant::now();
    let mut input = Vec::new();
    let _ = io::stdin().lock().read_to_end(&mut input);
    let recorded = catch_unwind(AssertUnwindSafe(|| record(&input, environment, start)));
    if let Err(why) = recorded.unwrap_or_else(|_| Err("internal error".to_owned())) {
        voice::not_recorded(&why);
    }
    let kept = args.split_first().map(|(own_file, args)| kept_hook::run(Path::new(own_file), args, &input));
    match kept {
        Some(Ok(Word::Refused(code))) => ExitCode::from(code),
        Some(Err(reject)) => {
            voice::refused(&reject.into());
            ExitCode::FAILURE
        }
        None | Some(Ok(Word::GoOn)) => ExitCode::SUCCESS,
    }
}

/// What git says it has updated, and whose push that was.
struct Updated<'a> {
    here: &'a Place,
    receive_pack: Option<ReceivePack>,
    updated: Push,
}

fn record(input: &[u8], environment: &Environment, start: Instant) -> Result<(), String> {
    let updated = Push::parse(input).map_err(|e| e.to_string())?;
    // A lone heartbeat takes no slot.
    if updated.commands.iter().all(is_beat) {
        return Ok(());
    }
    let git_dir = environment.path(env::GIT_DIR).unwrap_or_else(|| PathBuf::from("."));
    let receive_pack = process::receive_packs_above().next();
    let git = receive_pack.as_ref().and_then(process::program_of);
    let repository = Repository::open(&git_dir, git.as_deref(), environment, Asker::Push);
    let repository = repository.map_err(|e| e.to_string())?;
    let dir = FenceDir::at(repository.fence_dir());
    if !dir.has(&dir.log()) {
        return Ok(());
    }
    let here = process::here().map_err(|e| e.to_string())?;
    let report = Updated { here: &here, receive_pack, updated };
    let patience = Patience::of(PATIENCE, start);
    let store = Store::lock(&dir, &here.boot, &patience).map_err(|e| e.to_string())?;
    let written = report.settle(store, &dir, &repository).map_err(|e| e.to_string())?;
    syslog::announce(settings::syslog(&repository.config).as_ref(), &written);
    Ok(())
}

/// How long the lock is waited for. It is held for moments only.
const PATIENCE: Duration = Duration::from_secs(30);

fn is_beat(command: &RefUpdate) -> bool {
    matches!(LeasePart::in_name(&command.name), Some((_, LeasePart::Beat)))
}

impl Updated<'_> {
    /// Settles the push, or puts right what was said of it too early. Not synced: what is lost with the power is
    /// settled by the refs that survive.
    fn settle(&self, mut store: Store, dir: &FenceDir, repository: &Repository) -> Result<Vec<Line>, SettlingError> {
        if let Some(flight) = store.state().in_flight.iter().find(|flight| self.is_of(flight)).cloned() {
            let plan = store.plan_of(&flight)?;
            let settlement = settle_as_reported(&flight, &plan, &self.updated);
            return Ok(store.settle_or_leave_word(&flight, settlement, plan.len(), Evidence::Reported)?);
        }
        // Settings that have become unreadable meanwhile do not change what has moved.
        let settings = settings::read(&repository.config).ok();
        let settings = settings.as_ref();
        let guards = |command: &RefUpdate| {
            command.name.is_lease() || settings.is_none_or(|settings| settings.fence_of(&command.name).is_some())
        };
        if !self.updated.commands.iter().any(guards) {
            return Ok(Vec::new());
        }
        let found = lookback::find(dir, |flight| self.is_of(flight), |flight| self.is_before(flight));
        if let Some((flight, known)) = found.map_err(StoreError::from)? {
            let plan = self.plan_of(&flight, settings);
            let settlement = settle_as_reported(&flight, &plan, &self.updated);
            if let Some(event) = settlement.after_all(&flight, &known, store.state(), flight.plan.count) {
                store.append(event)?;
                // Whoever settled it was wrong. This line keeps its token from coming back, so it is there to stay.
                return Ok(store.commit(Durability::Synced)?);
            }
        }
        Ok(Vec::new())
    }

    /// Whether this is the push that git speaks of: told by its receive-pack, and where that could not be seen when it
    /// was let through, by what it was to move.
    fn is_of(&self, flight: &InFlight) -> bool {
        let is_here = flight.place.boot == self.here.boot && flight.place.pid_ns == self.here.pid_ns;
        is_here
            && match flight.receive_pack {
                Some(theirs) => self.receive_pack == Some(theirs),
                None => self.speaks_of(&flight.plan.refs),
            }
    }

    fn speaks_of(&self, planned: &[PlannedRef]) -> bool {
        let said = planned.iter().filter_map(|planned| {
            let name = planned.via.as_ref().unwrap_or(&planned.name);
            let command = self.updated.commands.iter().find(|command| command.name == *name)?;
            Some(command.new == planned.new)
        });
        let said: Vec<bool> = said.collect();
        !said.is_empty() && said.into_iter().all(|is_same| is_same)
    }

    /// Whether `flight` was let through before this push began: nothing before it can be this push.
    fn is_before(&self, flight: &InFlight) -> bool {
        let began = self.receive_pack.map_or_else(
            || clock::uptime_ms().saturating_sub(A_DAY),
            |receive_pack| receive_pack.started_ms(git_fence_system::process::starts_per_second()),
        );
        flight.place.boot == self.here.boot && flight.place.uptime_ms < began
    }

    /// What the push was to move. Of a long plan the complete list is gone when it has been settled: then what git has
    /// updated stands for it, each ref with the fence that guards it now.
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
                fence: settings.fence_of(&command.name)?.fence.clone(),
                old: command.claimed.clone(),
                new: command.new.clone(),
                claimed: None,
                via: None,
            })
        })
    }
}
