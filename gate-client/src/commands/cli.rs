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
/// A lease says whose turn it is. It lives in the remote itself, in refs/fence/, and every push made
/// under it carries a token that grows: a run that was paused and lost its turn is refused by the
/// remote, whatever it believes.
#[derive(Parser)]
#[command(name = "git fence", version)]
struct FenceCli {
    #[command(subcommand)]
    command: FenceCommand,
}

#[derive(Subcommand)]
enum FenceCommand {
    /// Hold the lease around a command: whoever comes second leaves, with exit code 0
    ///
    /// Plain `git push` inside the command carries a fresh token every time. The command's exit code is
    /// passed on; killed by signal n is 128+n. The lease was lost: 75. The remote cannot be reached: 69.
    /// Wrong usage: 2. The command cannot be run: 126, is not found: 127.
    Run(RunArgs),
    /// Push with a token: under the lease that is held here, or under one taken for this push
    Push(PushArgs),
    /// Take the lease, and print its token; exit code 11 when somebody else holds it
    Acquire {
        #[command(flatten)]
        single: Single,
        #[command(flatten)]
        wanted: LeaseArgs,
    },
    /// Say that the holder is alive; exit code 12 when the lease is not ours any more
    Renew(Single),
    /// Go on to the next token, and print it
    Advance(Single),
    /// Give the lease back
    Release(Single),
    /// Take the lease away from whoever has it
    Revoke {
        #[command(flatten)]
        single: Single,
        #[command(flatten)]
        wanted: LeaseArgs,
    },
    /// Show who has the lease
    Status(Single),
    /// Show who had it, and why it changed hands
    Log {
        #[command(flatten)]
        single: Single,
        /// How many
        #[arg(short = 'n', long, default_value = "20")]
        most: NonZero<usize>,
    },
    /// Mark progress: the next heartbeat tells the remote, and --stall-after counts from here
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
    /// For programs: JSON
    #[arg(long)]
    json: bool,
}

/// Runs what the command line says.
pub(crate) fn run(args: Vec<OsString>, environment: Environment) -> ExitCode {
    let starter = Starter::find(args.first().map_or(OsStr::new(""), OsString::as_os_str), &environment);
    let cli = match FenceCli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to standard output and is no failure; both may meet a closed pipe.
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

/// A command that does one thing and says what came of it.
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
        Ok(said) => {
            said.say(json);
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

/// A person reads prose, a program reads JSON.
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
    fn the_command_line_is_consistent() {
        <FenceCli as clap::CommandFactory>::command().debug_assert();
    }
}
