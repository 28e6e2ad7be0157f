//! The command line of `git fence`.

use crate::{
    commands::{
        context::{Context, LeaseArgs, Target, WaitArgs, user_at_host},
        halting::{self, HaltArgs, Switch},
        push::{self, PushArgs},
        single::{self, Output},
        status,
        store::StoreCommand,
        ticks::TicksArgs,
        watching::watch,
    },
    demo::{self, DemoArgs},
    failure::{Failure, LOST, NOT_OURS},
    report::Report,
    run::{
        self, RunArgs,
        keeper::{self, KeeperArgs},
        signals::Interrupt,
        starter::Starter,
    },
    surroundings::Environment,
};
use clap::{
    Args, ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use git_fence_system::{colours::Colours, signals::exit_by, terminal};
use std::{
    ffi::{OsStr, OsString},
    num::NonZero,
    process::ExitCode,
};

/// Push to a shared repository without stepping on each other
///
/// A lease says whose turn it is. It is kept in the remote itself, in refs/fence/. Every push under it carries
/// a token that grows, so the remote refuses a run that was paused and has lost its turn.
#[derive(Parser)]
#[command(name = "git fence", bin_name = "git fence", version)]
struct FenceCli {
    #[command(subcommand)]
    command: FenceCommand,
    /// When to use colours; auto is on a terminal, unless NO_COLOR is set
    // Read before the line is parsed, so that messages about the line follow it.
    #[arg(long, global = true, value_name = "WHEN", value_parser = Colours::WORDS, default_value = "auto")]
    color: String,
}

#[derive(Subcommand)]
enum FenceCommand {
    /// Run a command under the lease; if another run holds it, exit with code 0
    ///
    /// Every plain `git push` inside the command carries a fresh token. The exit code is that of the command, or
    /// 128+n if signal n killed it; 75 if the lease was lost; 69 if the remote cannot be reached; 77 if it denies
    /// access or would ask for a password; 2 for wrong usage; 126 if the command cannot be run; 127 if it is not found.
    Run(Box<RunArgs>),
    /// Push with a token: under the lease held here, or under one taken for this push
    Push(PushArgs),
    /// Take the lease and print its token; exit code 11 if another holds it
    Acquire {
        #[command(flatten)]
        single: Single,
        #[command(flatten)]
        wanted: LeaseArgs,
        #[command(flatten)]
        wait: WaitArgs,
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
    /// Stop everybody who works under leases: nobody gets the lease of a halted fence until it is resumed
    ///
    /// A run that holds it ends its command at its next heartbeat, with exit code 75. Halting twice is harmless.
    Halt(HaltArgs),
    /// End a halt: whoever wants the lease can take it again
    Resume(HaltArgs),
    /// Show who holds the lease
    Status {
        #[command(flatten)]
        single: Single,
        /// Keep it up to date until you press Ctrl-C, with a look every 2 seconds or as often as you say
        #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
        watch: Option<String>,
    },
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
    /// Show the scheduled jobs of a fence: the last tick, how it ended, and the next one
    Ticks(TicksArgs),
    /// Keep leases in a database that all machines reach: try one, prepare it, move leases there or back
    #[command(subcommand)]
    Store(StoreCommand),
    /// Show the point: an agent freezes in mid-push, another takes over, the first wakes up too late
    ///
    /// Real processes on a throw-away remote; about ten seconds, and nothing is left behind. In a terminal it is told line
    /// by line, in a pipe only the result. The exit code is 0 if the late push was refused, 1 if it landed, and 69 if the
    /// demo could not be played.
    Demo(DemoArgs),
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

/// The command line, whose help fits the terminal.
pub(crate) fn definition() -> clap::Command {
    FenceCli::command().term_width(terminal::help_width())
}

/// Help and usage errors keep to the same conventions.
fn for_clap(colours: Colours) -> ColorChoice {
    match colours {
        Colours::Auto => ColorChoice::Auto,
        Colours::Always => ColorChoice::Always,
        Colours::Never => ColorChoice::Never,
    }
}

/// Parses the command line and runs the command.
pub(crate) fn run(args: Vec<OsString>, environment: Environment) -> ExitCode {
    let starter = Starter::find(args.first().map_or(OsStr::new(""), OsString::as_os_str), &environment);
    let colours = Colours::of_arguments(&args);
    colours.use_for_messages(&environment);
    let definition = definition().color(for_clap(colours));
    let parsed = definition.try_get_matches_from(args).and_then(|found| FenceCli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(mut e) => {
            // Git takes `git fence --help` for itself, and looks for a manual page that may not be installed.
            if e.kind() == ErrorKind::InvalidSubcommand {
                let tip = "git fence -h  lists the commands".to_owned().into();
                e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            // Help goes to standard output and is not a failure. Printing fails on a closed pipe, which is ignored.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        FenceCommand::Keeper(args) => keeper::run(&args),
        FenceCommand::Demo(args) => demo::run(&args, colours, &environment),
        FenceCommand::Run(args) => match Context::here(environment, Interrupt::default()) {
            Ok(context) => run::run(&context, &args, starter),
            Err(failure) => fail(&failure, failure.exit_code(), args.json, &user_at_host()),
        },
        command => {
            let interrupt = Interrupt::listen(starter);
            single(&command, environment, interrupt)
        }
    }
}

/// Runs a single command and prints its result.
fn single(command: &FenceCommand, environment: Environment, interrupt: Interrupt) -> ExitCode {
    let (json, owner, place) = command.caller();
    if let FenceCommand::Store(store) = command
        && let Some(done) = store.run_anywhere()
    {
        let me = user_at_host();
        return match done {
            Ok(output) => {
                output.print(json, &me);
                ExitCode::SUCCESS
            }
            Err(failure) => fail(&failure, failure.exit_code(), json, &me),
        };
    }
    let context = match Context::here(environment, interrupt) {
        Ok(context) => context,
        Err(failure) => return fail(&failure, failure.exit_code(), json, &user_at_host()),
    };
    match command {
        FenceCommand::Halt(args) => return switch(&context, Switch::Halt, args),
        FenceCommand::Resume(args) => return switch(&context, Switch::Resume, args),
        _ => {}
    }
    // Asked before the command: afterwards its lease may be gone.
    let me = context.me(owner, &place);
    let done = match command {
        FenceCommand::Status { watch: Some(every), .. } => watch(
            every,
            || command.run(&context).map(|output| output.text(json, &me)),
            |failure| if json { in_json(failure, failure.exit_code(), &me).json() + "\n" } else { failure.prose() },
        ),
        command => command.run(&context).map(|output| output.print(json, &me)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = match (&failure, command) {
                (Failure::Lost { .. }, FenceCommand::Renew(_) | FenceCommand::Advance(_)) => NOT_OURS,
                // Whoever pushes must stop, whether it held a lease or wanted one.
                (Failure::Halted { .. }, FenceCommand::Push(_)) => LOST,
                _ => failure.exit_code(),
            };
            let code = fail(&failure, code, json, &me);
            if let Failure::Interrupted { signal, .. } = failure {
                exit_by(signal);
            }
            code
        }
    }
}

/// Halts or resumes fences, and prints what came of each. The exit code is that of the first that failed.
fn switch(context: &Context, which: Switch, args: &HaltArgs) -> ExitCode {
    let me = context.me(args.owner.as_deref(), &Target::default());
    let fences = match halting::turn(context, which, args) {
        Ok(fences) => fences,
        Err(failure) => return fail(&failure, failure.exit_code(), args.json, &me),
    };
    let mut code = None;
    for (fence, done) in fences {
        match done {
            Ok(output) => output.print(args.json, &me),
            Err(failure) => {
                if args.json {
                    let mut report = in_json(&failure, failure.exit_code(), &me);
                    report.fence = Some(fence);
                    report.print();
                }
                failure.print();
                code = code.or(Some(failure.exit_code()));
            }
        }
    }
    code.map_or(ExitCode::SUCCESS, ExitCode::from)
}

impl FenceCommand {
    /// Whether JSON is wanted, the owner's name if it was given, and the fence.
    fn caller(&self) -> (bool, Option<&str>, Target) {
        match self {
            FenceCommand::Push(args) => (args.json, args.wanted.owner.as_deref(), args.place()),
            FenceCommand::Acquire { single, wanted, .. } | FenceCommand::Revoke { single, wanted } => {
                (single.json, wanted.owner.as_deref(), single.place.clone())
            }
            FenceCommand::Renew(single)
            | FenceCommand::Advance(single)
            | FenceCommand::Release(single)
            | FenceCommand::Status { single, .. }
            | FenceCommand::Log { single, .. }
            | FenceCommand::Progress { single, .. } => (single.json, None, single.place.clone()),
            FenceCommand::Ticks(args) => args.caller(),
            FenceCommand::Halt(args) | FenceCommand::Resume(args) => {
                (args.json, args.owner.as_deref(), Target::default())
            }
            FenceCommand::Store(store) => (store.json(), None, Target::default()),
            FenceCommand::Run(_) | FenceCommand::Demo(_) | FenceCommand::Keeper(_) => (false, None, Target::default()),
        }
    }

    fn run(&self, context: &Context) -> Result<Output, Failure> {
        match self {
            FenceCommand::Push(args) => push::push(context, args),
            FenceCommand::Acquire { single, wanted, wait } => single::acquire(context, &single.place, wanted, wait),
            FenceCommand::Renew(single) => single::renew(context, &single.place),
            FenceCommand::Advance(single) => single::advance(context, &single.place),
            FenceCommand::Release(single) => single::release(context, &single.place),
            FenceCommand::Revoke { single, wanted } => single::revoke(context, &single.place, wanted),
            FenceCommand::Status { single, .. } => status::status(context, &single.place),
            FenceCommand::Log { single, most } => single::log(context, &single.place, most.get()),
            FenceCommand::Progress { single, text } => single::progress(context, &single.place, text),
            FenceCommand::Ticks(args) => args.run(context),
            FenceCommand::Store(store) => store.run(context),
            FenceCommand::Run(_)
            | FenceCommand::Demo(_)
            | FenceCommand::Keeper(_)
            | FenceCommand::Halt(_)
            | FenceCommand::Resume(_) => Err(Failure::usage("not a single command", "git fence -h")),
        }
    }
}

/// Prints a failure, prose for people and JSON for programs, and returns its exit code.
pub(crate) fn fail(failure: &Failure, code: u8, json: bool, me: &str) -> ExitCode {
    if json {
        in_json(failure, code, me).print();
    }
    failure.print();
    ExitCode::from(code)
}

fn in_json(failure: &Failure, code: u8, me: &str) -> Report {
    let mut report = Report { exit_code: Some(code), ..Report::of(failure) };
    report.by(me);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        definition().debug_assert();
    }
}
