//! The command line.

use crate::{
    commands::{
        audit::{self, select::AuditArgs},
        doctor,
        install::{self, uninstall},
        login,
        mode::{self, ModeArgs, plan::WantedMode},
        operator::{
            self, OperatorArgs,
            halt::{self, HaltArgs, Switch},
            repair, revoke,
            tokens::{self, KindArg},
        },
        stats::{self, StatsArgs},
        status,
    },
    failure::CommandError,
    host::surroundings::Environment,
    push::{post_receive, pre_receive},
};
use clap::{Args, ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use git_fence_core::length_of_time;
use git_fence_system::{colours::Colours, terminal};
use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

/// The gate of git-fence, for the server side.
///
/// Git runs it as the pre-receive hook of a repository, where it refuses every push whose fencing
/// token is not above the newest one that has written there, and as the post-receive hook, where
/// it records what was written. The commands below install it and show what it does.
#[derive(Parser)]
#[command(name = "git-fence-hook", version)]
struct HookCli {
    #[command(subcommand)]
    command: HookCommand,
    /// When to use colours; auto is on a terminal, unless NO_COLOR is set
    // Read before the line is parsed, so that messages about the line follow it.
    #[arg(long, global = true, value_name = "WHEN", value_parser = Colours::WORDS, default_value = "auto")]
    color: String,
}

#[derive(Subcommand)]
enum HookCommand {
    /// Install the gate in a repository: the hooks, push options, and the log
    Install(install::InstallArgs),
    /// Remove the gate: restore the previous hooks, keep the log
    Uninstall(uninstall::UninstallArgs),
    /// Refuse what breaks the rule: changes the mode of a repository, and shows it before and after
    Enforce(ModeArgs),
    /// Refuse nothing, but record what would have been refused: changes the mode of a repository
    Observe(ModeArgs),
    /// Find problems that make the fence absent, weaker or stuck, and how to fix them; exit code 1 if there are any
    Doctor(doctor::DoctorArgs),
    /// Show the marks, and the push in flight, if any
    Status(StatusArgs),
    /// Show the gate's decisions, oldest first
    #[command(args_conflicts_with_subcommands = true)]
    Audit {
        #[command(subcommand)]
        command: Option<AuditCommand>,
        #[command(flatten)]
        args: AuditArgs,
    },
    /// Summarize the log: accepted and refused pushes, waits, and what observe mode admitted
    Stats(StatsArgs),
    /// Raise a mark, so that tokens at or below it no longer write: after restoring a backup
    Raise {
        #[command(flatten)]
        order: OperatorArgs,
        /// The new mark
        #[arg(long)]
        to: u64,
    },
    /// Lower a mark, so that tokens above it can be used again: after a huge token by mistake
    #[command(override_usage = "git-fence-hook lower --to MARK --expect MARK --reason TEXT [REPOSITORY]")]
    Lower {
        #[command(flatten)]
        order: OperatorArgs,
        /// The new mark
        #[arg(long)]
        to: u64,
        /// The current mark; if it differs, nothing is changed
        #[arg(long, value_name = "MARK")]
        expect: u64,
    },
    /// End the push in flight, so that others do not have to wait for it
    Evict(OperatorArgs),
    /// Revoke a lease, so that another client can acquire it
    Revoke(OperatorArgs),
    /// Stop everybody who works under leases: nobody gets the lease of a halted fence until it is resumed
    ///
    /// The push that is in flight is waited for, and ended if it hangs. Halting twice is harmless.
    Halt(HaltArgs),
    /// End a halt: whoever wants the lease can acquire it again
    Resume(HaltArgs),
    /// Change the kind of tokens that a fence accepts; a held lease is revoked
    Tokens {
        /// Own tokens of the pushers, or lease tokens
        kind: KindArg,
        #[command(flatten)]
        order: OperatorArgs,
    },
    /// Serve git's fetches and pushes over ssh to a key with a name: run by sshd, set in authorized_keys
    ///
    /// A line of authorized_keys:  command="git-fence-hook as anna",restrict ssh-ed25519 AAAA...
    As(login::LoginArgs),
    /// Move the lines of the log so far to an archive file
    Rotate(Where),
    /// Repair the fence's own files: shows what it would do, and does it with --yes
    Repair {
        #[command(flatten)]
        place: Where,
        /// Make the changes
        #[arg(long)]
        yes: bool,
        /// Why, for the log; required if lines of the log are lost
        #[arg(long)]
        reason: Option<String>,
    },
    /// Run by git before the push: reads it from standard input and the environment
    #[command(hide = true)]
    PreReceive { hook: Vec<OsString> },
    /// Run by git after the push: reads the updated refs from standard input
    #[command(hide = true)]
    PostReceive { hook: Vec<OsString> },
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check that no line of the log was changed, removed or cut off
    Verify(Where),
}

#[derive(Args)]
struct Where {
    /// The repository
    #[arg(default_value = ".")]
    repository: PathBuf,
}

#[derive(Args)]
struct StatusArgs {
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep it up to date until you press Ctrl-C, with a look every second or as often as you say
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = interval)]
    watch: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let time = length_of_time(text).ok_or("use for example 1s, 500ms or 1m")?;
    Ok(time.max(Duration::from_millis(100)))
}

/// The command line, whose help fits the terminal.
pub(crate) fn definition() -> clap::Command {
    HookCli::command().term_width(terminal::help_width())
}

/// Help and usage errors keep to the same conventions.
fn for_clap(colours: Colours) -> ColorChoice {
    match colours {
        Colours::Auto => ColorChoice::Auto,
        Colours::Always => ColorChoice::Always,
        Colours::Never => ColorChoice::Never,
    }
}

/// Runs the command line.
pub(crate) fn run(args: Vec<OsString>, environment: &Environment) -> ExitCode {
    let colours = Colours::of_arguments(&args);
    colours.use_for_messages(environment);
    let definition = definition().color(for_clap(colours));
    let parsed = definition.try_get_matches_from(args).and_then(|found| HookCli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to standard output and is not a failure. Either may hit a closed pipe.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let done = match cli.command {
        HookCommand::PreReceive { hook } => return pre_receive::run(&hook, environment),
        HookCommand::PostReceive { hook } => return post_receive::run(&hook, environment),
        HookCommand::As(args) => login::run(&args, environment),
        HookCommand::Install(args) => install::run(&args, environment),
        HookCommand::Uninstall(args) => uninstall::run(&args, environment),
        HookCommand::Enforce(args) => mode::run(WantedMode::Enforce, &args, environment),
        HookCommand::Observe(args) => mode::run(WantedMode::Observe, &args, environment),
        HookCommand::Doctor(args) => doctor::run(&args, environment),
        HookCommand::Status(args) => {
            let StatusArgs { place, json, watch } = args;
            status::run(&place.repository, json, watch, environment)
        }
        HookCommand::Raise { order, to } => operator::raise(&order, to, environment),
        HookCommand::Lower { order, to, expect } => operator::lower(&order, to, expect, environment),
        HookCommand::Evict(order) => operator::evict(&order, environment),
        HookCommand::Revoke(order) => revoke::run(&order, environment),
        HookCommand::Halt(args) => halt::run(Switch::Halt, &args, environment),
        HookCommand::Resume(args) => halt::run(Switch::Resume, &args, environment),
        HookCommand::Tokens { kind, order } => tokens::run(kind, &order, environment),
        HookCommand::Repair { place, yes, reason } => {
            repair::run(&place.repository, yes, reason.as_deref(), environment)
        }
        HookCommand::Rotate(place) => operator::rotate(&place.repository, environment),
        HookCommand::Audit { command: Some(AuditCommand::Verify(place)), .. } => {
            audit::verify(&place.repository, environment)
        }
        HookCommand::Stats(args) => stats::run(&args, environment),
        HookCommand::Audit { command: None, args } => audit::run(&args, environment),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::ReaderGone) => ExitCode::SUCCESS,
        Err(CommandError::Unsound) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        definition().debug_assert();
    }
}
