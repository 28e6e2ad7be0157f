//! How a command reports that it failed.

use crate::{
    host::process,
    log::{journal::Damage, store::StoreError},
    repository::{OpenError, settings::SettingsError},
};
use git_fence_core::Place;
use git_fence_system::colours::say;
use std::{error::Error, io, path::PathBuf, process::ExitCode};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error("cannot {doing} '{}'", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("'git {doing}' failed: {why}")]
    Git { doing: String, why: String },
    #[error("{what}")]
    Other { what: String, hint: String },
    /// The problems have already been printed.
    #[error("there are problems")]
    Unsound,
    /// The reader of the output has closed it.
    #[error("the reader of the output is gone")]
    ReaderGone,
}

impl CommandError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CommandError {
        let path = path.into();
        move |source| CommandError::Io { doing, path, source }
    }

    /// Prints it to standard error: what failed, why, and what to do.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = format!("error: {self}\n");
        let mut cause = self.source();
        while let Some(source) = cause {
            text += &format!("  caused by: {source}\n");
            cause = source.source();
        }
        if let Some(hint) = self.hint() {
            text += &format!("hint: {hint}\n");
        }
        say(&text);
        ExitCode::FAILURE
    }

    /// The whole chain in one line, for lists.
    pub(crate) fn in_one_line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(source) = cause {
            line += &format!(": {source}");
            cause = source.source();
        }
        git_fence_core::text::one_line(line.as_bytes(), 400)
    }

    fn hint(&self) -> Option<&str> {
        match self {
            CommandError::Other { hint, .. } => Some(hint),
            CommandError::Open(OpenError::NotARepository(_)) => Some(
                "name the repository, as in  /srv/git/app.git. Some commands have  --recursive  for all below a directory",
            ),
            CommandError::Damage(Damage::NoLog(_)) | CommandError::Store(StoreError::Damage(Damage::NoLog(_))) => {
                Some("create it, all marks at 0:  git-fence-hook install")
            }
            CommandError::Damage(Damage::LostLog(_)) | CommandError::Store(StoreError::Damage(Damage::LostLog(_))) => {
                Some(
                    "restore it from a backup. To start over with all marks at 0, remove the directory 'fence' and install again",
                )
            }
            CommandError::Damage(Damage::Checkpoint(_)) => {
                Some("the next push rebuilds it from the log, which is intact")
            }
            CommandError::Damage(Damage::Torn { .. }) => {
                Some("it was never acknowledged: the next push moves it to a separate file and continues")
            }
            CommandError::Damage(Damage::Line { .. } | Damage::Cut { .. } | Damage::Empty(_)) => {
                Some("to see how pushes are affected and what to do:  git-fence-hook doctor")
            }
            CommandError::Settings(_) => Some("find it with  git config --show-origin --get-regexp '^fence\\.'"),
            _ if self.is_denied() => Some("run it as the owner of the repository, or as root"),
            _ => None,
        }
    }

    /// Whether the user lacks a permission.
    fn is_denied(&self) -> bool {
        let cause = match self {
            CommandError::Io { source, .. } => source,
            CommandError::Damage(Damage::Io { cause, .. })
            | CommandError::Store(StoreError::Damage(Damage::Io { cause, .. })) => cause,
            _ => return false,
        };
        cause.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Where this command runs, which is needed to read the log.
pub(crate) fn here() -> Result<Place, CommandError> {
    process::here().map_err(CommandError::io("read", git_fence_system::place::SHOWN_IN))
}

/// Errors of writing to standard output.
impl From<io::Error> for CommandError {
    fn from(source: io::Error) -> CommandError {
        match source.kind() {
            io::ErrorKind::BrokenPipe => CommandError::ReaderGone,
            _ => CommandError::Io { doing: "write to", path: "standard output".into(), source },
        }
    }
}
