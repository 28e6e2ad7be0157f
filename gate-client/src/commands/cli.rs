//! The command line of `git fence`.

use crate::{
    commands::{
        context::{Context, LeaseArgs, Target},
        push::{self, PushArgs},
        single::{self, Output},
    },
    failure::{Failure, NOT_OURS},
    run::{
        self, RunArgs,
        keeper::{self, KeeperArgs},
        signals,
        starter::Starter,
    },
    surroundings::Environment,
};
use clap::{Args, Parser, Subcommand};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    num::NonZero,
    process::ExitCode,
};

/// Push to a shared repository without stepping on each other
///
/// A lease says whose turn it is. It is kept in the remote itself, in refs/fence/. Every push under it carries
/// a token that grows, so the remote refuses a run that was paused and has lost its turn.
#[derive(Parser)]
#[command(name = "git fence", version)]
struct FenceCli {
    #[command(subcommand)]
    command: FenceCommand,
}

#[derive(Subcommand)]
enum FenceCommand {
    /// Run a command under the lease; if another run holds it, exit with code 0
    ///
    /// Every plain `git push` inside the command carries a fresh token. The exit code is that of the command, or
    /// 128+n if signal n killed it; 75 if the lease was lost; 69 if the remote cannot be reached; 2 for wrong
    /// usage; 126 if the command cannot be run; 127 if it is not found.
    Run(RunArgs),
    /// Push with a token: under the lease held here, or under one taken for this push
    Push(PushArgs),
    /// Take the lease and print its token; exit code 11 if another holds it
    Acquire {
        #[command(flatten)]
        single: Single,
        #[command(flatten)]
        wanted: LeaseArgs,
    },
    /// Renew the lease; exit code 12 if it has been taken over
    Renew(Single),
    /// Advance to the next token and print it
    Advance(Single),
    /// Release the lease
    Release(Single),
    /// Take the lease away from its holder
    Revoke {
        #[command(flatten)]
        single: Single,
        #[command(flatten)]
        wanted: LeaseArgs,
    },
    /// Show who holds the lease
    Status(Single),
    /// Show who held the lease, and why it changed hands
    Log {
        #[command(flatten)]
        single: Single,
        /// The number of entries
        #[arg(short = 'n', long, default_value = "20")]
        most: NonZero<usize>,
    },
    /// Report progress: the next heartbeat tells the remote, and --stall-after counts from here
    Progress {
        #[command(flatten)]
        single: Single,
        /// What has been done
        text: String,
    },
    /// Run as the process between `run` and its command
    #[command(hide = true)]
    Keeper(KeeperArgs),
}

#[derive(Args)]
struct Single {
    #[command(flatten)]
    place: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses the command line and runs the command.
pub(crate) fn run(args: Vec<OsString>, environment: Environment) -> ExitCode {
    let starter = Starter::find(args.first().map_or(OsStr::new(""), OsString::as_os_str), &environment);
    let cli = match FenceCli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to standard output and is not a failure. Printing fails on a closed pipe, which is ignored.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        FenceCommand::Keeper(args) => keeper::run(&args),
        FenceCommand::Run(args) => match Context::here(environment) {
            Ok(context) => run::run(&context, &args, starter),
            Err(failure) => {
                report(&failure, args.json);
                ExitCode::from(failure.exit_code())
            }
        },
        command => {
            signals::end_with_children(starter);
            single(&command, environment)
        }
    }
}

/// Runs a single command and prints its result.
fn single(command: &FenceCommand, environment: Environment) -> ExitCode {
    let json = match command {
        FenceCommand::Push(args) => args.json,
        FenceCommand::Renew(single)
        | FenceCommand::Advance(single)
        | FenceCommand::Release(single)
        | FenceCommand::Status(single) => single.json,
        FenceCommand::Acquire { single, .. }
        | FenceCommand::Revoke { single, .. }
        | FenceCommand::Log { single, .. }
        | FenceCommand::Progress { single, .. } => single.json,
        FenceCommand::Run(_) | FenceCommand::Keeper(_) => false,
    };
    let done = Context::here(environment).and_then(|context| -> Result<Output, Failure> {
        match command {
            FenceCommand::Push(args) => push::push(&context, args),
            FenceCommand::Acquire { single, wanted } => single::acquire(&context, &single.place, wanted),
            FenceCommand::Renew(single) => single::renew(&context, &single.place),
            FenceCommand::Advance(single) => single::advance(&context, &single.place),
            FenceCommand::Release(single) => single::release(&context, &single.place),
            FenceCommand::Revoke { single, wanted } => single::revoke(&context, &single.place, wanted),
            FenceCommand::Status(single) => single::status(&context, &single.place),
            FenceCommand::Log { single, most } => single::log(&context, &single.place, most.get()),
            FenceCommand::Progress { single, text } => single::progress(&context, &single.place, text),
            FenceCommand::Run(_) | FenceCommand::Keeper(_) => Ok(Output::new("", &())),
        }
    });
    match done {
        Ok(output) => {
            output.print(json);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let code = match (&failure, command) {
                (Failure::Lost { .. }, FenceCommand::Renew(_) | FenceCommand::Advance(_)) => NOT_OURS,
                _ => failure.exit_code(),
            };
            report(&failure, json);
            ExitCode::from(code)
        }
    }
}

/// Prints a failure: prose for people, and JSON for programs.
pub(crate) fn report(failure: &Failure, json: bool) {
    if json {
        let _ = writeln!(io::stdout(), "{}", failure.json());
    }
    let _ = io::stderr().write_all(failure.prose().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        <FenceCli as clap::CommandFactory>::command().debug_assert();
    }
}
