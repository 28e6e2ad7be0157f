//! A push that moves the refs of a lease, alone or together with the user's refs.

use crate::{
    failure::{Failure, of_file},
    git::{Git, How, local::Remote, run, said::Denial},
    store::{
        answer::{PushAnswer, RefAnswer, refs_in},
        objects::{hash_of, read_commit},
    },
    surroundings::GitSettings as _,
};
use git_fence_core::{FenceName, LeasePart, ObjectId, RefName};
use git_fence_system::env;
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    io::Write as _,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::NamedTempFile;

/// A push with a compare-and-swap for each ref of the lease. It never uses `+` or `--force`, which disable the
/// check, and always `--atomic`, without which the other refs land even if the check fails.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    git: Git,
    /// The object directories of the lease.
    objects: Vec<PathBuf>,
    remote: &'a Remote,
    fence: &'a FenceName,
    swaps: Vec<(LeasePart, Option<ObjectId>, ObjectId)>,
    /// Push options: git-fence's and the user's.
    pub(crate) options: Vec<OsString>,
    /// Arguments for `git push`, and the user's refspecs.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) refspecs: Vec<OsString>,
    /// The commits that the refspecs meant when they were sent.
    meant: Vec<OsString>,
    /// Push to the remote's name, so that git updates the remote-tracking refs.
    pub(crate) by_name: bool,
    pub(crate) how: How,
}

/// The refs of a push that are at the pushed value, and those that are not.
#[derive(Debug, Default)]
pub(crate) struct RefsNow {
    pub(crate) there: Vec<RefAnswer>,
    pub(crate) undone: Vec<String>,
}

impl<'a> Sending<'a> {
    /// A push to `remote` that finds the lease's objects in `objects`.
    pub(crate) fn to(remote: &'a Remote, fence: &'a FenceName, git: &Git, objects: &[&Path]) -> Sending<'a> {
        Sending {
            git: git.with_objects(objects),
            objects: objects.iter().map(|dir| dir.to_path_buf()).collect(),
            remote,
            fence,
            swaps: Vec::new(),
            options: Vec::new(),
            arguments: Vec::new(),
            refspecs: Vec::new(),
            meant: Vec::new(),
            by_name: false,
            how: How::default(),
        }
    }

    /// Moves a ref of the lease from `old` to `new`, if it is at `old`.
    pub(crate) fn swap(mut self, part: LeasePart, old: Option<&ObjectId>, new: &ObjectId) -> Sending<'a> {
        self.swaps.push((part, old.cloned(), new.clone()));
        self
    }

    /// Asks whether the lease is free, by a push to a ref that cannot exist beside the lease. It changes
    /// nothing, whether a gate answers or git itself refuses.
    pub(crate) fn ask(mut self, with: &ObjectId) -> Result<PushAnswer, Failure> {
        self.refspecs.push(format!("{with}:{}", LeasePart::Ask.of(self.fence)).into());
        self.send()
    }

    /// Records the commits that the user's refspecs mean now: a branch of the clone may move before the refs are
    /// read back. Patterns and refspecs that git completes are left to git.
    pub(crate) fn remember_what_is_meant(&mut self) {
        let sources = self.refspecs.iter().filter_map(|refspec| source_of(refspec)).filter(|source| !source.is_empty());
        let sources: Vec<&OsStr> = sources.collect();
        if !sources.is_empty() {
            let rev_parse = ["rev-parse", "--quiet", "--revs-only", "--end-of-options"].map(OsStr::new);
            self.meant = self.git.lines_of(rev_parse.iter().chain(&sources), b'\n');
        }
    }

    /// Reads which of the user's refs are at the pushed value. That the lease moved does not prove that they did: a
    /// server that is killed during a transaction can leave some refs behind.
    pub(crate) fn read_refs(&self) -> Result<RefsNow, Failure> {
        let mut now = RefsNow::default();
        if self.refspecs.is_empty() {
            return Ok(now);
        }
        let mut list = self.git.command(["ls-remote", "--refs"]);
        let list = self.heard_from(list.args(&self.remote.route.upload_pack).arg("--").arg(&self.remote.url))?;
        let list = String::from_utf8_lossy(&list);
        let at: HashMap<&str, &str> =
            list.lines().filter_map(|line| line.split_once('\t')).map(|(id, name)| (name, id)).collect();

        let (deletions, updates): (Vec<_>, Vec<_>) =
            self.refspecs.iter().partition(|refspec| deleted_by(refspec).is_some());
        for name in deletions.into_iter().filter_map(|refspec| deleted_by(refspec)) {
            let name = name.to_string_lossy();
            let spelled = ["", "refs/", "refs/tags/", "refs/heads/"].map(|prefix| format!("{prefix}{name}"));
            match spelled.iter().find(|name| at.contains_key(name.as_str())) {
                Some(there) => now.undone.push(there.clone()),
                None => now.there.push(RefAnswer { name: name.into_owned(), refused: None, up_to_date: false }),
            }
        }
        if !updates.is_empty() {
            let mut push = plain_push(&self.git, &[]);
            push.arg("--dry-run").args(&self.remote.route.receive_pack).arg("--").arg(&self.remote.url).args(updates);
            for answer in refs_in(&self.heard_from(&mut push)?) {
                let is_meant =
                    at.get(answer.name.as_str()).is_some_and(|id| self.meant.iter().any(|meant| **meant == **id));
                if answer.up_to_date || is_meant {
                    now.there.push(RefAnswer { up_to_date: false, refused: None, ..answer });
                } else {
                    now.undone.push(answer.name);
                }
            }
        }
        Ok(now)
    }

    /// The output of a git command that only reads. A dry-run push that is refused still lists its refs.
    fn heard_from(&self, git: &mut Command) -> Result<Vec<u8>, Failure> {
        let ran = run(git, &How { aloud: false, ..self.how.clone() });
        match ran.map_err(Failure::CannotRunGit)? {
            ran if ran.status.success() || ran.stdout.ends_with(b"Done\n") => Ok(ran.stdout),
            ran => Err(Failure::unheard(&self.remote.name, &ran, Denial::Access)),
        }
    }

    pub(crate) fn send(&self) -> Result<PushAnswer, Failure> {
        let shallow = self.shallow_list()?;
        let mut git = self.git.clone();
        if let Some(list) = &shallow {
            // As `git --shallow-file` does.
            git.environment.set(env::GIT_SHALLOW_FILE, list.path());
        }
        let mut push = plain_push(&git, &self.options);
        push.arg("--atomic");
        for (part, old, _) in &self.swaps {
            let old = old.as_ref().map_or(String::new(), ToString::to_string);
            push.arg(format!("--force-with-lease={}:{old}", part.of(self.fence)));
        }
        push.args(&self.arguments).args(&self.remote.route.receive_pack).arg("--");
        push.arg(if self.by_name { &self.remote.name } else { &self.remote.url }).args(&self.refspecs);
        for (part, _, new) in &self.swaps {
            push.arg(format!("{new}:{}", part.of(self.fence)));
        }
        let ran = run(&mut push, &self.how).map_err(Failure::CannotRunGit)?;
        Ok(PushAnswer::of(&ran))
    }
}

impl Sending<'_> {
    /// The parent of a lease is the ownership before it, whose own parents need not be here. So git is told where the
    /// history ends: for this push only, in addition to where the user's own history ends.
    fn shallow_list(&self) -> Result<Option<NamedTempFile>, Failure> {
        let parents = self.swaps.iter().flat_map(|(_, _, new)| self.parents_of(new));
        // Any of the known ancestors may be the last one.
        let ends: Vec<ObjectId> = parents.filter(|parent| !self.parents_of(parent).is_empty()).collect();
        let Some(here) = self.objects.first().and_then(|dir| dir.parent()).filter(|_| !ends.is_empty()) else {
            return Ok(None);
        };
        let own = self.git.ask(["rev-parse", "--git-path", "shallow"]).map(|path| self.git.dir.join(path));
        let mut list = own.ok().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        ends.iter().for_each(|end| list.extend(format!("{end}\n").as_bytes()));
        let mut file = NamedTempFile::new_in(here).map_err(|e| of_file(here, e))?;
        file.write_all(&list).map_err(|e| of_file(file.path(), e))?;
        Ok(Some(file))
    }

    fn parents_of(&self, commit: &ObjectId) -> Vec<ObjectId> {
        let found = self.objects.iter().find_map(|dir| read_commit(dir, hash_of(commit), commit).ok());
        found.map(|found| found.parents).unwrap_or_default()
    }
}

/// The source of a refspec that is not a pattern; empty for a deletion.
fn source_of(refspec: &OsStr) -> Option<&OsStr> {
    let refspec = refspec.as_bytes();
    let refspec = refspec.strip_prefix(b"+").unwrap_or(refspec);
    let source = refspec.split(|byte| *byte == b':').next().unwrap_or_default();
    (!refspec.contains(&b'*')).then(|| OsStr::from_bytes(source))
}

/// The ref that `:ref` or `+:ref` deletes. A lone `:` pushes matching branches.
fn deleted_by(refspec: &OsStr) -> Option<&OsStr> {
    let refspec = refspec.as_bytes();
    let name = refspec.strip_prefix(b"+").unwrap_or(refspec).strip_prefix(b":")?;
    (!name.is_empty()).then(|| OsStr::from_bytes(name))
}

/// `git push` without the user's push settings. The clone's pre-push hook is run elsewhere, once for each push of
/// the user.
///
/// The options are passed in the environment, which only this user can read: for a lease in the older format one
/// of them is the holder's secret, and every user can see the arguments of a process. `-o` on the command line
/// would override them.
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

/// The fences of which a remote shows a lease or a mark: one connection.
pub(crate) fn fences_in(git: &Git, remote: &Remote, how: &How) -> Result<Vec<FenceName>, Failure> {
    let mut list = git.command(["ls-remote", "--refs"]);
    list.args(&remote.route.upload_pack).arg("--").arg(&remote.url).arg("refs/fence/*");
    let ran = run(&mut list, how).map_err(Failure::CannotRunGit)?;
    if !ran.status.success() {
        return Err(Failure::unheard(&remote.name, &ran, Denial::Access));
    }
    let fence = |line: &str| Some(LeasePart::in_name(&RefName::new(line.split_once('\t')?.1))?.0);
    Ok(String::from_utf8_lossy(&ran.stdout).lines().filter_map(fence).collect())
}
