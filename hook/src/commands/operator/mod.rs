//! The operator's commands for a fence: raise and lower its mark, end a push, revoke a lease, halt and resume fences, change the kind of tokens,
//! repair the files. Always under the lock, with a reason, and recorded.

pub(crate) mod halt;
pub(crate) mod repair;
pub(crate) mod revoke;
pub(crate) mod tokens;
mod turn;

use crate::{
    failure::{self, CommandError},
    host::{
        clock::WaitBudget,
        process::{self, Liveness},
        surroundings::{Environment, os_user},
        syslog,
    },
    log::{
        files::FenceDir,
        store::{Durability, Store},
    },
    push::{
        settling::{SettlingError, settle_finished},
        slot::{self, Viewpoint},
    },
    repository::{Repository, settings},
};
use git_fence_core::{Event, FenceName, Mark, Place, Settings, View, Who, text};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LONGEST_REASON: usize = 500;

/// The options that all operator commands have.
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    /// The repository
    #[arg(default_value = ".")]
    repository: PathBuf,
    /// The fence
    #[arg(long, default_value = FenceName::REPO)]
    fence: String,
    /// Why, for the log
    #[arg(long)]
    reason: String,
}

impl OperatorArgs {
    /// Opens nothing before there is a reason, and accepts only existing fences.
    pub(crate) fn accept(&self, environment: &Environment) -> Result<(Operator, FenceName, String), CommandError> {
        let reason = reason_given(&self.reason)?;
        let operator = Operator::at(&self.repository, environment)?;
        let fence = operator.fence(&self.fence)?;
        Ok((operator, fence, reason))
    }
}

/// A repository, opened for its operator.
pub(crate) struct Operator {
    pub(crate) repository: Repository,
    pub(crate) settings: Settings,
    pub(crate) here: Place,
    pub(crate) name: String,
}

impl Operator {
    pub(crate) fn at(dir: &Path, environment: &Environment) -> Result<Operator, CommandError> {
        let repository = Repository::find(dir, environment)?;
        let settings = settings::read(&repository.config)?;
        let here = failure::here()?;
        Ok(Operator { repository, settings, here, name: os_user() })
    }

    /// The log under the lock, after settling all pushes that are over: its marks are current.
    pub(crate) fn lock(&self) -> Result<Store, CommandError> {
        let mut store = Store::lock(&self.fence_dir(), &self.here.boot, &Operator::budget())?;
        let viewpoint = Viewpoint { here: &self.here, watched: None };
        let settled = settle_finished(&mut store, &self.repository, &self.settings, viewpoint, |_, _| true);
        settled.map_err(settling).map(|_| store)
    }

    pub(crate) fn fence_dir(&self) -> FenceDir {
        FenceDir::at(self.repository.fence_dir())
    }

    /// How long a command waits for the lock.
    pub(crate) fn budget() -> WaitBudget {
        WaitBudget::of(LOCK_TIMEOUT, Instant::now())
    }

    /// Records `event` durably and releases the lock.
    pub(crate) fn commit(&self, mut store: Store, event: Event) -> Result<(), CommandError> {
        store.append(event)?;
        syslog::announce(self.settings.syslog.as_ref(), &store.commit(Durability::Synced)?);
        Ok(())
    }

    fn fence(&self, name: &str) -> Result<FenceName, CommandError> {
        let unknown =
            |why: String| CommandError::Other { what: why, hint: "list the fences:  git-fence-hook status".to_owned() };
        let fence = FenceName::parse(name.as_bytes()).map_err(|e| unknown(e.to_string()))?;
        match self.settings.rules(&fence) {
            Some(_) => Ok(fence),
            None => Err(unknown(format!("this repository has no fence '{fence}'"))),
        }
    }
}

/// `git-fence-hook raise`: tokens at or below the new mark no longer write.
pub(crate) fn raise(order: &OperatorArgs, to: u64, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let from = store.state().fence(&fence).mark;
    let mark = Mark::at(to).filter(|mark| *mark > from).ok_or_else(|| CommandError::Other {
        what: format!("{to} is not above the mark {from} of fence '{fence}': nothing was changed"),
        hint: "choose a number above the mark, up to 9223372036854775807".to_owned(),
    })?;
    let pusher = operator.name.clone();
    operator.commit(store, Event::MarkRaised { fence: fence.clone(), mark, reason, pusher })?;
    writeln!(io::stdout(), "fence '{fence}'  mark {from} raised to {mark}")?;
    Ok(())
}

/// `git-fence-hook lower`: tokens above the new mark can be used again. The operator names the current mark, because it
/// may have changed since they checked.
pub(crate) fn lower(order: &OperatorArgs, to: u64, expect: u64, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let from = store.state().fence(&fence).mark;
    if from.get() != expect {
        return Err(CommandError::Other {
            what: format!("the mark of fence '{fence}' is {from}, not {expect}: nothing was changed"),
            hint: "check the mark again before you lower it:  git-fence-hook status".to_owned(),
        });
    }
    let mark = Mark::at(to).filter(|mark| *mark < from).ok_or_else(|| CommandError::Other {
        what: format!("{to} is not below the mark {from} of fence '{fence}': nothing was changed"),
        hint: "choose a number below the mark, 0 or more".to_owned(),
    })?;
    let pusher = operator.name.clone();
    operator.commit(store, Event::MarkLowered { fence: fence.clone(), from, mark, reason, pusher })?;
    writeln!(io::stdout(), "fence '{fence}'  mark {from} lowered to {mark}")?;
    Ok(())
}

/// `git-fence-hook evict`: ends a stalled push in flight, so that others do not have to wait for it.
pub(crate) fn evict(order: &OperatorArgs, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let Some(flight) = store.state().fence(&fence).slot.first().map(|flight| (*flight).clone()) else {
        store.commit(Durability::Lazy)?;
        writeln!(io::stdout(), "fence '{fence}'  nothing is in flight")?;
        return Ok(());
    };
    let cannot = |why: &str| CommandError::Other {
        what: format!("cannot end the push in flight ({}) from here: {why}", flight.push),
        hint: "it counts as over when its refs have moved or fence.wait has passed".to_owned(),
    };
    let receive_pack = flight.receive_pack.filter(|_| slot::view_of(&flight, &operator.here) == View::Clear);
    let receive_pack = receive_pack.ok_or_else(|| cannot("its receive-pack is not visible"))?;
    let Liveness::Alive(Some(pidfd)) = process::liveness_of(&receive_pack) else {
        return Err(cannot("its receive-pack has exited or cannot be signalled"));
    };
    process::terminate(&pidfd).map_err(|e| cannot(&e.to_string()))?;
    let who = Who { owner: None, pusher: operator.name.clone(), address: None };
    operator.commit(store, Event::PushEvicted { push: flight.push, reason, who })?;
    let ended = pidfd.has_ended_within(LOCK_TIMEOUT);
    let word = if ended { "has exited" } else { "was args to exit and is still running" };
    writeln!(io::stdout(), "fence '{fence}'  push {}: process {} {word}", flight.push, receive_pack.pid)?;
    Ok(())
}

/// `git-fence-hook rotate`: moves the lines so far to an archive file.
pub(crate) fn rotate(dir: &Path, environment: &Environment) -> Result<(), CommandError> {
    let operator = Operator::at(dir, environment)?;
    let archive = operator.lock()?.rotate(&operator.name)?;
    writeln!(io::stdout(), "archived to  {}", archive.display())?;
    Ok(())
}

/// A recorded reason must not be empty.
pub(crate) fn reason_given(reason: &str) -> Result<String, CommandError> {
    let reason = text::one_line(reason.trim().as_bytes(), LONGEST_REASON);
    if reason.is_empty() {
        return Err(CommandError::Other {
            what: "the reason is empty: nothing was changed".to_owned(),
            hint: "explain it to readers of the log, as in  --reason 'a test pushed token 999999'".to_owned(),
        });
    }
    Ok(reason)
}

fn settling(error: SettlingError) -> CommandError {
    match error {
        SettlingError::Store(e) => e.into(),
        SettlingError::Refs(e) => {
            CommandError::Other { what: e.to_string(), hint: "check the repository:  git fsck".to_owned() }
        }
    }
}
