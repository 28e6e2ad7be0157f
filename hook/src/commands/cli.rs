//! The command line.

use crate::{
    commands::{
        audit::{self, select::AuditArgs},
        doctor,
        failure::CommandError,
        install::{self, uninstall},
        operator::{
            self, OperatorArgs, repair, revoke,
            tokens::{self, KindArg},
        },
        stats::{self, StatsArgs},
        status,
    },
    host::surroundings::Environment,
    push::{post_receive, pre_receive},
};
use clap::{Args, Parser, Subcommand};
use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// The gate of git-fence, for the server side.
///
/// Git runs it as the pre-receive hook of a repository and it refuses every push whose fencing
/// token is not above the newest that has written there; as post-receive it records what was
/// written. The commands below put it in place and show what it does.
#[derive(Parser)]
#[command(name = "git-fence-hook", version, max_term_width = 100)]
struct HookCli {
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Subcommand)]
enum HookCommand {
    /// Put the gate into a repository: the hook, push options, and the log it keeps
    Install(install::InstallArgs),
    /// Take the gate out again: the hook that was there before comes back, the log stays
    Uninstall(uninstall::UninstallArgs),
    /// Find what makes the fence absent, weaker or jammed, and how to mend it; exit code 1 if anything does
    Doctor(doctor::DoctorArgs),
    /// Show the marks, and the push that is in flight if there is one
    Status(ReportArgs),
    /// Show what the gate decided, oldest first
    #[command(args_conflicts_with_subcommands = true)]
    Audit {
        #[command(subcommand)]
        command: Option<AuditCommand>,
        #[command(flatten)]
        args: AuditArgs,
    },
    /// Count what the log says: accepted, refused, waits, and what observing let through
    Stats(StatsArgs),
    /// Raise a mark, so that no token at or below it writes any more: after restoring a backup
    Raise {
        #[command(flatten)]
        order: OperatorArgs,
        /// The new mark
        #[arg(long)]
        to: u64,
    },
    /// Lower a mark, so that tokens above it may be used again: after a mistaken huge token
    Lower {
        #[command(flatten)]
        order: OperatorArgs,
        /// The new mark
        #[arg(long)]
        to: u64,
        /// The mark as you know it: if it is another by now, nothing is changed
        #[arg(long, value_name = "MARK")]
        expect: u64,
    },
    /// End the push that is in flight, so that others need not wait for it
    Evict(OperatorArgs),
    /// Take a lease away from its holder, so that another may have it
    Revoke(OperatorArgs),
    /// Change the kind of tokens that a fence takes; a lease that is held is taken away
    Tokens {
        /// Tokens of the pushers' own, or of leases
        kind: KindArg,
        #[command(flatten)]
        order: OperatorArgs,
    },
    /// Move the log's lines so far to a file of their own
    Rotate(Where),
    /// Put the fence's own files right: says what it would do, and does it with --yes
    Repair {
        #[command(flatten)]
        place: Where,
        /// Do it
        #[arg(long)]
        yes: bool,
        /// Why, for the record: needed where lines of the log are lost by it
        #[arg(long)]
        reason: Option<String>,
    },
    /// What git runs: reads the push from standard input and the environment
    #[command(hide = true)]
    PreReceive { hook: Vec<OsString> },
    /// What git runs after the push: reads the refs that it has updated from standard input
    #[command(hide = true)]
    PostReceive { hook: Vec<OsString> },
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check every line of the log: that none was changed, removed or cut off
    Verify(Where),
}

#[derive(Args)]
struct Where {
    /// The repository
    #[arg(default_value = ".")]
    repository: PathBuf,
}

#[derive(Args)]
struct ReportArgs {
    #[command(flatten)]
    place: Where,
    /// For programs: JSON
    #[arg(long)]
    json: bool,
}

/// Runs what the command line says.
pub(crate) fn run(args: Vec<OsString>, environment: &Environment) -> ExitCode {
    let cli = match HookCli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to standard output and is no failure; both may meet a closed pipe.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let done = match cli.command {
        HookCommand::PreReceive { hook } => return pre_receive::run(&hook, environment),
        HookCommand::PostReceive { hook } => return post_receive::run(&hook, environment),
        HookCommand::Install(asked) => install::run(&asked, environment),
        HookCommand::Uninstall(asked) => uninstall::run(&asked, environment),
        HookCommand::Doctor(asked) => doctor::run(&asked, environment),
        HookCommand::Status(report) => status::run(&report.place.repository, report.json, environment),
        HookCommand::Raise { order, to } => operator::raise(&order, to, environment),
        HookCommand::Lower { order, to, expect } => operator::lower(&order, to, expect, environment),
        HookCommand::Evict(order) => operator::evict(&order, environment),
        HookCommand::Revoke(order) => revoke::run(&order, environment),
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
    fn the_command_line_is_consistent() {
        <HookCli as clap::CommandFactory>::command().debug_assert();
    }
}
