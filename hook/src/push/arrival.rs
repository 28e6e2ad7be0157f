//! A push as it arrives: what git, the environment and the kernel say about it, read once and not judged yet.

use crate::{
    host::{process, surroundings::Environment},
    repository::{OpenError, Repository, config_trust::ConfigReader},
};
use git_fence_core::{Place, Push, PushError, ReceivePack, Reject, Settings};
use git_fence_system::env;
use std::{
    io,
    path::{Path, PathBuf},
    time::Instant,
};

/// Everything known about a push before its settings are read.
pub(crate) struct Arrival<'a> {
    pub(crate) environment: &'a Environment,
    /// The file of this hook, if git named it.
    pub(crate) own_file: Option<&'a Path>,
    /// When the hook began to work on this push.
    pub(crate) start: Instant,
    /// The refs that it wants to move; empty if the input cannot be read.
    pub(crate) push: Push,
    /// Why the input cannot be read.
    pub(crate) unreadable: Option<PushError>,
    pub(crate) repository: Repository,
    pub(crate) here: Place,
    /// The receive-pack that started this hook, if it is visible.
    receive_pack: Option<ReceivePack>,
}

impl<'a> Arrival<'a> {
    /// Finds the repository and the receive-pack of the push.
    pub(crate) fn of(
        input: Result<Push, PushError>,
        own_file: Option<&'a Path>,
        environment: &'a Environment,
        start: Instant,
    ) -> Result<Arrival<'a>, Reject> {
        let git_dir = environment.path(env::GIT_DIR).unwrap_or_else(|| PathBuf::from("."));
        let receive_pack = process::receive_pack_ancestors().next();
        let git = receive_pack.as_ref().and_then(process::program_of);
        let repository = Repository::open(&git_dir, git.as_deref(), environment, ConfigReader::Push);
        let repository = repository.map_err(|e| cannot_open(&e))?;
        let here = process::here().map_err(|e| cannot_read_place(&e))?;
        let (push, unreadable) = match input {
            Ok(push) => (push, None),
            Err(e) => (Push::default(), Some(e)),
        };
        Ok(Arrival { environment, own_file, start, push, unreadable, repository, here, receive_pack })
    }

    /// The receive-pack that will move the refs; `None` if the host runs hooks elsewhere.
    pub(crate) fn receive_pack(&self, settings: &Settings) -> Option<ReceivePack> {
        self.receive_pack.filter(|_| !settings.receive_pack_is_elsewhere)
    }

    /// Without the process that moves the refs, nothing shows when they have moved.
    pub(crate) fn unseen(&self, settings: &Settings) -> Option<Reject> {
        let is_unseen = self.receive_pack.is_none() && !settings.receive_pack_is_elsewhere;
        is_unseen.then(|| Reject::Unseen { why: "no receive-pack found among the parents of this hook".to_owned() })
    }
}

fn cannot_open(error: &OpenError) -> Reject {
    Reject::Broken {
        what: format!("cannot open the repository: {error}"),
        fix: "nothing was written. Ask the server's operator to fix that file or setting".to_owned(),
    }
}

fn cannot_read_place(error: &io::Error) -> Reject {
    Reject::Broken {
        what: format!("cannot read the kernel's boot id and PID namespace: {error}"),
        fix: "nothing was written. Ask the server's operator to mount /proc".to_owned(),
    }
}
