//! Git for connections at which nobody can type: a heartbeat cannot ask for a password, so `run` does not ask for one at
//! its first connection either.

use crate::{git::Git, surroundings::in_shell_quotes};
use git_fence_system::env;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

/// A program that answers nothing.
const NO_ANSWER: &str = "/bin/false";

impl Git {
    /// The same git, which asks nobody for a name, a password or a passphrase, and never lets ssh ask.
    ///
    /// A program in `GIT_ASKPASS` is kept: CI systems and editors set it, and it answers by itself. `core.askPass` and
    /// `SSH_ASKPASS` name programs that open a window.
    pub(crate) fn unattended(&self) -> Git {
        let mut git = self.clone();
        let ssh = self.ssh_command();
        let environment = &mut git.environment;
        environment.set(env::GIT_TERMINAL_PROMPT, "0");
        environment.set(env::GCM_INTERACTIVE, "never");
        if environment.get(env::GIT_ASKPASS).is_none() {
            // Set and empty, it also overrides the other two.
            environment.set(env::GIT_ASKPASS, "");
        }
        // Whatever program runs ssh in the end: ssh asks this program instead of the terminal.
        environment.set(env::SSH_ASKPASS, NO_ANSWER);
        environment.set(env::SSH_ASKPASS_REQUIRE, "force");
        if let Some(command) = in_batch_mode(&ssh, self.ssh_variant().as_deref()) {
            environment.set(env::GIT_SSH_COMMAND, command);
        }
        git
    }

    /// The command that git runs for ssh, found as git does.
    fn ssh_command(&self) -> OsString {
        let given = self.environment.get(env::GIT_SSH_COMMAND).map(OsStr::to_owned);
        let configured = || self.ask(["config", "--get", "core.sshCommand"]).ok().map(OsString::from);
        let program = || self.environment.get(env::GIT_SSH).map(in_shell_quotes);
        given.or_else(configured).or_else(program).unwrap_or_else(|| "ssh".into())
    }

    /// Which ssh it is, if the user says.
    fn ssh_variant(&self) -> Option<String> {
        let given = self.environment.text(env::GIT_SSH_VARIANT).map(str::to_owned);
        let variant = given.or_else(|| self.ask(["config", "--get", "ssh.variant"]).ok());
        variant.filter(|variant| variant != "auto")
    }
}

/// `command` with the option of this ssh that it asks nothing. None for a program whose options are not known.
fn in_batch_mode(command: &OsStr, variant: Option<&str>) -> Option<OsString> {
    let option = match variant.unwrap_or(&program_of(command)) {
        "ssh" => " -o BatchMode=yes",
        "plink" | "putty" | "tortoiseplink" => " -batch",
        _ => return None,
    };
    Some([command, OsStr::new(option)].into_iter().collect())
}

/// The name of the program that a command line starts.
fn program_of(command: &OsStr) -> String {
    let command = String::from_utf8_lossy(command.as_bytes());
    let command = command.trim_start();
    let first = match command.chars().next() {
        Some(quote @ ('\'' | '"')) => command[1..].split(quote).next(),
        _ => command.split_whitespace().next(),
    };
    let name = first.unwrap_or_default().rsplit('/').next().unwrap_or_default().to_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_told_to_ask_nothing_where_its_options_are_known() {
        let told = |command: &str, variant| in_batch_mode(OsStr::new(command), variant);
        for (command, variant, expected) in [
            ("ssh", None, Some("ssh -o BatchMode=yes")),
            ("/usr/bin/ssh -i 'a key'", None, Some("/usr/bin/ssh -i 'a key' -o BatchMode=yes")),
            ("'/opt/open ssh/ssh' -v", None, Some("'/opt/open ssh/ssh' -v -o BatchMode=yes")),
            ("wrapper", Some("ssh"), Some("wrapper -o BatchMode=yes")),
            ("plink.exe", None, Some("plink.exe -batch")),
            ("wrapper", None, None),
            ("ssh", Some("simple"), None),
        ] {
            assert_eq!(told(command, variant), expected.map(OsString::from), "{command} {variant:?}");
        }
    }
}
