//! Reading a lease from the remote: one fetch gets both refs and their objects.
//!
//! They are kept in a separate repository beside the user's: no ref, no object and no `FETCH_HEAD` of the user is
//! touched, and `git push --mirror` does not push them. Only the tip is fetched, because the history of a lease can be
//! long. Each fence of each remote has its own repository: concurrent fetches into one shallow repository conflict.

use crate::{
    failure::{Cause, Failure, of_file},
    files::{home, name_of_url, wait_for_lock, write_whole},
    git::{
        Git, GitError, How, Ran,
        local::{Local, Remote},
        run,
        said::Denial,
    },
    store::objects::{commit_of, has_object, read_commit},
    surroundings::GitSettings as _,
};
use git_fence_core::{
    Beat, FenceName, Lease, LeasePart, LeaseSnapshot, MarkRecord, ObjectId, RecordError, Stamp, StoredLease, Version,
    text,
};
use git_fence_system::env::{self, Variable};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, DirBuilder, File},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// Whether a fetch failed only because the refs do not exist: with a depth, git then fails silently or with this
/// message, depending on the transport, and prunes nothing.
fn found_nothing(ran: &Ran) -> bool {
    let said = String::from_utf8_lossy(&ran.stderr);
    ran.status.code() == Some(1) && !ran.complains()
        || said.lines().any(|line| line == "fatal: no matching remote head")
}

/// The namespace of the fetched refs.
const HERE: &str = "refs/remotes/fence";

/// Variables that point git to a repository. The user's values must not apply here.
const OF_ANOTHER_REPOSITORY: [Variable; 5] =
    [env::GIT_DIR, env::GIT_WORK_TREE, env::GIT_COMMON_DIR, env::GIT_INDEX_FILE, env::GIT_OBJECT_DIRECTORY];

/// How many ownerships the first deepening fetches; the next ones fetch more.
const FIRST_DEPTH: usize = 16;
/// How many marks are fetched at most to find a push.
const LONGEST_DEPTH: usize = 100_000;

/// What the remote shows of a fence.
#[derive(Debug, Default)]
pub(crate) struct RemoteSight {
    /// The lease, if it is kept in the remote.
    pub(crate) snapshot: LeaseSnapshot,
    /// The mark, if the lease is kept elsewhere or the tokens are somebody's own.
    pub(crate) mark: Option<StoredMark>,
}

/// A mark in the remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredMark {
    /// Its commit.
    #[serde(rename = "commit")]
    pub(crate) at: Version,
    /// The mark before it.
    pub(crate) parent: Option<Version>,
    pub(crate) record: MarkRecord,
}

/// The repository that mirrors one fence's lease.
#[derive(Debug)]
pub(crate) struct Mirror<'a> {
    local: &'a Local,
    remote: &'a Remote,
    fence: &'a FenceName,
    dir: PathBuf,
}

impl<'a> Mirror<'a> {
    pub(crate) fn open(local: &'a Local, remote: &'a Remote, fence: &'a FenceName) -> Result<Mirror<'a>, Failure> {
        let home = home(local);
        DirBuilder::new().recursive(true).mode(0o700).create(&home).map_err(|e| of_file(&home, e))?;
        let dir = home.join(format!("mirror-{}-{}.git", name_of_url(&remote.url), fence.component()));
        let mirror = Mirror { local, remote, fence, dir };
        if !mirror.objects().is_dir() {
            let _lock = mirror.lock("mirror.lock", &How::default())?;
            let what = || format!("cannot make '{}'", mirror.dir.display());
            mirror.make(&home).map_err(|e| Failure::broken(what(), "make room there").because(e))?;
        }
        Ok(mirror)
    }

    /// Creates the repository atomically: it is renamed into place when it is complete.
    fn make(&self, home: &Path) -> Result<(), Cause> {
        let new = tempfile::Builder::new().prefix("mirror-").tempdir_in(home)?;
        let format = format!("--object-format={}", self.local.hash);
        let mut git = self.local.git.clone();
        OF_ANOTHER_REPOSITORY.into_iter().for_each(|variable| git.environment.remove(variable));
        git.ask(["init", "--quiet", "--bare", "--template=", &format, &new.path().to_string_lossy()])?;
        // Another run may have created it while this one waited for the lock. An incomplete one is replaced.
        if !self.objects().is_dir() {
            let _ = fs::remove_dir_all(&self.dir);
            fs::rename(new.path(), &self.dir)?;
        }
        Ok(())
    }

    /// The object directory.
    pub(crate) fn objects(&self) -> PathBuf {
        self.dir.join("objects")
    }

    /// Reads the lease, with the newest `depth` ownerships of its history: one connection.
    pub(crate) fn read(&self, how: &How, depth: usize) -> Result<LeaseSnapshot, Failure> {
        Ok(self.look(how, depth)?.snapshot)
    }

    /// Reads lease and mark, with the newest `depth` entries of their histories: one connection.
    pub(crate) fn look(&self, how: &How, depth: usize) -> Result<RemoteSight, Failure> {
        let Mirror { fence, remote, .. } = self;
        let _lock = self.lock(&format!("mirror-{}-{}.lock", name_of_url(&remote.url), fence.component()), how)?;
        let listing = self.fetch(how, depth)?;
        let at = |part: &str| {
            let name = format!("{HERE}/{part} ");
            let id = listing.lines().find_map(|line| line.strip_prefix(&name))?;
            ObjectId::parse(id.as_bytes()).ok().flatten()
        };
        let (lease_at, beat_at) = (at("lease"), at("beat"));
        if at("lease/ask").is_some() {
            let ask = LeasePart::Ask.of(fence);
            return Err(Failure::broken(
                format!("the remote has a ref {ask}, beside which there can be no lease"),
                format!("remove it:  git push {} --delete {ask}", remote.name),
            ));
        }
        let beat = beat_at.as_ref().and_then(|id| read_commit(&self.objects(), self.local.hash, id).ok());
        let lease = lease_at.map(|commit| self.read_lease(&commit)).transpose()?;
        let beat = beat.and_then(|found| Beat::read(&found.message).ok());
        let mark = at("mark").map(|commit| self.read_mark(&commit)).transpose()?;
        let beat_at = beat_at.map(|id| Version::new(id.as_str()));
        Ok(RemoteSight { snapshot: LeaseSnapshot { lease, beat_at, beat, ..LeaseSnapshot::default() }, mark })
    }

    /// Fetches the refs of the lease, and lists them.
    fn fetch(&self, how: &How, depth: usize) -> Result<String, Failure> {
        let git = self.git();
        let fetch = |depth: Option<String>| -> Result<Ran, Failure> {
            let mut fetch = git.command(["fetch", "--quiet", "--no-tags", "--prune", "--no-write-fetch-head"]);
            fetch.args(["--recurse-submodules=no", "--refmap="]).args(depth).args(&self.remote.route.upload_pack);
            fetch.arg("--").arg(&self.remote.url).arg(format!("+refs/fence/{}/*:{HERE}/*", self.fence.component()));
            run(&mut fetch, how).map_err(Failure::CannotRunGit)
        };
        // Whether the refs exist.
        let found = |ran: &Ran| match ran.status.success() {
            true => Ok(true),
            false if found_nothing(ran) => Ok(false),
            false => Err(Failure::unheard(&self.remote.name, ran, Denial::Access)),
        };
        let depth = depth.min(usize::try_from(i32::MAX).unwrap_or(usize::MAX));
        let mut fetched = fetch(Some(format!("--depth={depth}")))?;
        if !fetched.status.success() && fetched.complaint().contains("does not support shallow") {
            fetched = fetch(None)?;
        }
        let is_there = found(&fetched)?;
        let unreadable =
            |e: GitError| Failure::broken(format!("cannot read '{}'", self.dir.display()), "remove it").because(e);
        let list = || git.ask(["for-each-ref", "--format=%(refname) %(objectname)", HERE]).map_err(unreadable);
        let mut listing = list()?;
        if !is_there && !listing.is_empty() {
            found(&fetch(None)?)?;
            listing = list()?;
        }
        if depth == 1 {
            self.forget_past_tips(&listing)?;
        }
        Ok(listing)
    }

    /// Git adds each tip to the shallow list, and removes none.
    fn forget_past_tips(&self, listing: &str) -> Result<(), Failure> {
        let path = self.dir.join("shallow");
        let known = fs::read_to_string(&path).unwrap_or_default();
        let is_tip = |id: &&str| listing.lines().any(|line| line.split(' ').nth(1) == Some(*id));
        let tips: String = known.lines().filter(is_tip).map(|id| format!("{id}\n")).collect();
        let written = match (tips == known, tips.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => fs::remove_file(&path),
            (false, false) => write_whole(&path, tips.as_bytes()),
        };
        written.map_err(|e| of_file(&path, e))
    }

    /// Git in this repository, with the settings of the user's repository.
    fn git(&self) -> Git {
        let mut git = self.local.git.clone();
        OF_ANOTHER_REPOSITORY.into_iter().for_each(|variable| git.environment.remove(variable));
        git.environment.set(env::GIT_DIR, &self.dir);
        // Credentials, ssh commands and proxies may be configured in the user's repository.
        let mut settings = git.environment.settings();
        let configured = ["config", "config.worktree"].map(|name| self.local.common_dir.join(name));
        settings.extend(
            configured.into_iter().filter(|path| path.exists()).map(|path| ("include.path".into(), path.into())),
        );
        git.environment.set_settings(&settings);
        git
    }

    /// The ownerships that led to `tip`, newest first, back to the first that is `enough`. Fetches what is missing.
    pub(crate) fn history(
        &self,
        tip: Option<&StoredLease>,
        most: usize,
        how: &How,
        enough: impl Fn(&StoredLease) -> bool,
    ) -> Result<Vec<StoredLease>, Failure> {
        let mut depth = FIRST_DEPTH;
        loop {
            let (known, is_whole) = self.known_history(tip.cloned(), most, &enough)?;
            // The history in the remote can be shallow, too.
            if is_whole || depth / 8 >= most {
                return Ok(known);
            }
            self.read(how, depth)?;
            depth = depth.saturating_mul(8);
        }
    }

    /// The same without fetching, and whether it is complete.
    fn known_history(
        &self,
        tip: Option<StoredLease>,
        most: usize,
        enough: impl Fn(&StoredLease) -> bool,
    ) -> Result<(Vec<StoredLease>, bool), Failure> {
        let mut all = Vec::new();
        let mut next = tip;
        while let Some(seen) = next {
            let parent = seen.parent.clone().filter(|_| all.len() + 1 < most && !enough(&seen));
            all.push(seen);
            let parent = parent.map(|version| commit_of(&version)).transpose()?;
            if parent.as_ref().is_some_and(|commit| !has_object(&self.objects(), self.local.hash, commit)) {
                return Ok((all, false));
            }
            next = parent.map(|commit| self.read_lease(&commit)).transpose()?;
        }
        Ok((all, true))
    }

    fn read_lease(&self, commit: &ObjectId) -> Result<StoredLease, Failure> {
        let (lease, parent, time) = self.read_record(commit, LeasePart::Lease, "a lease", Lease::read)?;
        Ok(StoredLease { at: Version::new(commit.as_str()), parent, lease, time })
    }

    fn read_mark(&self, commit: &ObjectId) -> Result<StoredMark, Failure> {
        let (record, parent, _) = self.read_record(commit, LeasePart::Mark, "a mark", MarkRecord::read)?;
        Ok(StoredMark { at: Version::new(commit.as_str()), parent, record })
    }

    /// The record in `commit`, with its parent and its time.
    fn read_record<T>(
        &self,
        commit: &ObjectId,
        part: LeasePart,
        what: &str,
        read: impl Fn(&[u8]) -> Result<T, RecordError>,
    ) -> Result<(T, Option<Version>, String), Failure> {
        let unusable = |why: &dyn std::fmt::Display| {
            Failure::broken(
                format!(
                    "the remote's {} cannot be read as {what}: {}",
                    part.of(self.fence),
                    text::one_line(why.to_string().as_bytes(), 200)
                ),
                "nothing was written. A newer git-fence may read it; otherwise the server's operator looks at it with  git log -1",
            )
        };
        let found = read_commit(&self.objects(), self.local.hash, commit).map_err(|e| unusable(&e))?;
        let record = read(&found.message).map_err(|e| unusable(&e))?;
        let parent = found.parents.first().map(|id| Version::new(id.as_str()));
        Ok((record, parent, Beat::deadline_at(found.time.saturating_mul(1000))))
    }

    /// Whether `mark` or one that led to it is at `version`; `enough` says how far back to look. Fetches what is missing.
    pub(crate) fn mark_follows(
        &self,
        mark: &StoredMark,
        version: &Version,
        how: &How,
        enough: impl Fn(&MarkRecord) -> bool,
    ) -> Result<bool, Failure> {
        let mut next = Some(mark.clone());
        let mut depth = FIRST_DEPTH;
        while let Some(mark) = next {
            if mark.at == *version {
                return Ok(true);
            }
            let Some(parent) = mark.parent.filter(|_| !enough(&mark.record)) else { return Ok(false) };
            let commit = commit_of(&parent)?;
            // The history in the remote can be shallow, too.
            while !has_object(&self.objects(), self.local.hash, &commit) {
                if depth > LONGEST_DEPTH {
                    return Ok(false);
                }
                self.look(how, depth)?;
                depth = depth.saturating_mul(8);
            }
            next = Some(self.read_mark(&commit)?);
        }
        Ok(false)
    }

    /// How long runs on this machine have seen the beat unchanged. This ends a lease whose holder's clock is ahead:
    /// by its deadline it would last too long.
    pub(crate) fn watched(&self, seen: &LeaseSnapshot, now: &Stamp) -> Duration {
        #[derive(Serialize, Deserialize)]
        struct Watched {
            beat: Version,
            since: Stamp,
        }
        let Some(beat) = &seen.beat_at else { return Duration::ZERO };
        let path =
            home(self.local).join(format!("watched-{}@{}", self.fence.component(), name_of_url(&self.remote.url)));
        let known: Option<Watched> = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // A time in the future was recorded before this machine's clock was corrected: it means nothing.
        let is_past = |since: &Stamp| since.boot == now.boot || since.unix_ms <= now.unix_ms;
        match known.filter(|known| known.beat == *beat && is_past(&known.since)) {
            Some(known) => known.since.age_at(now),
            None => {
                let watched = Watched { beat: beat.clone(), since: now.clone() };
                let _ = write_whole(&path, &serde_json::to_vec(&watched).unwrap_or_default());
                Duration::ZERO
            }
        }
    }

    /// Serialises the reads of one lease in one clone: they write the same refs.
    fn lock(&self, name: &str, how: &How) -> Result<File, Failure> {
        let path = self.dir.with_file_name(name);
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|e| of_file(&path, e))?;
        wait_for_lock(&file, how).map_err(|e| of_file(&path, e))?;
        Ok(file)
    }
}
