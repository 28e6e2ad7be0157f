//! The outcome of a run, for programs: the status file.

use crate::{
    failure::{Failure, of_file},
    files::write_whole,
};
use git_fence_core::{FenceName, HeldBy, LeaseId, Token};
use serde::Serialize;
use std::{os::unix::fs::PermissionsExt, path::Path};

/// The outcome of a run. Every known field is set.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Outcome {
    /// `running`, `ran`, `skipped`, `held`, `busy`, `lost`, `stalled`, `overran`, `unreachable`,
    /// `not-started`, `interrupted`, or the outcome of another failure.
    pub(crate) outcome: &'static str,
    /// The exit code of `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<FenceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    /// The token at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Token>,
    /// The token at the end; the difference is the number of tokens spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<LeaseId>,
    /// Who holds the lease, if we do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<HeldBy>,
    /// Whether a retry may succeed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) retryable: bool,
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// How long the lease was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
}

impl Outcome {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Writes the status file atomically. It contains no secret.
    pub(crate) fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = path else { return Ok(()) };
        let written = write_whole(path, format!("{}\n", self.json()).as_bytes())
            .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)));
        written.map_err(|e| of_file(path, e))
    }
}
