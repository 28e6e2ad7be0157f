//! The clone's pre-push hook, which scanners and Git LFS use.
//!
//! A push with a lease has one ref more than the user's, and may be sent twice. So git first does a dry run with only
//! the user's refs: then it runs the hook once, and with the usual input.

use crate::{
    client::Client,
    failure::Failure,
    git::{Git, run},
    store::{answer::PushAnswer, remote, sending::plain_push},
};
use git_fence_system::program::is_executable;
use std::ffi::OsString;

/// Whether git would run one: the file, or (since git 2.54) a command in the configuration.
pub(crate) fn is_there(git: &Git) -> bool {
    let file = git.ask(["rev-parse", "--git-path", "hooks/pre-push"]);
    file.is_ok_and(|file| is_executable(&git.dir.join(file)))
        || git.settings(&[], r"^hook\..*\.event$").iter().any(|(_, event)| event == "pre-push")
}

/// Runs the hook for what will be pushed. If the hook or git refuses, nothing was sent.
pub(crate) fn ask(client: &Client, refspecs: &[OsString], arguments: &[OsString]) -> Result<(), Failure> {
    let mut push = plain_push(&client.local.git, &[]);
    push.args(["--verify", "--dry-run"]).args(arguments).args(&client.remote.route.receive_pack).arg("--");
    push.arg(client.name_for_git()).args(refspecs);
    let ran = run(&mut push, &client.how().aloud());
    let ran = ran.map_err(Failure::CannotRunGit)?;
    match PushAnswer::of(&ran) {
        PushAnswer::Landed { .. } => Ok(()),
        PushAnswer::Refused { refs, verdict, said } => {
            Err(client.refused(&remote::refused(refs, verdict, said)).already_shown())
        }
        PushAnswer::NotSent(why) => Err(client.not_sent(why)),
        PushAnswer::Lost { .. } | PushAnswer::NoOptions | PushAnswer::NoAtomic => Err(refused()),
    }
}

pub(crate) fn refused() -> Failure {
    Failure::NotSent { why: "refused by the clone's pre-push hook".to_owned() }
}
