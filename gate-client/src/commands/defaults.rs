//! What the clone's git configuration says for flags that are not given.

use crate::{failure::Failure, git::Git, run::IfHeld};
use clap::ValueEnum as _;
use git_fence_core::{
    clone_setting::{CloneSetting, IF_HELD, ON_LOST, ON_SKIP, OWNER, RESOURCE, STORE, TTL},
    owner_name, text,
};
use std::ffi::OsString;

/// The settings of a clone. They are read when they are needed: a bad one fails the commands that use it.
pub(crate) struct Defaults {
    settings: Vec<(OsString, OsString)>,
}

impl Defaults {
    pub(crate) fn of(git: &Git) -> Defaults {
        Defaults { settings: git.settings(&[], r"^fence\.(owner|ttl|ifheld|onlost|onskip|store|resource)$") }
    }

    /// The value of a setting, if it is set. As in git, the last one counts and case does not.
    fn get(&self, setting: CloneSetting) -> Option<String> {
        let name = setting.name();
        let mut all = self.settings.iter().rev();
        all.find(|(key, _)| key.eq_ignore_ascii_case(&name)).map(|(_, value)| value.to_string_lossy().into_owned())
    }

    pub(crate) fn owner(&self) -> Result<Option<String>, Failure> {
        let Some(value) = self.get(OWNER) else { return Ok(None) };
        owner_name(&value).map(Some).ok_or_else(|| bad(OWNER, &value))
    }

    /// As it is written, and the name of the setting for messages.
    pub(crate) fn ttl(&self) -> Option<(String, String)> {
        self.get(TTL).map(|value| (value, TTL.name()))
    }

    /// Where leases are kept: the remote, or the URL of a store.
    pub(crate) fn store(&self) -> Option<String> {
        self.get(STORE)
    }

    /// The name of the repository in a store.
    pub(crate) fn resource(&self) -> Option<String> {
        self.get(RESOURCE)
    }

    /// What to run when the lease was lost.
    pub(crate) fn on_lost(&self) -> Option<String> {
        self.get(ON_LOST)
    }

    /// What to run when nothing ran.
    pub(crate) fn on_skip(&self) -> Option<String> {
        self.get(ON_SKIP)
    }

    pub(crate) fn if_held(&self) -> Result<IfHeld, Failure> {
        let Some(value) = self.get(IF_HELD) else { return Ok(IfHeld::Skip) };
        IfHeld::from_str(&value, true).map_err(|_| bad(IF_HELD, &value))
    }
}

/// A value that cannot be used. It is never replaced by a default.
fn bad(setting: CloneSetting, value: &str) -> Failure {
    let name = setting.name();
    let values = setting.values.replace('`', "");
    Failure::usage(
        format!("{name} is {}, which is not {values}", text::quoted(value.as_bytes())),
        format!("see where it is set with  git config --show-origin --get {name}"),
    )
}
