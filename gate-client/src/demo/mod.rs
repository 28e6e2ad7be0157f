//! `git fence demo`: the point of git-fence in ten seconds, with real processes on a throw-away remote.
//!
//! Two agents want to write. The first is frozen in the middle of its push, after the remote has checked its token and
//! before the branch moves. The second takes over and writes. Then the first wakes up and goes on. The play is the same
//! with the fence, without any hook, and with the usual hook; only what becomes of the late push differs, and that is read
//! from the remote's refs, not assumed.
//!
//! Called by the command line. Nothing here may touch the user's own repositories, configuration or processes, and nothing
//! may be left behind.

mod agent;
mod ending;
mod play;
mod programs;
mod stage;
mod troupe;
mod voice;

use crate::{
    demo::{
        play::{Kind, Play},
        programs::Programs,
        stage::Stage,
        troupe::Troupe,
        voice::Voice,
    },
    failure::{Failure, UNREACHABLE},
    surroundings::Environment,
};
use clap::Args;
use git_fence_system::{colours::Colours, env};
use std::process::ExitCode;

/// The promise did not hold.
const BROKEN: u8 = 1;
/// The play could not be given, so it says nothing.
const NOT_PLAYED: u8 = UNREACHABLE;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Play it with the usual hook, which compares the token, stores it and exits: the late push lands, exit code 1
    #[arg(long, conflicts_with = "hookless")]
    without_fence: bool,
    /// Play it on a remote that runs no hook: git itself refuses the late push
    #[arg(long)]
    hookless: bool,
}

impl DemoArgs {
    fn kind(&self) -> Kind {
        match (self.without_fence, self.hookless) {
            (true, _) => Kind::UsualHook,
            (false, true) => Kind::Hookless,
            (false, false) => Kind::Fence,
        }
    }
}

/// Gives the play. The exit code says whether the promise held.
pub(crate) fn run(args: &DemoArgs, colours: Colours, environment: &Environment) -> ExitCode {
    let voice = Voice::new(colours, environment);
    match play(args.kind(), &voice, environment) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(BROKEN),
        Err(failure) => {
            failure.print();
            ExitCode::from(NOT_PLAYED)
        }
    }
}

/// Returns whether the promise held.
fn play(kind: Kind, voice: &Voice, environment: &Environment) -> Result<bool, Failure> {
    let programs = Programs::find(environment, voice)?;
    let stage = Stage::set(kind, &programs, environment, Troupe::gather()?)?;
    Play { kind, stage: &stage, voice, by_cargo: environment.get(env::CARGO).is_some() }.perform()
}
