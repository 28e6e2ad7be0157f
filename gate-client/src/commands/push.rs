//! `git fence push`: a push with a token.

use crate::{
    client::Client,
    commands::{
        context::{Context, LeaseArgs, Target, WaitArgs, shown},
        own::still_held,
        pre_push, push_each, push_own,
        single::Output,
    },
    failure::Failure,
    git::{Git, How, run},
    lease::{
        held::{LeaseDir, TakenBy},
        pushing::Moved,
    },
    report::{Report, outcome::Outcome},
    run::watch::note,
    store::{
        answer::{PushAnswer, RefAnswer},
        remote,
        sending::{Sending, plain_push},
    },
};
use clap::Args;
use git_fence_core::{HolderMove, Token, text};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::Command,
};

#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    /// The fence, or a member of a family, as in pr/7 [default: that of the enclosing run, or repo]
    #[arg(long, value_name = "NAME")]
    fence: Option<String>,
    /// The fence of this branch, in the family 'branch': short for --fence branch/X
    #[arg(long, value_name = "X", conflicts_with = "fence")]
    branch: Option<OsString>,
    /// Push each branch under the lease of its own fence, in the family 'branch': one push after the other
    #[arg(long, conflicts_with_all = ["fence", "branch", "token", "tags"])]
    per_branch: bool,
    /// Where the lease is kept: the URL of a store, or 'remote' [default: GIT_FENCE_STORE, or fence.store, or the remote]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: LeaseArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Push with this token, from your own lease service, and take no lease
    #[arg(long, value_name = "N", value_parser = parse_token)]
    token: Option<Token>,
    /// With --token: put the token into the commit message instead of a push option
    #[arg(long, requires = "token")]
    pub(super) trailer: bool,
    /// Allow non-fast-forward updates: adds a '+' to every refspec
    #[arg(short, long)]
    force: bool,
    /// Push all tags too
    #[arg(long)]
    tags: bool,
    /// Delete the named refs
    #[arg(short, long)]
    delete: bool,
    /// Push only if the ref has the expected value, as for git push
    #[arg(long, value_name = "REF:EXPECT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    force_with_lease: Vec<OsString>,
    /// Only show what would be pushed; no token is spent
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Do not run the clone's pre-push hook
    #[arg(long)]
    pub(super) no_verify: bool,
    /// A push option for the server
    #[arg(short = 'o', long = "push-option", value_name = "OPTION")]
    pub(super) options: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The remote, by name or URL
    remote: Option<String>,
    /// What to push [default: the current branch]
    refspecs: Vec<OsString>,
}

fn parse_token(text: &str) -> Result<Token, String> {
    Token::parse(text.as_bytes()).map_err(|e| e.to_string())
}

/// Pushes under the lease held here, or under one that is taken for this push and released by it.
pub(crate) fn push(context: &Context, args: &PushArgs) -> Result<Output, Failure> {
    if args.per_branch { push_each::push(context, args) } else { push_one(context, args) }
}

pub(super) fn push_one(context: &Context, args: &PushArgs) -> Result<Output, Failure> {
    let place = args.place();
    let client = context.client(&place)?;
    let refspecs = args.all_refspecs(context)?;
    args.wait.length()?;
    if args.dry_run && args.token.is_none() {
        return dry_run(&client, &refspecs, args);
    }
    if let Some(token) = args.token {
        return push_own::push(context, &client, args, token, refspecs);
    }
    // Before taking a lease: a scanner may be slow.
    args.run_hook(&client, &refspecs)?;
    let mut along = |sending: &mut Sending<'_>| {
        sending.refspecs.clone_from(&refspecs);
        sending.options.extend_from_slice(&args.options);
        sending.arguments = args.arguments();
        // By name, so that git updates the remote-tracking refs.
        sending.by_name = client.is_named() && !fetches_leases(&context.local.git, &client.remote.name);
        sending.how = sending.how.aloud();
    };
    match context.held(&place) {
        Ok((client, dir)) => {
            let client = context.gives_back(&client);
            let pushed = client.push_held(&dir, HolderMove::Advance, &mut along);
            let pushed = pushed.and_then(|moved| output_of(moved, &client));
            if pushed.is_ok() { pushed } else { context.unless_interrupted(&client, None, pushed) }
        }
        Err(Failure::Usage { .. }) => push_under_own_lease(context, &client, args, &mut along),
        Err(other) => Err(other),
    }
}

/// Pushes under a lease that is taken for this push and released by it.
fn push_under_own_lease(
    context: &Context,
    client: &Client,
    args: &PushArgs,
    along: &mut dyn FnMut(&mut Sending<'_>),
) -> Result<Output, Failure> {
    let request = context.lease_request(&args.wanted, TakenBy::Push)?;
    let client = context.gives_back(client);
    let taken = context.take_within(&client, &request, args.wait.length()?);
    let dir = taken.as_ref().ok().cloned();
    let dir = context.unless_interrupted(&client, dir.as_ref(), taken)?;
    let pushed = client.push_held(&dir, HolderMove::Release, along).and_then(|moved| output_of(moved, &client));
    if pushed.is_ok() {
        dir.remove();
        return pushed;
    }
    let pushed = context.unless_interrupted(&client, Some(&dir), pushed);
    if let Err(failure) = &pushed
        && !matches!(failure, Failure::Interrupted { .. })
    {
        give_back(&client, &dir);
    }
    pushed
}

/// Whether the remote's leases are fetched into this clone, as in a mirror. Git would then update the clone's
/// copy of the pushed lease, whose objects this clone does not have.
pub(super) fn fetches_leases(git: &Git, remote: &str) -> bool {
    let fetched = git.ask(["config", "--get-all", &format!("remote.{remote}.fetch")]).unwrap_or_default();
    let sources = fetched.lines().map(|refspec| refspec.trim_start_matches('+').split(':').next().unwrap_or_default());
    sources.filter(|source| !source.starts_with('^')).any(|source| {
        let prefix = source.split('*').next().unwrap_or_default();
        prefix.starts_with("refs/fence/") || (source.contains('*') && "refs/fence/".starts_with(prefix))
    })
}

/// Releases the lease that the push did not release, or says that it is still held.
fn give_back(client: &Client, dir: &LeaseDir) {
    match client.release(dir) {
        Ok(()) | Err(Failure::Lost { .. }) => {}
        Err(failure) => note(&format!("{} ({})", still_held(&client.fence), failure.in_one_line())),
    }
}

pub(super) fn output_of(moved: Moved, client: &Client) -> Result<Output, Failure> {
    match moved {
        Moved::Landed { token, refs } => {
            let is_ours = |answer: &RefAnswer| answer.name.starts_with("refs/fence/");
            let refs: Vec<&RefAnswer> = refs.iter().filter(|answer| !is_ours(answer)).collect();
            let names = |up_to_date: bool| -> Vec<String> {
                let wanted = refs.iter().filter(|answer| answer.up_to_date == up_to_date);
                wanted.map(|answer| text::one_line(answer.name.as_bytes(), 200)).collect()
            };
            let (moved, old) = (names(false), names(true));
            let what = if moved.is_empty() && !old.is_empty() { "nothing new".to_owned() } else { moved.join(" ") };
            let report = Report::new(Outcome::Landed, format!("landed with token {token}: {what}")).about(client);
            Ok(Output::of(Report { token: Some(token), moved: Some(moved), up_to_date: Some(old), ..report }))
        }
        Moved::NothingNew { refs } => {
            let names = refs.iter().filter(|answer| answer.up_to_date);
            let old = names.map(|answer| text::one_line(answer.name.as_bytes(), 200)).collect();
            let report = Report::new(Outcome::UpToDate, "nothing new: the remote is up to date").about(client);
            Ok(Output::of(Report { up_to_date: Some(old), ..report }))
        }
        Moved::Refused(refused) => Err(client.refused(&refused).already_shown()),
    }
}

fn dry_run(client: &Client, refspecs: &[OsString], args: &PushArgs) -> Result<Output, Failure> {
    let mut push = plain_push(&client.local.git, &[]);
    push.args((!args.no_verify).then_some("--verify"));
    push.arg("--dry-run").args(args.arguments()).args(&client.remote.route.receive_pack).arg("--");
    push.arg(client.name_for_git()).args(refspecs);
    plain(&mut push, client, Report::new(Outcome::WouldLand, "would land"))
}

/// Runs a push that takes no lease.
pub(super) fn plain(push: &mut Command, client: &Client, report: Report) -> Result<Output, Failure> {
    let is_dry = push.get_args().any(|argument| argument == "--dry-run");
    let ran = run(push, &How::default().aloud());
    let ran = ran.map_err(Failure::CannotRunGit)?;
    match PushAnswer::of(&ran) {
        // Nothing was sent, so no token was checked or spent.
        PushAnswer::Landed { refs, .. } if refs.iter().all(|answer| answer.up_to_date) => {
            let what = "nothing new: the remote is up to date";
            Ok(Output::of(Report::new(Outcome::UpToDate, what).about(client)))
        }
        PushAnswer::Landed { .. } => Ok(Output::of(report.about(client))),
        PushAnswer::Refused { refs, verdict, said } => {
            Err(client.refused(&remote::refused(refs, verdict, said)).already_shown())
        }
        PushAnswer::NoOptions => Err(Failure::broken(
            format!("the remote {} does not accept push options", text::in_quotes(&client.remote.name)),
            "put the token into the commit message instead:  git fence push --token N --trailer",
        )),
        PushAnswer::NotSent(why) => Err(client.not_sent(why).already_shown()),
        // Nothing is sent in a dry run, so only the hook can have failed.
        PushAnswer::Lost { .. } if is_dry => Err(pre_push::refused()),
        PushAnswer::Lost { why } => Err(Failure::Unknown { why }),
        PushAnswer::NoAtomic => Err(Failure::refused(ran.complaint())),
    }
}

impl PushArgs {
    pub(crate) fn place(&self) -> Target {
        Target {
            fence: self.fence.clone(),
            branch: self.branch.clone(),
            remote: self.remote.clone(),
            store: self.store.clone(),
        }
    }

    /// The same for one branch. Its refspec is complete, so the flags that change refspecs are done with.
    pub(super) fn only(&self, branch: OsString, refspec: OsString) -> PushArgs {
        let (branch, refspecs) = (Some(branch), vec![refspec]);
        PushArgs { branch, refspecs, per_branch: false, force: false, delete: false, ..self.clone() }
    }

    /// Runs the clone's pre-push hook, if there is one.
    pub(super) fn run_hook(&self, client: &Client, refspecs: &[OsString]) -> Result<(), Failure> {
        let is_due = !self.no_verify && pre_push::is_there(&client.local.git);
        if is_due { pre_push::ask(client, refspecs, &self.arguments()) } else { Ok(()) }
    }

    pub(super) fn arguments(&self) -> Vec<OsString> {
        let lease = |expect: &OsString| {
            let mut argument = OsString::from("--force-with-lease");
            if !expect.is_empty() {
                argument.push("=");
                argument.push(expect);
            }
            argument
        };
        self.force_with_lease.iter().map(lease).collect()
    }

    /// The refspecs for git. `--force` becomes a `+` on each, because git's `--force` would also disable the check
    /// of the lease.
    pub(super) fn all_refspecs(&self, context: &Context) -> Result<Vec<OsString>, Failure> {
        let mut refspecs = self.refspecs.clone();
        if let Some(lease) = refspecs.iter().find(|refspec| names_a_lease(refspec)) {
            return Err(Failure::usage(
                format!("'{}' is a lease", shown(lease)),
                "change leases with  git fence acquire, advance and release",
            ));
        }
        if self.delete {
            if refspecs.is_empty() {
                return Err(Failure::usage(
                    "--delete requires the refs to delete",
                    "name them:  git fence push --delete origin old-branch",
                ));
            }
            refspecs.iter_mut().for_each(|refspec| *refspec = join(":", refspec));
        }
        if refspecs.is_empty() && !self.tags {
            let branch = context.local.git.ask(["symbolic-ref", "--quiet", "HEAD"]).map_err(|_| {
                Failure::usage(
                    "HEAD is detached: there is no current branch to push",
                    "name source and destination:  git fence push origin HEAD:main",
                )
            })?;
            refspecs.push(format!("{branch}:{branch}").into());
        }
        if self.tags {
            refspecs.push("refs/tags/*:refs/tags/*".into());
        }
        if self.force {
            let is_plain = |refspec: &&mut OsString| !refspec.as_bytes().starts_with(b"+");
            refspecs.iter_mut().filter(is_plain).for_each(|refspec| *refspec = join("+", refspec));
        }
        Ok(refspecs)
    }
}

fn join(prefix: &str, refspec: &OsStr) -> OsString {
    OsString::from_vec([prefix.as_bytes(), refspec.as_bytes()].concat())
}

fn names_a_lease(refspec: &OsStr) -> bool {
    let text = text::one_line(refspec.as_bytes(), 500);
    text.rsplit(':').next().is_some_and(|to| to.trim_start_matches('+').starts_with("refs/fence/"))
}
