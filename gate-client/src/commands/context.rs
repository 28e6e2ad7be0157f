//! The fence and remote of a command, and the lease that is held here.

use crate::{
    client::{Client, PATIENCE},
    clock::Clock,
    commands::defaults::Defaults,
    failure::Failure,
    git::{
        Waiting,
        address::{address, resource as resource_of},
        local::{Local, Remote},
    },
    lease::{
        held::{CurrentLease, HeldLease, LeaseDir, TakenBy},
        jobs::JobsAsk,
        taking::LeaseRequest,
    },
    run::signals::Interrupt,
    store::program::StoreProgram,
    surroundings::Environment,
};
use clap::Args;
use git_fence_core::{FenceName, LeaseId, RefName, Ttl, few_words, length_of_time, owner_name, text};
use git_fence_system::{env, place, user};
use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// What is said for a lease that is kept in the remote itself.
const IN_THE_REMOTE: &str = "remote";
/// The same, as gates spell it: a machine may have both.
const NONE: &str = "none";

/// Which fence of which remote.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Target {
    /// The fence, or a member of a family, as in pr/7 [default: that of the enclosing run, or repo]
    #[arg(long, value_name = "NAME")]
    pub(crate) fence: Option<String>,
    /// The fence of this branch, in the family 'branch': short for --fence branch/X
    #[arg(long, value_name = "X", conflicts_with = "fence")]
    pub(crate) branch: Option<OsString>,
    /// The remote, by name or URL [default: that of the enclosing run, or origin]
    #[arg(long, value_name = "REMOTE")]
    pub(crate) remote: Option<String>,
    /// Where the lease is kept: the URL of a store, or 'remote' [default: GIT_FENCE_STORE, or fence.store, or the remote]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

impl Target {
    /// The fence that is named.
    pub(crate) fn fence_name(&self) -> Result<Option<FenceName>, Failure> {
        match &self.branch {
            Some(branch) => fence_of_branch(branch).map(Some),
            None => self.fence.as_deref().map(fence_called).transpose(),
        }
    }
}

/// The fence with this name.
pub(crate) fn fence_called(name: &str) -> Result<FenceName, Failure> {
    FenceName::read(name.as_bytes()).map_err(|e| Failure::usage(e.to_string(), "every repository has the fence 'repo'"))
}

/// The fence of a branch, in the family that `git-fence-hook install --per-branch` sets up.
pub(crate) fn fence_of_branch(branch: &OsStr) -> Result<FenceName, Failure> {
    let family = FenceName::parse(BRANCHES.as_bytes());
    let name = branch.as_bytes();
    let name = name.strip_prefix(b"refs/heads/").unwrap_or(name);
    let hint = "name the branch as git does, as in  --branch feature/x";
    let member = family.and_then(|family| family.member(name)).map_err(|e| Failure::usage(e.to_string(), hint))?;
    match RefName::new([b"refs/heads/", name].concat()).is_valid() {
        true => Ok(member),
        false => Err(Failure::usage(format!("git allows no branch {}", text::quoted(name)), hint)),
    }
}

/// The family of `--branch`.
const BRANCHES: &str = "branch";

/// The owner and the TTL of a new lease.
#[derive(Debug, Clone, Args)]
pub(crate) struct LeaseArgs {
    /// Your name in the history, for people; it proves nothing [default: fence.owner, or user@host]
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// How long the lease lasts without a heartbeat: 1s to 7d, the gate may allow less [default: fence.ttl, or 90s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Why you take the lease, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How far clocks may differ; matters without a gate, which decides what has expired
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) skew: String,
}

/// How long a single command waits.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// Wait this long for a lease that is held; exit code 11 if it still is
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
}

impl WaitArgs {
    /// How long to wait; none if not at all.
    pub(crate) fn length(&self) -> Result<Option<Duration>, Failure> {
        self.wait.as_deref().map(|wait| duration(wait, "--wait")).transpose()
    }
}

/// What every command works with.
pub(crate) struct Context {
    pub(crate) environment: Environment,
    pub(crate) local: Local,
    /// Whether a signal has asked the command to end.
    pub(crate) interrupt: Interrupt,
}

impl Context {
    pub(crate) fn here(environment: Environment, interrupt: Interrupt) -> Result<Context, Failure> {
        let cwd = std::env::current_dir().map_err(|e| {
            Failure::usage(format!("cannot use the current directory: {e}"), "change to another directory")
        })?;
        let local = Local::find(&cwd, &environment)?;
        Ok(Context { environment, local, interrupt })
    }

    /// The fence and the remote that `place` names, or those of the enclosing run.
    pub(crate) fn client(&self, place: &Target) -> Result<Client, Failure> {
        let inherited = || self.environment.text(env::GIT_FENCE).map(fence_called).transpose();
        let fence = place.fence_name()?.map_or_else(inherited, |fence| Ok(Some(fence)))?;
        let remote = match (&place.remote, self.inherited()) {
            // By URL: in another clone the name may mean another repository.
            (None, Some((held, _))) => self.local.remote_at(&held.remote, &held.url),
            (named, _) => {
                self.local.remote(named.as_deref().or_else(|| self.environment.text(env::GIT_FENCE_REMOTE)))?
            }
        };
        let client = self.client_of(fence, remote, place.store.as_deref())?;
        // Inside a run its fence is where the run found it.
        match self.inherited().filter(|(held, _)| place.store.is_none() && held.fence == client.fence) {
            Some((held, _)) if held.url == client.remote.url => Ok(client.with_store_of(&held)),
            _ => Ok(client),
        }
    }

    pub(crate) fn client_of(
        &self,
        fence: Option<FenceName>,
        remote: Remote,
        store: Option<&str>,
    ) -> Result<Client, Failure> {
        let fence = fence.unwrap_or_else(FenceName::repo);
        let mut local = self.local.clone();
        remote.route.apply_to(&mut local.git);
        // At a terminal somebody may be typing a password, and can stop waiting.
        let patience = (!io::stdin().is_terminal()).then_some(PATIENCE);
        let waiting = Some(Waiting::on(&remote.name));
        let clock = Clock::of(&self.environment);
        let store = self.store(store, &remote).map(Arc::new);
        Ok(Client { local, remote, fence, clock, until: None, stop: None, hurry: None, patience, waiting, store })
    }

    /// The store that is `given` or set; none if leases are kept in the remote.
    fn store(&self, given: Option<&str>, remote: &Remote) -> Option<StoreProgram> {
        let defaults = self.defaults();
        let url = given.or_else(|| self.environment.text(env::GIT_FENCE_STORE)).map(str::to_owned);
        let in_the_remote = |url: &String| url.is_empty() || url == IN_THE_REMOTE || url == NONE;
        let url = url.or_else(|| defaults.store()).filter(|url| !in_the_remote(url))?;
        Some(StoreProgram::new(&url, &self.resource(remote)))
    }

    /// The name of the repository, the same on every machine.
    pub(crate) fn resource(&self, remote: &Remote) -> String {
        self.defaults().resource().unwrap_or_else(|| resource_of(OsStr::new(&remote.url), &self.local.git.dir))
    }

    /// The lease that is held here: that of the enclosing run, or the one that was acquired.
    pub(crate) fn held(&self, place: &Target) -> Result<(Client, LeaseDir), Failure> {
        let named = place.fence_name()?;
        let is_meant = |(held, _): &(HeldLease, LeaseDir)| {
            named.as_ref().is_none_or(|fence| *fence == held.fence)
                && place.remote.as_deref().is_none_or(|remote| self.leads_to(remote, &held.url))
        };
        // An outer run counts only if its remote is named.
        let outer = self.runs().into_iter().rev().filter(|_| place.remote.is_some());
        if let Some((held, dir)) = self.inherited().into_iter().chain(outer).find(is_meant) {
            let remote = self.local.remote_at(&held.remote, &held.url);
            let client = self.client_of(Some(held.fence.clone()), remote, Some(IN_THE_REMOTE))?;
            return Ok((client.with_store_of(&held), dir));
        }
        let client = self.client(place)?;
        if self.is_orphan(&client) {
            return Err(orphaned(&client));
        }
        let found = CurrentLease::of(&self.local, &client.fence, &client.remote.url).find();
        let dir = found.ok_or_else(|| {
            Failure::usage(
                format!("no lease of fence '{}' is held here", client.fence),
                "take one with  git fence acquire  or  git fence run -- COMMAND",
            )
        })?;
        let client = dir.held().map(|held| client.with_store_of(&held)).unwrap_or(client);
        Ok((client, dir))
    }

    /// Whether the lease `id` is held here.
    pub(crate) fn holds(&self, place: &Target, id: &LeaseId) -> bool {
        self.held(place).and_then(|(_, dir)| dir.held()).is_ok_and(|here| here.lease.id == *id)
    }

    /// Whether `remote` means the repository at `url` here: in another clone the name may mean another repository.
    fn leads_to(&self, remote: &str, url: &str) -> bool {
        let place = |url: &str| address(OsStr::new(url), &self.local.git.dir);
        self.local.remote(Some(remote)).is_ok_and(|here| here.url == url || place(&here.url) == place(url))
    }

    /// The lease of the enclosing run.
    pub(crate) fn inherited(&self) -> Option<(HeldLease, LeaseDir)> {
        let dir = LeaseDir::at(&PathBuf::from(self.environment.get(env::GIT_FENCE_DIR)?));
        let id = LeaseId::parse(self.environment.text(env::GIT_FENCE_LEASE)?)?;
        let held = dir.held().ok().filter(|held| held.lease.id == id)?;
        Some((held, dir))
    }

    /// Whether this process belongs to a run that is over. It must not take a new lease and continue as if it had
    /// just started.
    pub(crate) fn is_orphan(&self, client: &Client) -> bool {
        self.environment.get(env::GIT_FENCE_LEASE).is_some()
            && self.inherited().is_none()
            && self.environment.text(env::GIT_FENCE) == Some(client.fence.as_str())
            && self.environment.text(env::GIT_FENCE_REMOTE) == Some(client.remote.name.as_str())
    }

    /// The leases of all enclosing runs, the innermost last.
    pub(crate) fn runs(&self) -> Vec<(HeldLease, LeaseDir)> {
        let dirs = self.environment.get(env::GIT_FENCE_RUNS).unwrap_or_default();
        let dirs = std::env::split_paths(dirs).map(|dir| LeaseDir::at(&dir));
        dirs.filter_map(|dir| Some((dir.held().ok()?, dir))).collect()
    }

    pub(crate) fn lease_request(&self, wanted: &LeaseArgs, taken_by: TakenBy) -> Result<LeaseRequest, Failure> {
        let owner = match &wanted.owner {
            Some(owner) => owner_name(owner).ok_or_else(|| {
                Failure::usage(
                    "the owner's name has no printable characters",
                    "use for example  --owner nightly@host-3",
                )
            })?,
            None => self.defaults().owner()?.unwrap_or_else(user_at_host),
        };
        let words = wanted.reason.as_deref().and_then(few_words);
        let ttl = match &wanted.ttl {
            Some(given) => ttl(given, "--ttl")?,
            None => self.defaults().ttl().map_or_else(|| ttl("90s", "--ttl"), |(value, name)| ttl(&value, &name))?,
        };
        let skew = duration(&wanted.skew, "--skew")?;
        Ok(LeaseRequest { owner, ttl, words, skew, taken_by, jobs: JobsAsk::Carry })
    }

    /// What the clone's configuration says for flags that are not given.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults::of(&self.local.git)
    }

    /// Who runs the command: by the name given, by that of the lease held here, or the default.
    pub(crate) fn me(&self, given: Option<&str>, place: &Target) -> String {
        let held = || Some(self.held(place).ok()?.1.held().ok()?.lease.owner);
        given.and_then(owner_name).or_else(held).unwrap_or_else(|| self.default_owner())
    }

    fn default_owner(&self) -> String {
        self.defaults().owner().ok().flatten().unwrap_or_else(user_at_host)
    }
}

/// The owner's name where none is given.
pub(crate) fn user_at_host() -> String {
    owner_name(&format!("{}@{}", user::own_name(), place::host_name())).unwrap_or_else(|| "unknown".to_owned())
}

/// The failure for a process whose run is over.
pub(crate) fn orphaned(client: &Client) -> Failure {
    Failure::lost(&client.fence, "the run that this process belongs to is over")
}

/// The TTL that `option` gives: a flag or a setting.
fn ttl(value: &str, option: &str) -> Result<Ttl, Failure> {
    let length = duration(value, option)?;
    let ttl = Ttl::of_seconds(length.as_secs()).filter(|ttl| ttl.duration() == length);
    ttl.ok_or_else(|| {
        Failure::usage(
            format!("{option}: invalid TTL {}", text::quoted(value.as_bytes())),
            "use 1s to 7d, in whole seconds. 90s is right for most; heartbeats come every third of it",
        )
    })
}

/// The duration given for `option`.
pub(crate) fn duration(value: &str, option: &str) -> Result<Duration, Failure> {
    length_of_time(value).ok_or_else(|| {
        let what = format!("{option} {} is not a duration", text::quoted(value.as_bytes()));
        Failure::usage(what, "use for example 30s, 2m or 1h30m")
    })
}

/// An argument as text that is safe to show.
pub(crate) fn shown(argument: &OsStr) -> String {
    text::one_line(argument.as_bytes(), 200)
}
