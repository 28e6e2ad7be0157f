//! `git-fence-hook as NAME`: what sshd runs for a key that has a name.
//!
//! It becomes git's own program for a fetch or a push, as `git-shell` does, and runs nothing else. The name comes from the
//! server's `authorized_keys`, and reaches the hooks in [`env::GIT_FENCE_PUSHER`]. Nothing that a client sends can set it:
//! all variables that could are removed first, even if sshd accepts them.

mod request;
mod root;

use crate::{commands::login::request::ServedRequest, failure::CommandError, host::surroundings};
use clap::Args;
use git_fence_system::{Environment, env};
use std::{
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

#[derive(Args)]
pub(crate) struct LoginArgs {
    /// Who pushes with this key: for the log, fence.exempt and fence.allowRevoke
    name: OsString,
    /// Serve only repositories below this directory; relative paths begin there, too
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Becomes git. Returns only if it may not, or cannot.
pub(crate) fn run(args: &LoginArgs, environment: &Environment) -> Result<(), CommandError> {
    let name = surroundings::checked_name(&args.name).ok_or_else(|| bad_name(&args.name))?;
    let asked = environment.get(env::SSH_ORIGINAL_COMMAND).ok_or_else(|| no_command(name))?;
    let request = ServedRequest::parse(asked.as_bytes()).map_err(|e| CommandError::Other {
        what: e.to_string(),
        hint: "this key is for git: fetch or push, and nothing else".to_owned(),
    })?;
    let repository = match &args.root {
        Some(root) => root::below(root, &request.repository)?.into_os_string(),
        None => request.repository,
    };
    let mut git = Command::new("git");
    git.arg(request.service.name()).arg(repository);
    environment_for_git(environment, name).give_to(&mut git);
    let failed = git.exec();
    Err(CommandError::io("run", "git")(failed))
}

/// The environment without anything that a client may have sent to git or to the gate, and with the name.
///
/// sshd takes variables from clients (AcceptEnv). Those that it sets itself, as HOME and PATH, are its own in any case.
fn environment_for_git(environment: &Environment, name: &str) -> Environment {
    let is_gits = |variable: &OsStr| variable.as_bytes().starts_with(b"GIT_");
    let (of_host, of_settings) = ([env::PUSHER, &[env::REMOTE_ADDR]].concat(), env::XDG_CONFIG_HOME);
    let may_pass = |variable: &OsStr| variable == env::GIT_PROTOCOL.name || !is_gits(variable);
    let kept = environment.all().filter(|(variable, _)| may_pass(variable));
    let kept = Environment::of(kept.map(|(variable, value)| (variable.clone(), value.clone())));
    kept.without(&of_host).without(&[of_settings]).with(env::GIT_FENCE_PUSHER, name)
}

fn bad_name(name: &OsStr) -> CommandError {
    CommandError::Other {
        what: format!("{} cannot be the name of a pusher", git_fence_core::text::quoted(name.as_bytes())),
        hint: "a name is 1 to 200 characters, without control characters and without spaces around it. \
               Ask the server's operator to change the line of this key in authorized_keys"
            .to_owned(),
    }
}

fn no_command(name: &str) -> CommandError {
    CommandError::Other {
        what: format!("there is no shell here: {} may fetch and push with git", git_fence_core::text::in_quotes(name)),
        hint: "use the address with git, as in  git clone git@example.com:app.git. \
               sshd runs this program, from a line with  command=\"git-fence-hook as NAME\"  in authorized_keys"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_client_sends_reaches_git_or_the_gate() {
        let sent = [
            "GL_USERNAME",
            "GL_USER",
            "GITEA_PUSHER_NAME",
            "REMOTE_USER",
            "REMOTE_ADDR",
            "GIT_FENCE_PUSHER",
            "GIT_CONFIG_PARAMETERS",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_KEY_0",
            "GIT_DIR",
            "GIT_EXEC_PATH",
            "XDG_CONFIG_HOME",
        ];
        let kept = ["GIT_PROTOCOL", "LANG", "PATH", "HOME", "SSH_CONNECTION"];
        let all = Environment::of(sent.iter().chain(&kept).map(|name| (name.into(), "x".into())));
        let passed = environment_for_git(&all, "anna");
        let mut names: Vec<&OsString> = passed.all().map(|(name, _)| name).collect();
        names.retain(|name| !kept.iter().any(|kept| *name == kept));
        assert_eq!(names, ["GIT_FENCE_PUSHER"]);
        assert_eq!(passed.count(), kept.len() + 1);
        assert_eq!(passed.get(env::GIT_FENCE_PUSHER).unwrap(), "anna");
    }
}
