//! `git-remote-fence`: git runs it for a plain `git push` of a command under a lease.
//!
//! It lists the refs of the real URL, and pushes with the user's own git: two connections in all. A push to the lease's
//! repository also moves the lease and is always atomic: either every ref moves, and the lease with them, or none. Any
//! other URL comes here only because git compares prefixes of URLs; it is passed through unchanged.
//!
//! Called only by git, on stdin and stdout.

pub(crate) mod protocol;

use crate::{
    client::Client,
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
        held::{HeldLease, LeaseDir},
        pushing::Moved,
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

/// The most objects in one command line.
const MOST_WANTS: usize = 5000;

/// Why the helper stops before git has closed the connection.
enum HelperError {
    /// It has been reported already, or git is gone.
    Reported,
    Failed(Failure),
}

impl From<io::Error> for HelperError {
    fn from(_: io::Error) -> HelperError {
        HelperError::Reported
    }
}

impl From<Failure> for HelperError {
    fn from(failure: Failure) -> HelperError {
        HelperError::Failed(failure)
    }
}

/// The URL from git, and the local repository.
struct Helper {
    git: Git,
    name: OsString,
    url: OsString,
    route: Route,
    /// The lease for pushes to this URL.
    lease: Option<LeaseDir>,
    clock: Clock,
    options: Options,
    /// Whether git is waiting for an answer.
    is_working: Arc<AtomicBool>,
}

/// Serves git's commands until it closes the connection.
pub(crate) fn main(args: &[OsString], environment: &Environment) -> ExitCode {
    let [_, name, url] = args else {
        let what = "this program is only for git, which runs it for pushes under a lease";
        Failure::usage(what, "run  git fence run -- COMMAND").print();
        return ExitCode::from(2);
    };
    let is_working = Arc::new(AtomicBool::new(false));
    end_with_git(is_working.clone());
    let mut helper = match Helper::new(name, url, environment, is_working) {
        Ok(helper) => helper,
        Err(failure) => {
            failure.print();
            return ExitCode::from(128);
        }
    };
    match helper.serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(HelperError::Reported) => ExitCode::from(128),
        Err(HelperError::Failed(failure)) => {
            failure.print();
            ExitCode::from(128)
        }
    }
}

impl Helper {
    fn new(
        name: &OsStr,
        url: &OsStr,
        environment: &Environment,
        is_working: Arc<AtomicBool>,
    ) -> Result<Helper, Failure> {
        if url.as_bytes().starts_with(b"-") {
            return Err(Failure::usage(format!("{} is not a URL", text::quoted(url.as_bytes())), "name a remote"));
        }
        let dir = std::env::current_dir().map_err(|e| {
            Failure::usage(format!("cannot use the current directory: {e}"), "change to another directory")
        })?;
        let lease = lease_of(environment, url, &dir);
        let mut git = Git { dir, environment: environment.without_helper() };
        let url = with_password(&git, name, url, lease.as_ref());
        let route = Route::of(&git, name, &url);
        route.apply_to(&mut git);
        Ok(Helper {
            git,
            name: name.to_owned(),
            url,
            route,
            lease,
            clock: Clock::of(environment),
            options: Options::default(),
            is_working,
        })
    }

    fn serve(&mut self, from: &mut impl BufRead, to: &mut impl Write) -> Result<(), HelperError> {
        let (mut updates, mut wants) = (Vec::new(), Vec::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let unknown =
                || Failure::broken(format!("unexpected line from git: {}", text::quoted(line)), "please report this");
            match HelperLine::parse(line).ok_or_else(unknown)? {
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

    /// Runs `work` while git waits for the answer. Once git has its answer, it may close the connection.
    fn while_git_waits<T>(&self, work: impl FnOnce(&Helper) -> T) -> T {
        self.is_working.store(true, Ordering::SeqCst);
        let answer = work(self);
        self.is_working.store(false, Ordering::SeqCst);
        answer
    }

    fn list(&self, for_push: bool) -> Result<Vec<u8>, HelperError> {
        let mut ask = self.git.command(["ls-remote", "--symref"]);
        ask.args(&self.route.upload_pack).arg("--").arg(&self.url);
        let listed = aloud(&mut ask)?;
        // Git itself has printed the reason.
        if !listed.status.success() {
            return Err(HelperError::Reported);
        }
        let hides_leases = for_push && self.lease.is_some();
        Ok(listing(&listed.stdout, for_push, hides_leases, self.options.object_format))
    }

    /// Pushes the refs, and returns an answer for each.
    fn push(&self, updates: &[Update]) -> Result<Vec<u8>, HelperError> {
        let Some(dir) = &self.lease else { return self.push_unfenced(updates) };
        let (leases, updates): (Vec<Update>, Vec<Update>) = updates.iter().cloned().partition(Update::is_of_a_lease);
        let mut answer = Vec::new();
        for lease in &leases {
            let name = text::quoted(lease.to.as_bytes());
            print(&format!("warning: {name} is not pushed: only git-fence changes leases\n"));
            answer.extend(nothing(&lease.to));
        }
        // For a dry run, git has compared everything with the list already.
        let is_due = !updates.is_empty() && !self.options.dry_run;
        let pushed = is_due.then(|| self.push_fenced(dir, &updates)).transpose();
        match pushed {
            Ok(None | Some(Moved::Landed { .. } | Moved::NothingNew { .. })) => {
                answer.extend(updates.iter().flat_map(|update| ok(&update.to)));
            }
            Ok(Some(Moved::Refused(refused))) => {
                let code = refused.gate.and_then(|gate| gate.code);
                let reason = |update: &Update| reason_for(update, &refused.why, code);
                let has_moved =
                    |update: &Update| refused.moved.iter().any(|name| *name == *update.to.to_string_lossy());
                let answer_for =
                    |update| if has_moved(update) { ok(&update.to) } else { error(&update.to, &reason(update)) };
                answer.extend(updates.iter().flat_map(answer_for));
            }
            Err(failure) => answer.extend(report_failure(&failure, dir, &updates)),
        }
        answer.push(b'\n');
        Ok(answer)
    }

    /// Pushes with the lease in `dir`, wherever on this machine it was taken.
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
            sending.how = sending.how.aloud();
        });
        match pushed {
            // The options are the user's, not ours, so use git's own message.
            Err(Failure::NoOptions { .. }) => Err(Failure::refused("the receiving end does not support push options")),
            other => other,
        }
    }

    fn client(&self, dir: &LeaseDir, held: &HeldLease) -> Result<Client, Failure> {
        let url = self.url.to_str().ok_or_else(|| {
            Failure::broken("the remote's URL is not valid UTF-8", "use UTF-8 in the remote's configuration")
        })?;
        // Objects of the lease are kept in the clone where it was taken: `git-fence/leases/<id>`.
        let common_dir = dir.path().ancestors().nth(3).map(PathBuf::from).ok_or_else(|| gone(dir))?;
        let hash = hash_of_clone(held)?;
        let mut git = self.git.clone();
        let mut settings = git.environment.settings();
        // The git that the user started prints the advice, once.
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
            hurry: None,
            patience: None,
            waiting: None,
            store: None,
        }
        .with_store_of(held))
    }

    /// Pushes to a repository without a lease of ours.
    fn push_unfenced(&self, updates: &[Update]) -> Result<Vec<u8>, HelperError> {
        // Git has already run the pre-push hook.
        let mut push = plain_push(&self.git, self.options.push_options());
        push.args(self.options.atomic.then_some("--atomic")).args(self.options.dry_run.then_some("--dry-run"));
        push.args(self.options.push_arguments(updates)).args(&self.route.receive_pack);
        push.arg("--").arg(&self.url).args(updates.iter().map(Update::refspec));
        let pushed = aloud(&mut push)?;
        let answers = refs_in(&pushed.stdout);
        if !pushed.status.success() && answers.is_empty() {
            return Err(HelperError::Reported);
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

    /// Fetches the objects; the git that asked for them moves the refs.
    fn fetch(&self, mut wants: Vec<String>) -> Result<(), HelperError> {
        wants.sort_unstable();
        wants.dedup();
        // By name if possible: partial clones use the configuration of the remote.
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
                return Err(HelperError::Reported);
            }
        }
        Ok(())
    }
}

/// The hash algorithm of the clone in which the lease was taken.
fn hash_of_clone(held: &HeldLease) -> Result<gix::hash::Kind, Failure> {
    match &held.store {
        Some(store) if store.hash == gix::hash::Kind::Sha256.to_string() => Ok(gix::hash::Kind::Sha256),
        Some(_) => Ok(gix::hash::Kind::Sha1),
        None => Ok(hash_of(&commit_of(&held.at)?)),
    }
}

/// Ends the helper and its current push when the git that runs it is gone: then the other end of its standard
/// input is closed. Git starts the helper through another git, so the parent process does not tell.
fn end_with_git(is_working: Arc<AtomicBool>) {
    thread::spawn(move || {
        let polled = descriptor::wait_until_closed(io::stdin());
        // An idle helper reads the end of the input by itself, unless there is work left before it.
        while !is_working.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        if polled.is_ok() {
            signals::end_children();
            std::process::exit(128);
        }
    });
}

/// The URL as the user configured it: its password was removed from ours, so that git does not show it.
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

/// Reports a push that failed. Of a lost lease git says why, with the first ref, and nobody says it again.
fn report_failure(failure: &Failure, dir: &LeaseDir, updates: &[Update]) -> Vec<u8> {
    let is_lost = matches!(failure, Failure::Lost { .. });
    if is_lost {
        dir.set_told();
        print(&format!("hint: {}\n", failure.hint()));
    } else {
        failure.print();
    }
    let code = failure.code().unwrap_or(Code::LeaseLost);
    let why = |nth: usize| match (is_lost, nth) {
        (true, 0) => format!("{code} {failure}"),
        (true, _) => code.to_string(),
        (false, _) => failure.to_string(),
    };
    let is_among = |refs: &[String], update: &Update| refs.iter().any(|name| *name == *update.to.to_string_lossy());
    let has_landed = |update: &Update| matches!(failure, Failure::InPart { refs, .. } if !is_among(refs, update));
    let answer = |(nth, update): (usize, &Update)| {
        if has_landed(update) { ok(&update.to) } else { error(&update.to, &why(nth)) }
    };
    updates.iter().enumerate().flat_map(answer).collect()
}

/// Why this ref did not move: the reason given for it, after the gate's code. If there are only reasons for other
/// refs, those.
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
        format!("{} the lease {} is no longer held", Code::LeaseLost, text::quoted(id.as_bytes())),
        "nothing was pushed. Stop: the lease of this run was released or lost",
    )
}

/// Runs a git whose messages are for the user.
fn aloud(command: &mut Command) -> Result<Ran, Failure> {
    run(command, &How::default().aloud()).map_err(Failure::CannotRunGit)
}

fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
