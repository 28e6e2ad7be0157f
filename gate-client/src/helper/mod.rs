//! `git-remote-fence`: git hands it a plain `git push` of a command that runs under a lease.
//!
//! It lists the refs of the real URL, and pushes with the user's own git: two connections in all. A push to the lease's
//! repository carries the lease along, and is always atomic: either every ref moves, and the lease with them, or none. Any
//! other URL only came here because git compares the beginnings of URLs; it is served as if nobody had asked.
//!
//! Called by git alone, on stdin and stdout.

pub(crate) mod protocol;

use crate::{
    clock::Clock,
    failure::Failure,
    git::{
        Git, How, Ran,
        address::without_password,
        local::{Local, Remote, Route},
        run,
    },
    helper::protocol::{
        CAPABILITIES, HelperLine, OptionAnswer, Options, Update, error, listing, nothing, ok, reason_in,
    },
    lease::{
        client::Client,
        held::{HeldLease, LeaseDir},
        holding::Moved,
    },
    run::{inside::lease_of, signals},
    store::{
        answer::refs_in,
        objects::{commit_of, hash_of},
        sending::{Sending, plain_push},
    },
    surroundings::{Environment, GitSettings as _},
};
use git_fence_core::{Code, HolderMove, text};
use git_fence_system::descriptor;
use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead, Write},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How many objects are named in one command line.
const MOST_WANTS: usize = 5000;

/// What ends the helper before git has ended the conversation.
enum Over {
    /// Git has been told, or is gone.
    Quietly,
    Because(Failure),
}

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Over {
        Over::Quietly
    }
}

impl From<Failure> for Over {
    fn from(failure: Failure) -> Over {
        Over::Because(failure)
    }
}

/// The URL that git has handed over, and the repository that it is pushed from or fetched into.
struct Helper {
    git: Git,
    name: OsString,
    url: OsString,
    route: Route,
    /// The lease that pushes to it belong to.
    lease: Option<LeaseDir>,
    clock: Clock,
    options: Options,
    /// That git waits for an answer.
    works: Arc<AtomicBool>,
}

/// Talks with git until it has nothing more to say.
pub(crate) fn main(args: &[OsString], environment: &Environment) -> ExitCode {
    let [_, name, url] = args else {
        crate::commands::cli::report(
            &Failure::usage(
                "git runs this program, for pushes under a lease",
                "git fence run -- COMMAND  puts it in place",
            ),
            false,
        );
        return ExitCode::from(2);
    };
    let works = Arc::new(AtomicBool::new(false));
    end_with_git(works.clone());
    let mut helper = match Helper::new(name, url, environment, works) {
        Ok(helper) => helper,
        Err(failure) => {
            crate::commands::cli::report(&failure, false);
            return ExitCode::from(128);
        }
    };
    match helper.talk(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Over::Quietly) => ExitCode::from(128),
        Err(Over::Because(failure)) => {
            crate::commands::cli::report(&failure, false);
            ExitCode::from(128)
        }
    }
}

impl Helper {
    fn new(name: &OsStr, url: &OsStr, environment: &Environment, works: Arc<AtomicBool>) -> Result<Helper, Failure> {
        if url.as_bytes().starts_with(b"-") {
            return Err(Failure::usage(format!("{} is not a URL", text::quoted(url.as_bytes())), "name a remote"));
        }
        let dir = std::env::current_dir()
            .map_err(|e| Failure::usage(format!("the current directory cannot be used: {e}"), "change to another"))?;
        let lease = lease_of(environment, url, &dir);
        let mut git = Git { dir, environment: environment.without_helper() };
        let url = with_password(&git, name, url, lease.as_ref());
        let route = Route::of(&git, name, &url);
        route.shown_to(&mut git);
        Ok(Helper {
            git,
            name: name.to_owned(),
            url,
            route,
            lease,
            clock: Clock::of(environment),
            options: Options::default(),
            works,
        })
    }

    fn talk(&mut self, from: &mut impl BufRead, to: &mut impl Write) -> Result<(), Over> {
        let (mut updates, mut wants) = (Vec::new(), Vec::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let said = line.strip_suffix(b"\n").unwrap_or(&line);
            let unknown = || Failure::broken(format!("git said {}", text::quoted(said)), "report it");
            match HelperLine::parse(said).ok_or_else(unknown)? {
                HelperLine::Capabilities => to.write_all(CAPABILITIES)?,
                HelperLine::Set { name, value } => to.write_all(match self.options.set(&name, &value) {
                    OptionAnswer::Ok => b"ok\n",
                    OptionAnswer::Unsupported => b"unsupported\n",
                })?,
                HelperLine::List { for_push } => to.write_all(&self.while_git_waits(|it| it.list(for_push))?)?,
                HelperLine::Push(update) => updates.push(update),
                HelperLine::Fetch { id } => wants.push(id),
                HelperLine::End if !updates.is_empty() => {
                    to.write_all(&self.while_git_waits(|it| it.push(&std::mem::take(&mut updates)))?)?;
                    self.options.forget_push();
                }
                HelperLine::End if !wants.is_empty() => {
                    self.while_git_waits(|it| it.fetch(std::mem::take(&mut wants)))?;
                    to.write_all(b"\n")?;
                }
                HelperLine::End => return Ok(()),
            }
            to.flush()?;
        }
    }

    /// Does what git has asked for. Once it has its answer, it may close the conversation: that is in order.
    fn while_git_waits<T>(&self, work: impl FnOnce(&Helper) -> T) -> T {
        self.works.store(true, Ordering::SeqCst);
        let answer = work(self);
        self.works.store(false, Ordering::SeqCst);
        answer
    }

    fn list(&self, for_push: bool) -> Result<Vec<u8>, Over> {
        let mut ask = self.git.command(["ls-remote", "--symref"]);
        ask.args(&self.route.upload_pack).arg("--").arg(&self.url);
        let said = aloud(&mut ask)?;
        // Git itself has said why not.
        if !said.status.success() {
            return Err(Over::Quietly);
        }
        let hides_leases = for_push && self.lease.is_some();
        Ok(listing(&said.stdout, for_push, hides_leases, self.options.object_format))
    }

    /// Moves the refs, and answers for each.
    fn push(&self, updates: &[Update]) -> Result<Vec<u8>, Over> {
        let Some(dir) = &self.lease else { return self.push_unfenced(updates) };
        let (leases, updates): (Vec<Update>, Vec<Update>) = updates.iter().cloned().partition(Update::is_of_a_lease);
        let mut answer = Vec::new();
        for lease in &leases {
            let name = text::quoted(lease.to.as_bytes());
            say(&format!("warning: {name} is left out: leases are moved by git-fence alone\n"));
            answer.extend(nothing(&lease.to));
        }
        // Git has compared everything with what was listed: there is nothing more to try.
        let is_due = !updates.is_empty() && !self.options.dry_run;
        let pushed = is_due.then(|| self.push_fenced(dir, &updates)).transpose();
        match pushed {
            Ok(None | Some(Moved::Landed { .. })) => answer.extend(updates.iter().flat_map(|update| ok(&update.to))),
            Ok(Some(Moved::Refused(refused))) => {
                let code = refused.gate.and_then(|gate| gate.code);
                let reason = |update: &Update| reason_for(update, &refused.why, code);
                answer.extend(updates.iter().flat_map(|update| error(&update.to, &reason(update))));
            }
            Err(failure) => {
                say(&failure.prose());
                let why = match &failure {
                    Failure::Lost { .. } => format!("{} {failure}", Code::LeaseLost),
                    other => other.to_string(),
                };
                let is_there = |update: &Update| match &failure {
                    Failure::InPart { refs, .. } => !refs.iter().any(|name| *name == *update.to.to_string_lossy()),
                    _ => false,
                };
                let answer_for = |update| if is_there(update) { ok(&update.to) } else { error(&update.to, &why) };
                answer.extend(updates.iter().flat_map(answer_for));
            }
        }
        answer.push(b'\n');
        Ok(answer)
    }

    /// With the lease in `dir`, wherever on this machine it was taken.
    fn push_fenced(&self, dir: &LeaseDir, updates: &[Update]) -> Result<Moved, Failure> {
        let held = dir.held().map_err(|failure| match failure {
            Failure::Usage { .. } => gone(dir),
            other => other,
        })?;
        let client = self.client(dir, &held)?;
        let pushed = client.push_held(dir, HolderMove::Advance, &mut |sending: &mut Sending<'_>| {
            sending.refspecs = updates.iter().map(Update::refspec).collect();
            sending.options.extend_from_slice(self.options.push_options());
            sending.arguments = self.options.push_arguments(updates);
            sending.how.aloud = true;
        });
        match pushed {
            // The options are the user's, not the gate's: git's own words are the right ones.
            Err(Failure::NoOptions { .. }) => Err(Failure::refused("the receiving end does not support push options")),
            other => other,
        }
    }

    fn client(&self, dir: &LeaseDir, held: &HeldLease) -> Result<Client, Failure> {
        let url = self.url.to_str().ok_or_else(|| {
            Failure::broken("the remote's URL is not text", "write it in UTF-8 into the remote's configuration")
        })?;
        // What was read of the lease is kept in the clone that it was taken in: `git-fence/leases/<id>`.
        let common_dir = dir.path().ancestors().nth(3).map(PathBuf::from).ok_or_else(|| gone(dir))?;
        let hash = hash_of(&commit_of(&held.at)?);
        let mut git = self.git.clone();
        let mut settings = git.environment.settings();
        // What is wrong is said once, by the git that the user started.
        settings.push(("advice.pushUpdateRejected".into(), "false".into()));
        git.environment.set_settings(&settings);
        let remote = Remote { name: held.remote.clone(), url: url.to_owned(), route: self.route.clone() };
        Ok(Client {
            local: Local { git, common_dir, hash },
            remote,
            fence: held.fence.clone(),
            clock: self.clock.clone(),
            until: None,
            stop: None,
        })
    }

    /// To a repository that is none of ours.
    fn push_unfenced(&self, updates: &[Update]) -> Result<Vec<u8>, Over> {
        // Git has run the pre-push hook before it asked.
        let mut push = plain_push(&self.git, self.options.push_options());
        push.args(self.options.atomic.then_some("--atomic")).args(self.options.dry_run.then_some("--dry-run"));
        push.args(self.options.push_arguments(updates)).args(&self.route.receive_pack);
        push.arg("--").arg(&self.url).args(updates.iter().map(Update::refspec));
        let said = aloud(&mut push)?;
        let answers = refs_in(&said.stdout);
        if !said.status.success() && answers.is_empty() {
            return Err(Over::Quietly);
        }
        let mut answer = Vec::new();
        for update in updates {
            let name = update.to.to_string_lossy();
            let refused = answers.iter().find(|answer| answer.name == name).and_then(|answer| answer.refused.as_ref());
            answer.extend(match refused {
                Some(why) => error(&update.to, &reason_in(why)),
                None => ok(&update.to),
            });
        }
        answer.push(b'\n');
        Ok(answer)
    }

    /// Brings the objects; the git that has asked moves the refs.
    fn fetch(&self, mut wants: Vec<String>) -> Result<(), Over> {
        wants.sort_unstable();
        wants.dedup();
        // By its name, where it has one: what is configured for the remote counts for partial clones.
        let by_name = self.git.lines_of([OsStr::new("remote"), "get-url".as_ref(), &self.name], b'\n') == [&*self.url];
        for wants in wants.chunks(MOST_WANTS) {
            let mut fetch = self.git.command(["-c", "fetch.writeCommitGraph=false", "fetch"]);
            fetch.args(["--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune"]);
            fetch.args(["--recurse-submodules=no", "--refmap="]).args(self.options.fetch_arguments());
            if !by_name {
                fetch.args(&self.route.upload_pack);
            }
            fetch.arg("--").arg(if by_name { &self.name } else { &self.url }).args(wants);
            if !aloud(&mut fetch)?.status.success() {
                return Err(Over::Quietly);
            }
        }
        Ok(())
    }
}

/// Ends the helper, and the push that it is at, when the git that has asked for it is gone: then nobody has
/// the other end of its standard input. Git starts the helper through another git, so its parent says nothing.
fn end_with_git(works: Arc<AtomicBool>) {
    thread::spawn(move || {
        let polled = descriptor::wait_until_closed(io::stdin());
        // At rest it reads the end by itself, unless there is something to do before that.
        while !works.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        if polled.is_ok() {
            signals::end_children();
            std::process::exit(128);
        }
    });
}

/// The URL as the user has it: a password was left out on the way here, so that git does not show it.
fn with_password(git: &Git, name: &OsStr, url: &OsStr, lease: Option<&LeaseDir>) -> OsString {
    if !url.as_bytes().starts_with(b"http") {
        return url.to_owned();
    }
    let args = |kind: &[&'static str]| kind.iter().map(OsString::from).chain([name.to_owned()]).collect::<Vec<_>>();
    let mut written = git.lines_of(args(&["remote", "get-url", "--push", "--all"]), b'\n');
    written.extend(git.lines_of(args(&["remote", "get-url", "--all"]), b'\n'));
    written.push(name.to_owned());
    written.extend(lease.and_then(|dir| dir.held().ok()).map(|held| held.url.into()));
    written.into_iter().find(|written| without_password(written) == *url).unwrap_or_else(|| url.to_owned())
}

/// Why this ref did not move: what was said of it, and the gate's code in front of it. Where only others
/// were spoken of, theirs is the reason.
fn reason_for(update: &Update, why: &[String], code: Option<Code>) -> String {
    let name = update.to.to_string_lossy();
    let own = why.iter().find_map(|line| line.strip_prefix(&*name)?.strip_prefix(' '));
    let reason = own.map_or_else(|| why.join("; "), reason_in);
    match code {
        Some(code) => format!("{code} {reason}"),
        None if reason.is_empty() => "refused".to_owned(),
        None => reason,
    }
}

fn gone(dir: &LeaseDir) -> Failure {
    let id = dir.path().file_name().unwrap_or_default();
    Failure::broken(
        format!("{} the lease {} is not held any more", Code::LeaseLost, text::quoted(id.as_bytes())),
        "nothing was pushed. What runs on after its lease has been given back or lost must stop",
    )
}

/// Runs a git whose words are for the user.
fn aloud(command: &mut Command) -> Result<Ran, Failure> {
    run(command, &How { aloud: true, ..How::default() }).map_err(Failure::CannotRunGit)
}

fn say(words: &str) {
    let _ = io::stderr().write_all(words.as_bytes());
}
