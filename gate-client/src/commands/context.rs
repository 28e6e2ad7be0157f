//! Which fence of which remote a command is about, and which lease of it is held here.

use crate::{
    clock::Clock,
    failure::Failure,
    git::{
        address::address,
        local::{Local, Remote},
    },
    lease::{
        client::Client,
        held::{CurrentLease, HeldLease, LeaseDir},
        taking::LeaseRequest,
    },
    surroundings::Environment,
};
use clap::Args;
use git_fence_core::{FenceName, LeaseId, Ttl, few_words, length_of_time, owner_name, text};
use git_fence_system::{env, place, user};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

/// Which fence of which remote.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Target {
    /// The fence [default: the one of the run that this is in, or repo]
    #[arg(long, value_name = "NAME")]
    pub(crate) fence: Option<String>,
    /// The remote, by name or URL [default: the one of the run that this is in, or origin]
    #[arg(long, value_name = "REMOTE")]
    pub(crate) remote: Option<String>,
}

/// Who wants a lease, and for how long.
#[derive(Debug, Clone, Args)]
pub(crate) struct LeaseArgs {
    /// Who you are, for people: it stands in the history, and proves nothing [default: user@host]
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// How long the lease lasts without a heartbeat: 1s to 7d, the gate may allow less
    #[arg(long, value_name = "TIME", default_value = "90s")]
    pub(crate) ttl: String,
    /// Why you want it, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How far clocks may differ, where no gate judges whether a lease has expired
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) skew: String,
}

/// What every command works with.
pub(crate) struct Context {
    pub(crate) environment: Environment,
    pub(crate) local: Local,
}

impl Context {
    pub(crate) fn here(environment: Environment) -> Result<Context, Failure> {
        let cwd = std::env::current_dir()
            .map_err(|e| Failure::usage(format!("the current directory cannot be used: {e}"), "change to another"))?;
        let local = Local::find(&cwd, &environment)?;
        Ok(Context { environment, local })
    }

    /// The fence and the remote that `place` names, or the run that this is in.
    pub(crate) fn client(&self, place: &Target) -> Result<Client, Failure> {
        let fence = place.fence.as_deref().or_else(|| self.environment.text(env::GIT_FENCE));
        let remote = match (&place.remote, self.inherited()) {
            // By where it is: another clone may call another repository by the same name.
            (None, Some((held, _))) => self.local.remote_at(&held.remote, &held.url),
            (named, _) => {
                self.local.remote(named.as_deref().or_else(|| self.environment.text(env::GIT_FENCE_REMOTE)))?
            }
        };
        self.client_of(fence, remote)
    }

    pub(crate) fn client_of(&self, fence: Option<&str>, remote: Remote) -> Result<Client, Failure> {
        let fence = FenceName::parse(fence.unwrap_or(FenceName::REPO).as_bytes())
            .map_err(|e| Failure::usage(e.to_string(), "the fence that every repository has is called 'repo'"))?;
        let mut local = self.local.clone();
        remote.route.shown_to(&mut local.git);
        Ok(Client { local, remote, fence, clock: Clock::of(&self.environment), until: None, stop: None })
    }

    /// The lease that is held here: that of the run that this is in, or the one that was acquired.
    pub(crate) fn held(&self, place: &Target) -> Result<(Client, LeaseDir), Failure> {
        let is_meant = |(held, _): &(HeldLease, LeaseDir)| {
            place.fence.as_deref().is_none_or(|fence| fence == held.fence.as_str())
                && place.remote.as_deref().is_none_or(|remote| self.leads_to(remote, &held.url))
        };
        // An outer run is meant only by the name of its remote.
        let outer = self.runs().into_iter().rev().filter(|_| place.remote.is_some());
        if let Some((held, dir)) = self.inherited().into_iter().chain(outer).find(is_meant) {
            let remote = self.local.remote_at(&held.remote, &held.url);
            return Ok((self.client_of(Some(held.fence.as_str()), remote)?, dir));
        }
        let client = self.client(place)?;
        if self.is_orphan(&client) {
            return Err(orphaned(&client));
        }
        let found = CurrentLease::of(&self.local, &client.fence, &client.remote.url).find();
        let dir = found.ok_or_else(|| {
            Failure::usage(
                format!("no lease of fence '{}' is held here", client.fence),
                "take one:  git fence acquire,  or  git fence run -- COMMAND",
            )
        })?;
        Ok((client, dir))
    }

    /// Whether that lease is the one that is held here.
    pub(crate) fn holds(&self, place: &Target, id: &LeaseId) -> bool {
        self.held(place).and_then(|(_, dir)| dir.held()).is_ok_and(|here| here.lease.id == *id)
    }

    /// Whether what is called `remote` here is the repository at `url`: another clone may mean another by that name.
    fn leads_to(&self, remote: &str, url: &str) -> bool {
        let place = |url: &str| address(OsStr::new(url), &self.local.git.dir);
        self.local.remote(Some(remote)).is_ok_and(|here| here.url == url || place(&here.url) == place(url))
    }

    /// The lease of the run that this is in.
    pub(crate) fn inherited(&self) -> Option<(HeldLease, LeaseDir)> {
        let dir = LeaseDir::at(&PathBuf::from(self.environment.get(env::GIT_FENCE_DIR)?));
        let id = LeaseId::parse(self.environment.text(env::GIT_FENCE_LEASE)?)?;
        let held = dir.held().ok().filter(|held| held.lease.id == id)?;
        Some((held, dir))
    }

    /// Whether this belongs to a run that is over: whoever goes on working then must not help itself to
    /// a new lease, as if it had begun anew.
    pub(crate) fn is_orphan(&self, client: &Client) -> bool {
        self.environment.get(env::GIT_FENCE_LEASE).is_some()
            && self.inherited().is_none()
            && self.environment.text(env::GIT_FENCE) == Some(client.fence.as_str())
            && self.environment.text(env::GIT_FENCE_REMOTE) == Some(client.remote.name.as_str())
    }

    /// The leases of all runs that this is in, the innermost last.
    pub(crate) fn runs(&self) -> Vec<(HeldLease, LeaseDir)> {
        let dirs = self.environment.get(env::GIT_FENCE_RUNS).unwrap_or_default();
        let dirs = std::env::split_paths(dirs).map(|dir| LeaseDir::at(&dir));
        dirs.filter_map(|dir| Some((dir.held().ok()?, dir))).collect()
    }

    pub(crate) fn wish(&self, wanted: &LeaseArgs) -> Result<LeaseRequest, Failure> {
        let owner = match &wanted.owner {
            Some(owner) => owner_name(owner).ok_or_else(|| {
                Failure::usage("the owner's name has nothing in it that can be shown", "as in  --owner nightly@host-3")
            })?,
            None => self.usual_owner(),
        };
        let words = wanted.reason.as_deref().and_then(few_words);
        Ok(LeaseRequest { owner, ttl: ttl(&wanted.ttl)?, words, skew: duration(&wanted.skew, "--skew")? })
    }

    fn usual_owner(&self) -> String {
        owner_name(&format!("{}@{}", user::own_name(), place::host_name())).unwrap_or_else(|| "somebody".to_owned())
    }
}

/// What is said to such a one.
pub(crate) fn orphaned(client: &Client) -> Failure {
    Failure::lost(&client.fence, "the run that this belongs to is over")
}

fn ttl(value: &str) -> Result<Ttl, Failure> {
    let length = duration(value, "--ttl")?;
    let ttl = Ttl::of_seconds(length.as_secs()).filter(|ttl| ttl.duration() == length);
    ttl.ok_or_else(|| {
        Failure::usage(
            format!("a TTL of {} cannot be had", text::quoted(value.as_bytes())),
            "from 1s to 7d, in whole seconds. 90s suits most: a third of it is the time between heartbeats",
        )
    })
}

/// The length of time that `option` is set to.
pub(crate) fn duration(value: &str, option: &str) -> Result<Duration, Failure> {
    length_of_time(value).ok_or_else(|| {
        let what = format!("{option} {} is not a length of time", text::quoted(value.as_bytes()));
        Failure::usage(what, "as in 30s, 2m or 1h30m")
    })
}

/// An argument as text that can be shown.
pub(crate) fn shown(argument: &OsStr) -> String {
    text::one_line(argument.as_bytes(), 200)
}
