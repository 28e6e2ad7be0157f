//! `git fence push --token N`: a push with a token of the user's own, as an option or in the commit.

use crate::{
    client::Client,
    commands::{
        context::Context,
        push::{PushArgs, fetches_leases, output_of, plain},
        single::Output,
    },
    failure::{Cause, Failure, of_file},
    files::home,
    git::{How, run},
    report::{Report, outcome::Outcome},
};
use git_fence_core::{Code, TRAILER, Token, text};
use git_fence_system::env;
use std::{
    ffi::{OsStr, OsString},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

/// A push with a token of the user's own, without a lease.
pub(super) fn push(
    context: &Context,
    client: &Client,
    args: &PushArgs,
    token: Token,
    mut refspecs: Vec<OsString>,
) -> Result<Output, Failure> {
    if args.dry_run {
        return own_dry_run(context, client, args, token, refspecs);
    }
    if args.trailer {
        refspecs = stamp(context, client, &refspecs, token)?;
    }
    args.run_hook(client, &refspecs)?;
    let objects = tempfile::tempdir_in(made(&home(&client.local))?);
    let objects = objects.map_err(|e| of_file(&home(&client.local), e))?;
    // A token in the commit needs no option.
    let options = if args.trailer { Vec::new() } else { vec![crate::token_option(&client.fence, token)] };
    let owner = context.me(args.wanted.owner.as_deref(), &args.place());
    let pushed = client.push_with_own_token(token, &owner, objects.path().to_owned(), &options, &mut |sending| {
        sending.refspecs.clone_from(&refspecs);
        sending.options.extend_from_slice(&args.options);
        sending.arguments = args.arguments();
        sending.by_name = client.is_named() && !fetches_leases(&context.local.git, &client.remote.name);
        sending.how = sending.how.aloud();
    });
    match pushed {
        Err(Failure::NoOptions { .. }) => Err(Failure::broken(
            format!("the remote {} does not accept push options", text::in_quotes(&client.remote.name)),
            "put the token into the commit message instead:  git fence push --token N --trailer",
        )),
        // A token that is too old does no harm where there is nothing to push.
        Err(Failure::Refused { code: Some(Code::Stale), why, said }) => {
            match own_dry_run(context, client, args, token, refspecs) {
                Ok(output) if output.is_of(Outcome::UpToDate) => Ok(output),
                _ => Err(Failure::Refused { code: Some(Code::Stale), why, said }),
            }
        }
        pushed => output_of(pushed?, client),
    }
}

/// What a push with a token of the user's own would do.
fn own_dry_run(
    context: &Context,
    client: &Client,
    args: &PushArgs,
    token: Token,
    mut refspecs: Vec<OsString>,
) -> Result<Output, Failure> {
    // In a dry run git runs the hook.
    let verify = if args.no_verify { "--no-verify" } else { "--verify" };
    let mut push = client.local.git.command(["push", "--porcelain", verify, "--dry-run"]);
    push.args(args.options.iter().flat_map(|option| [OsStr::new("-o"), option]));
    if args.trailer {
        refspecs = stamp(context, client, &refspecs, token)?;
    } else {
        push.arg("-o").arg(crate::token_option(&client.fence, token));
    }
    push.args(args.arguments()).arg("--").arg(&client.remote.name).args(refspecs);
    let report = Report::new(Outcome::WouldLand, format!("would land with token {token}"));
    plain(&mut push, client, Report { token: Some(token), ..report })
}

/// The directory, made if it is not there.
fn made(dir: &Path) -> Result<&Path, Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map(|()| dir).map_err(|e| of_file(dir, e))
}

/// Puts the token into the message of the commit at the tip of a branch: the branch moves to a copy of the
/// commit with the trailer, both locally and in the remote.
fn stamp(context: &Context, client: &Client, refspecs: &[OsString], token: Token) -> Result<Vec<OsString>, Failure> {
    let git = &context.local.git;
    let one = || {
        Failure::usage(
            "--trailer needs exactly one branch of this clone",
            "name it:  git fence push --token N --trailer origin main",
        )
    };
    let [refspec] = refspecs else { return Err(one()) };
    let refspec = refspec.to_str().ok_or_else(one)?;
    let (force, refspec) = refspec.strip_prefix('+').map_or(("", refspec), |rest| ("+", rest));
    let (from, to) = refspec.split_once(':').unwrap_or((refspec, refspec));
    let branch = git.ask(["rev-parse", "--symbolic-full-name", from]).map_err(|_| one())?;
    if !branch.starts_with("refs/heads/") {
        return Err(one());
    }
    let failed = |cause: Cause| {
        Failure::broken(format!("cannot add the trailer to '{from}'"), "nothing was pushed").because(cause)
    };
    let old = git.ask(["rev-parse", "--verify", &branch]).map_err(|e| failed(e.into()))?;
    let trailer = format!("{TRAILER}: {}:{token}", client.fence);
    let mut amend =
        git.command(["-c", "trailer.ifexists=replace", "interpret-trailers", "--if-exists=replace", "--trailer"]);
    amend.arg(&trailer);
    let message = git.ask(["log", "-1", "--format=%B", &old]).map_err(|e| failed(e.into()))?;
    let file = tempfile::NamedTempFile::new().map_err(|e| failed(e.into()))?;
    std::fs::write(file.path(), message + "\n").map_err(|e| failed(e.into()))?;
    amend.arg(file.path());
    let message = run(&mut amend, &How::default()).map_err(|e| failed(e.into()))?;
    std::fs::write(file.path(), message.stdout).map_err(|e| failed(e.into()))?;
    let new = stamped_copy(context, &old, file.path()).map_err(failed)?;
    git.ask(["update-ref", "-m", "git fence: stamped with a token", &branch, &new, &old])
        .map_err(|e| failed(e.into()))?;
    let to = if to.starts_with("refs/") { to.to_owned() } else { format!("refs/heads/{to}") };
    Ok(vec![format!("{force}{new}:{to}").into()])
}

/// A copy of the commit with the same tree, parents and author and another message.
fn stamped_copy(context: &Context, old: &str, message: &Path) -> Result<String, Cause> {
    let git = &context.local.git;
    let output = git.ask(["log", "-1", "--format=%T%n%P%n%an%n%ae%n%ad", "--date=raw", old])?;
    let lines: Vec<&str> = output.lines().collect();
    let [tree, parents, name, email, date] = lines[..] else { return Err("unexpected output of git log".into()) };
    let mut copy = git.clone();
    copy.environment.set(env::GIT_AUTHOR_NAME, name);
    copy.environment.set(env::GIT_AUTHOR_EMAIL, email);
    copy.environment.set(env::GIT_AUTHOR_DATE, date);
    let mut args: Vec<OsString> = vec!["commit-tree".into(), tree.into()];
    for parent in parents.split_whitespace() {
        args.extend(["-p".into(), parent.into()]);
    }
    args.extend(["-F".into(), message.as_os_str().to_owned()]);
    Ok(copy.ask(args)?)
}
