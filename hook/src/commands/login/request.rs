//! What a client asks sshd to run, read as `git-shell` reads it.

use git_fence_core::text;
use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// A program of git that serves clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// A push.
    ReceivePack,
    /// A fetch.
    UploadPack,
    /// `git archive --remote`.
    UploadArchive,
}

impl Service {
    const ALL: [Service; 3] = [Service::ReceivePack, Service::UploadPack, Service::UploadArchive];

    /// Its name as a command of git.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::ReceivePack => "receive-pack",
            Service::UploadPack => "upload-pack",
            Service::UploadArchive => "upload-archive",
        }
    }
}

/// A request that git serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServedRequest {
    pub(crate) service: Service,
    /// As the client names it.
    pub(crate) repository: OsString,
}

/// Why a request is not served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0} is not a command of git that serves a fetch or a push")]
    OtherCommand(String),
    #[error("{0} does not name one repository in single quotes, as git does")]
    Argument(String),
    #[error("the name of a repository cannot begin with '-' or be empty")]
    NoRepository,
}

impl ServedRequest {
    /// Reads `git-receive-pack '<repository>'` or `git receive-pack '<repository>'`; also upload-pack and upload-archive.
    /// Options are not among what git's own clients send, and could name programs.
    pub(crate) fn parse(command: &[u8]) -> Result<ServedRequest, RequestError> {
        let other = || RequestError::OtherCommand(text::quoted(command));
        let rest = command.strip_prefix(b"git").ok_or_else(other)?;
        let (separator, rest) = rest.split_first().ok_or_else(other)?;
        if *separator != b'-' && !separator.is_ascii_whitespace() {
            return Err(other());
        }
        let service = Service::ALL.into_iter().find_map(|service| {
            let argument = rest.strip_prefix(service.name().as_bytes())?;
            (argument.is_empty() || argument.starts_with(b" ")).then_some((service, argument.get(1..)?))
        });
        let (service, argument) = service.ok_or_else(other)?;
        let repository = unquoted(argument).ok_or_else(|| RequestError::Argument(text::quoted(argument)))?;
        if repository.is_empty() || repository.starts_with(b"-") {
            return Err(RequestError::NoRepository);
        }
        Ok(ServedRequest { service, repository: OsString::from_vec(repository) })
    }
}

/// One word in single quotes, in which only `'\''` and `'\!'` stand for something else. `None` for anything else.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut rest = quoted.strip_prefix(b"'")?;
    let mut word = Vec::with_capacity(rest.len());
    loop {
        let end = rest.iter().position(|b| *b == b'\'')?;
        word.extend_from_slice(&rest[..end]);
        rest = match &rest[end + 1..] {
            [] => return (!word.contains(&0)).then_some(word),
            [b'\\', escaped @ (b'\'' | b'!'), b'\'', rest @ ..] => {
                word.push(*escaped);
                rest
            }
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestError::{Argument, NoRepository, OtherCommand};

    fn served(service: Service, repository: &str) -> Result<ServedRequest, RequestError> {
        Ok(ServedRequest { service, repository: repository.into() })
    }

    #[test]
    fn requests_of_git_are_served() {
        for (command, service, repository) in [
            ("git-receive-pack '/srv/git/app.git'", Service::ReceivePack, "/srv/git/app.git"),
            ("git receive-pack 'app.git'", Service::ReceivePack, "app.git"),
            ("git-upload-pack '~/a b.git'", Service::UploadPack, "~/a b.git"),
            ("git-upload-archive '../x-y/-z.git'", Service::UploadArchive, "../x-y/-z.git"),
            (r"git-upload-pack 'it'\''s'\!''", Service::UploadPack, "it's!"),
            ("git-upload-pack '$(touch x);`y`'", Service::UploadPack, "$(touch x);`y`"),
        ] {
            assert_eq!(ServedRequest::parse(command.as_bytes()), served(service, repository), "{command}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for command in [
            "",
            "git",
            "git-",
            "git ",
            "ls",
            "sh -c 'git-receive-pack x'",
            "git-shell 'x'",
            "git-receive-packs 'x'",
            "git-receive-pack\t'x'",
            "git--receive-pack 'x'",
            "git -c core.hooksPath=/ receive-pack 'x'",
            "gitreceive-pack 'x'",
            "/usr/bin/git-receive-pack 'x'",
            " git-receive-pack 'x'",
            "git-lfs-authenticate 'x' upload",
            "scp -t /",
            "internal-sftp",
            "git  receive-pack 'x'",
        ] {
            let parsed = ServedRequest::parse(command.as_bytes());
            assert!(matches!(parsed, Err(OtherCommand(_))), "{command}: {parsed:?}");
        }
        for argument in [
            "",
            " ",
            " x",
            " \"x\"",
            " 'x",
            " 'x' 'y'",
            " 'x'y",
            " 'x';ls",
            r" 'x'\y''",
            " --advertise-refs 'x'",
            "  'x'",
            " 'x\0y'",
        ] {
            let parsed = ServedRequest::parse(format!("git-receive-pack{argument}").as_bytes());
            assert!(matches!(parsed, Err(Argument(_) | OtherCommand(_))), "{argument}: {parsed:?}");
        }
        for argument in ["''", "'-x'", "'--upload-pack=x'"] {
            let parsed = ServedRequest::parse(format!("git-receive-pack {argument}").as_bytes());
            assert_eq!(parsed, Err(NoRepository), "{argument}");
        }
    }
}
