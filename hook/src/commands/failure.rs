//! What a command says when it cannot do its work.

use crate::{
    host::process,
    log::{journal::Damage, store::StoreError},
    repository::{OpenError, settings::SettingsError},
};
use git_fence_core::Place;
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
    /// What was found has been said already.
    #[error("not everything is as it should be")]
    Unsound,
    /// Whoever read the output has had enough.
    #[error("the reader of the output is gone")]
    ReaderGone,
}

impl CommandError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CommandError {
        let path = path.into();
        move |source| CommandError::Io { doing, path, source }
    }

    /// Says it on standard error: what failed, why, what to do.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = format!("error: {self}\n");
        let mut cause = self.source();
        while let Some(source) = cause {
            text += &format!("  because: {source}\n");
            cause = source.source();
        }
        if let Some(hint) = self.hint() {
            text += &format!("hint: {hint}\n");
        }
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        ExitCode::FAILURE
    }

    /// All of it in one line, for lists.
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
            CommandError::Open(OpenError::NotARepository(_)) => Some("name the repository, as in  /srv/git/app.git"),
            CommandError::Damage(Damage::NoLog(_)) | CommandError::Store(StoreError::Damage(Damage::NoLog(_))) => {
                Some("git-fence-hook install  begins it, with all marks at 0")
            }
            CommandError::Damage(Damage::LostLog(_)) | CommandError::Store(StoreError::Damage(Damage::LostLog(_))) => {
                Some(
                    "restore it from a backup. To begin anew, with all marks at 0, remove the directory 'fence' and install again",
                )
            }
            CommandError::Damage(Damage::Checkpoint(_)) => {
                Some("the next push makes it again from the log, which is whole")
            }
            CommandError::Damage(Damage::Torn { .. }) => {
                Some("it was never acknowledged: the next push sets it aside and goes on")
            }
            CommandError::Damage(Damage::Line { .. } | Damage::Cut { .. } | Damage::Empty(_)) => {
                Some("git-fence-hook doctor  says what that means for pushes, and what to do")
            }
            CommandError::Settings(_) => Some("find it with  git config --show-origin --get-regexp '^fence\\.'"),
            _ => None,
        }
    }
}

/// Where a command runs, which it needs to know to read the log.
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
