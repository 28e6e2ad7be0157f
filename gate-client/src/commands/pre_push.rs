//! The clone's pre-push hook: scanners and Git LFS live there.
//!
//! The push that carries a lease has a ref more than the user's, and may be sent twice. So git is asked to try the
//! user's refs alone first, without sending anything: then it runs the hook, once and with its own words.

use crate::{
    failure::Failure,
    git::{Git, How, run},
    lease::client::Client,
    store::{answer::PushAnswer, remote, sending::plain_push},
};
use git_fence_system::program::is_executable;
use std::ffi::OsString;

/// Whether git would run one: the file, or (from 2.54 on) a command in the configuration.
pub(crate) fn is_there(git: &Git) -> bool {
    let file = git.ask(["rev-parse", "--git-path", "hooks/pre-push"]);
    file.is_ok_and(|file| is_executable(&git.dir.join(file)))
        || git.settings(&[], r"^hook\..*\.event$").iter().any(|(_, event)| event == "pre-push")
}

/// Lets the hook see what is about to be pushed. Where it or git says no, nothing was sent.
pub(crate) fn ask(client: &Client, refspecs: &[OsString], arguments: &[OsString]) -> Result<(), Failure> {
    let mut push = plain_push(&client.local.git, &[]);
    push.args(["--verify", "--dry-run"]).args(arguments).args(&client.remote.route.receive_pack).arg("--");
    push.arg(client.name_for_git()).args(refspecs);
    let ran = run(&mut push, &How { aloud: true, ..client.how() });
    let ran = ran.map_err(Failure::CannotRunGit)?;
    match PushAnswer::of(&ran) {
        PushAnswer::Landed { .. } => Ok(()),
        PushAnswer::Refused { refs, verdict } => Err(client.refused(&remote::refused(refs, verdict))),
        PushAnswer::NotSent(why) => Err(client.not_sent(why)),
        PushAnswer::Lost { .. } | PushAnswer::NoOptions | PushAnswer::NoAtomic => Err(refused()),
    }
}

pub(crate) fn refused() -> Failure {
    Failure::NotSent { why: "the clone's pre-push hook has refused it".to_owned() }
}
