//! The push that moves refs of a lease, alone or together with the user's.

use crate::{
    answer::Answer,
    failure::Failure,
    git::{Git, How, run},
    local::Remote,
};
use git_fence_core::{FenceName, LeasePart, ObjectId};
use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
};

/// A push with a compare-and-swap for each ref of a lease that it moves: never `+`, never `--force`,
/// which would switch the check off, and always `--atomic`, without which the other refs land anyway.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    git: Git,
    remote: &'a Remote,
    fence: &'a FenceName,
    swaps: Vec<(LeasePart, Option<ObjectId>, ObjectId)>,
    /// Push options, ours and the user's.
    pub(crate) options: Vec<OsString>,
    /// What goes along: arguments for `git push`, and the user's refspecs.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) refspecs: Vec<OsString>,
    /// Pushed to by name, so that git updates the remote-tracking refs.
    pub(crate) by_name: bool,
    pub(crate) how: How,
}

impl<'a> Sending<'a> {
    /// A push to `remote` that finds the lease's objects in `objects`.
    pub(crate) fn to(remote: &'a Remote, fence: &'a FenceName, git: &Git, objects: &[&Path]) -> Sending<'a> {
        Sending {
            git: git.with_objects(objects),
            remote,
            fence,
            swaps: Vec::new(),
            options: Vec::new(),
            arguments: Vec::new(),
            refspecs: Vec::new(),
            by_name: false,
            how: How::default(),
        }
    }

    /// Moves a ref of the lease from `old` to `new`, if it is at `old`.
    pub(crate) fn swap(mut self, part: LeasePart, old: Option<&ObjectId>, new: &ObjectId) -> Sending<'a> {
        self.swaps.push((part, old.cloned(), new.clone()));
        self
    }

    /// Sends a push option along.
    pub(crate) fn option(mut self, option: impl Into<OsString>) -> Sending<'a> {
        self.options.push(option.into());
        self
    }

    /// Asks whether the lease is free. The ref that is pushed to cannot be where the lease is: this
    /// changes nothing, whether a gate answers or git itself refuses.
    pub(crate) fn ask(mut self, with: &ObjectId) -> Result<Answer, Failure> {
        self.refspecs.push(format!("{with}:{}", LeasePart::Ask.of(self.fence)).into());
        self.send()
    }

    pub(crate) fn send(&self) -> Result<Answer, Failure> {
        let mut push = plain_push(&self.git, &self.options);
        push.arg("--atomic");
        for (part, old, _) in &self.swaps {
            let old = old.as_ref().map_or(String::new(), ToString::to_string);
            push.arg(format!("--force-with-lease={}:{old}", part.of(self.fence)));
        }
        push.args(&self.arguments).arg("--");
        push.arg(if self.by_name { &self.remote.name } else { &self.remote.url }).args(&self.refspecs);
        for (part, _, new) in &self.swaps {
            push.arg(format!("{new}:{}", part.of(self.fence)));
        }
        let ran = run(&mut push, &self.how)
            .map_err(|e| Failure::broken(format!("git cannot be run: {e}"), "git must be in the PATH"))?;
        Ok(Answer::of(&ran))
    }
}

/// `git push`, without what the user has configured for pushes of their own, which is not for this one.
///
/// The options travel in the environment, which only this user can read: one of them is the holder's
/// secret, and everybody on the machine sees the arguments of a process. `-o` on the command line would
/// switch these off.
pub(crate) fn plain_push(git: &Git, options: &[OsString]) -> Command {
    let mut git = git.clone();
    let unset =
        [("push.followTags", "false"), ("push.gpgSign", "false"), ("push.negotiate", "false"), ("push.pushOption", "")];
    for (key, value) in unset {
        git.environment.set_last(key, OsStr::new(value));
    }
    for option in options {
        git.environment.set_last("push.pushOption", option);
    }
    git.command(["push", "--porcelain", "--no-verify", "--recurse-submodules=no"])
}
