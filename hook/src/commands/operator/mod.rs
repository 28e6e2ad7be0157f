//! What an operator may do to a fence: raise and lower its mark, end a push, take a lease away, change the kind of
//! tokens, repair the files. Always under the lock, with a reason, and on record.

pub(crate) mod repair;
pub(crate) mod revoke;
pub(crate) mod tokens;
mod turn;

use crate::{
    commands::failure::{self, CommandError},
    host::{
        clock::Patience,
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

const PATIENCE: Duration = Duration::from_secs(30);
const LONGEST_REASON: usize = 500;

/// What an operator wants done to a fence, and why.
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    /// The repository
    #[arg(default_value = ".")]
    repository: PathBuf,
    /// The fence
    #[arg(long, default_value = FenceName::REPO)]
    fence: String,
    /// Why, for the record
    #[arg(long)]
    reason: String,
}

impl OperatorArgs {
    /// Nothing is opened before there is a reason, and nothing done to a fence that is not there.
    pub(crate) fn accept(&self, environment: &Environment) -> Result<(Operator, FenceName, String), CommandError> {
        let reason = reason_given(&self.reason)?;
        let operator = Operator::at(&self.repository, environment)?;
        let fence = operator.fence(&self.fence)?;
        Ok((operator, fence, reason))
    }
}

/// A repository in the hands of its operator.
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

    /// The log under the lock, with everything settled that is over: marks are what they are.
    pub(crate) fn lock(&self) -> Result<Store, CommandError> {
        let mut store = Store::lock(&self.fence_dir(), &self.here.boot, &Operator::patience())?;
        let viewpoint = Viewpoint { here: &self.here, watched: None };
        let settled = settle_finished(&mut store, &self.repository, &self.settings, viewpoint, |_, _| true);
        settled.map_err(settling).map(|_| store)
    }

    pub(crate) fn fence_dir(&self) -> FenceDir {
        FenceDir::at(self.repository.fence_dir())
    }

    /// How long a command waits for the lock.
    pub(crate) fn patience() -> Patience {
        Patience::of(PATIENCE, Instant::now())
    }

    /// Puts `event` on record, to stay, and lets the lock go.
    pub(crate) fn commit(&self, mut store: Store, event: Event) -> Result<(), CommandError> {
        store.append(event)?;
        syslog::announce(self.settings.syslog.as_ref(), &store.commit(Durability::Synced)?);
        Ok(())
    }

    fn fence(&self, name: &str) -> Result<FenceName, CommandError> {
        let unknown =
            |why: String| CommandError::Other { what: why, hint: "git-fence-hook status  lists the fences".to_owned() };
        let fence = FenceName::parse(name.as_bytes()).map_err(|e| unknown(e.to_string()))?;
        match self.settings.rules(&fence) {
            Some(_) => Ok(fence),
            None => Err(unknown(format!("this repository has no fence '{fence}'"))),
        }
    }
}

/// `git-fence-hook raise`: nothing at or below the new mark may write any more.
pub(crate) fn raise(order: &OperatorArgs, to: u64, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let from = store.state().fence(&fence).mark;
    let mark = Mark::at(to).filter(|mark| *mark > from).ok_or_else(|| CommandError::Other {
        what: format!("{to} is not above the mark {from} of fence '{fence}': nothing was changed"),
        hint: "raise it to a number above the mark, up to 9223372036854775807".to_owned(),
    })?;
    let pusher = operator.name.clone();
    operator.commit(store, Event::MarkRaised { fence: fence.clone(), mark, reason, pusher })?;
    writeln!(io::stdout(), "fence '{fence}'  mark {from} raised to {mark}")?;
    Ok(())
}

/// `git-fence-hook lower`: tokens above the new mark may be used again. Only from the mark that the
/// operator believes it to be: it may have moved since they looked.
pub(crate) fn lower(order: &OperatorArgs, to: u64, expect: u64, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let from = store.state().fence(&fence).mark;
    if from.get() != expect {
        return Err(CommandError::Other {
            what: format!("the mark of fence '{fence}' is {from}, not {expect}: nothing was changed"),
            hint: "look again with  git-fence-hook status  before you lower it".to_owned(),
        });
    }
    let mark = Mark::at(to).filter(|mark| *mark < from).ok_or_else(|| CommandError::Other {
        what: format!("{to} is not below the mark {from} of fence '{fence}'"),
        hint: "lower it to a number from 0 up and below the mark".to_owned(),
    })?;
    let pusher = operator.name.clone();
    operator.commit(store, Event::MarkLowered { fence: fence.clone(), from, mark, reason, pusher })?;
    writeln!(io::stdout(), "fence '{fence}'  mark {from} lowered to {mark}")?;
    Ok(())
}

/// `git-fence-hook evict`: ends a stalled push in flight, so that others need not wait for it.
pub(crate) fn evict(order: &OperatorArgs, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let store = operator.lock()?;
    let Some(flight) = store.state().fence(&fence).slot.first().map(|flight| (*flight).clone()) else {
        store.commit(Durability::Lazy)?;
        writeln!(io::stdout(), "fence '{fence}'  nothing is in flight")?;
        return Ok(());
    };
    let cannot = |why: &str| CommandError::Other {
        what: format!("the push in flight, {}, cannot be ended from here: {why}", flight.push),
        hint: "it counts as over when its refs have moved or fence.wait has passed".to_owned(),
    };
    let receive_pack = flight.receive_pack.filter(|_| slot::view_of(&flight, &operator.here) == View::Clear);
    let receive_pack = receive_pack.ok_or_else(|| cannot("its receive-pack cannot be seen"))?;
    let Liveness::Alive(Some(pidfd)) = process::look_at(&receive_pack) else {
        return Err(cannot("its receive-pack cannot be reached"));
    };
    process::ask_to_end(&pidfd).map_err(|e| cannot(&e.to_string()))?;
    let who = Who { owner: None, pusher: operator.name.clone(), address: None };
    operator.commit(store, Event::PushEvicted { push: flight.push, reason, who })?;
    let ended = pidfd.has_ended_within(PATIENCE);
    let word = if ended { "has ended" } else { "was asked to end and has not yet" };
    writeln!(io::stdout(), "fence '{fence}'  push {}: process {} {word}", flight.push, receive_pack.pid)?;
    Ok(())
}

/// `git-fence-hook rotate`: moves the lines so far to a file of their own.
pub(crate) fn rotate(dir: &Path, environment: &Environment) -> Result<(), CommandError> {
    let operator = Operator::at(dir, environment)?;
    let archive = operator.lock()?.rotate(&operator.name)?;
    writeln!(io::stdout(), "lines so far  {}", archive.display())?;
    Ok(())
}

/// A reason on record must say something.
pub(crate) fn reason_given(reason: &str) -> Result<String, CommandError> {
    let reason = text::one_line(reason.trim().as_bytes(), LONGEST_REASON);
    if reason.is_empty() {
        return Err(CommandError::Other {
            what: "the reason is empty: nothing was changed".to_owned(),
            hint: "say why, for whoever reads the log:  --reason 'a test pushed token 999999'".to_owned(),
        });
    }
    Ok(reason)
}

fn settling(error: SettlingError) -> CommandError {
    match error {
        SettlingError::Store(e) => e.into(),
        SettlingError::Refs(e) => CommandError::Other { what: e.to_string(), hint: "look with  git fsck".to_owned() },
    }
}
