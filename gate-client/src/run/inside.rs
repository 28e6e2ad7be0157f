//! The environment of a command that runs under a lease, in which a plain `git push` is fenced.
//!
//! Environment variables tell git to hand pushes to the lease's URL to `git-remote-fence`. No file is
//! changed, so nothing changes outside of the command, and the environment does not contain the secret.
//!
//! There are two settings for that. `pushInsteadOf` leaves fetches alone, but git ignores it for remotes with an
//! explicit push URL, in any clone or worktree. Git always applies `insteadOf`, but then the helper has to fetch, too.
//! So `pushInsteadOf` is enough with a gate, which refuses pushes that bypass the helper, and `insteadOf` is needed
//! without one.

use crate::run::lfs;
use crate::{
    client::Client,
    failure::Failure,
    git::{
        Git,
        address::{address, local_path, without_password},
    },
    lease::held::LeaseDir,
    surroundings::{Environment, GitSettings as _, HELPER},
};
use git_fence_core::TickState;
use git_fence_system::env;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

const PROGRAM: &str = "git-remote-fence";

/// A setting of our own, which git ignores: the lease of an address. A run inside another run adds its own,
/// so both leases are found.
const LEASE_OF: (&str, &str) = ("git-fence.", ".lease");

/// The environment of a command that runs under the lease in `dir`.
pub(crate) fn environment(
    client: &Client,
    dir: &LeaseDir,
    outer: &Environment,
    plain_fetch: bool,
) -> Result<Environment, Failure> {
    let held = dir.held()?;
    let mut inside = outer.clone();
    inside.set(env::GIT_FENCE, held.fence.as_str());
    inside.set(env::GIT_FENCE_TOKEN, held.lease.token.to_string());
    inside.set(env::GIT_FENCE_OWNER, &held.lease.owner);
    inside.set(env::GIT_FENCE_REMOTE, &held.remote);
    inside.set(env::GIT_FENCE_LEASE, held.lease.id.as_str());
    if let Some((_, job)) = held.lease.jobs.iter().find(|(_, job)| job.state == TickState::Running) {
        inside.set(env::GIT_FENCE_TICK, job.tick.to_string());
        inside.set(env::GIT_FENCE_TICKS_DROPPED, job.dropped.to_string());
    }
    let absolute = std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned());
    inside.set(env::GIT_FENCE_DIR, &absolute);
    with_helper_in_path(&mut inside)?;

    let git = &client.local.git;
    let ours = address(OsStr::new(&client.remote.url), &git.dir);
    let remotes = Configured::remotes(git);
    let fetches_too = !held.gate && !plain_fetch;
    let uses_lfs = lfs::is_used(git);
    let ways: Vec<Way<'_>> = remotes.iter().filter_map(|remote| remote.way_to(&ours, git, fetches_too)).collect();
    let mut settings = outer.settings();
    // Users may list the protocols that git may use, so allow ours. Git checks the one behind it again.
    settings.push(("protocol.fence.allow".into(), "always".into()));
    if let Some(allowed) = outer.get(env::GIT_ALLOW_PROTOCOL) {
        inside.set(env::GIT_ALLOW_PROTOCOL, join(&[allowed, ":fence".as_ref()]));
    }
    settings.push((join(&[LEASE_OF.0.as_ref(), &ours, LEASE_OF.1.as_ref()]), absolute.into_os_string()));
    let spellings = spellings(&client.remote.url, &ours, fetches_too, uses_lfs);
    let aliases = aliases(git, client.remote.url.as_ref());
    for rule in rules(&spellings, &aliases, &remotes, &ours, &git.dir, fetches_too) {
        if !settings.contains(&rule) {
            settings.push(rule);
        }
    }
    if uses_lfs {
        settings.extend(lfs::settings(&ways, &ours, &client.local, dir)?);
    }
    inside.set_settings(&settings);
    check(&ways, git, &inside, &ours)?;
    Ok(inside)
}

/// The directory of the lease for pushes to `url`. It may no longer exist.
pub(crate) fn lease_of(environment: &Environment, url: &OsStr, base: &Path) -> Option<LeaseDir> {
    let key = join(&[LEASE_OF.0.as_ref(), &address(url, base), LEASE_OF.1.as_ref()]);
    let settings = environment.settings();
    let (_, dir) = settings.iter().rev().find(|(name, _)| *name == key)?;
    Some(LeaseDir::at(Path::new(dir)))
}

/// A remote in the user's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configured {
    name: String,
    /// Whether it has explicit push URLs.
    is_explicit: bool,
    /// The push URLs, as configured and as resolved by git.
    pushes: Vec<(OsString, OsString)>,
    /// The same for fetches, if it has no explicit push URLs.
    fetches: Vec<(OsString, OsString)>,
}

impl Configured {
    fn remotes(git: &Git) -> Vec<Configured> {
        let mut written: BTreeMap<OsString, [Vec<OsString>; 2]> = BTreeMap::new();
        for (key, value) in git.settings(&[], r"^remote\..*\.(push)?url$") {
            let Some(key) = key.as_bytes().strip_prefix(b"remote.") else { continue };
            let (name, kind) = match (key.strip_suffix(b".pushurl"), key.strip_suffix(b".url")) {
                (Some(name), _) => (name, 1),
                (None, Some(name)) => (name, 0),
                _ => continue,
            };
            let urls = &mut written.entry(OsString::from_vec(name.to_vec())).or_default()[kind];
            // An empty value clears the list.
            if value.is_empty() {
                urls.clear();
            } else {
                urls.push(value);
            }
        }
        let remotes = written.into_iter().filter_map(|(name, [urls, push_urls])| {
            let name = name.into_string().ok()?;
            let is_explicit = !push_urls.is_empty();
            let written = if is_explicit { push_urls } else { urls };
            let pushed_to = git.lines_of(["remote", "get-url", "--push", "--all", &name], b'\n');
            let fetched_from = match is_explicit {
                true => Vec::new(),
                false => git.lines_of(["remote", "get-url", "--all", &name], b'\n'),
            };
            let fetches = written.iter().cloned().zip(fetched_from).collect();
            Some(Configured { name, is_explicit, pushes: written.into_iter().zip(pushed_to).collect(), fetches })
        });
        remotes.collect()
    }

    fn way_to(&self, ours: &OsStr, git: &Git, fetches_too: bool) -> Option<Way<'_>> {
        let (_, url) = self.pushes.iter().find(|(_, leads_to)| address(leads_to, &git.dir) == ours)?;
        let fetch_url =
            (self.is_explicit || fetches_too).then(|| git.lines_of(["remote", "get-url", &self.name], b'\n').pop());
        let fetch_url = fetch_url.flatten().filter(|url| address(url, &git.dir) == ours);
        Some(Way { name: &self.name, url, fetch_url })
    }
}

/// A remote whose pushes go to the lease's repository.
pub(crate) struct Way<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: &'a OsStr,
    /// Its fetch URL, if fetches go through the helper, too.
    pub(crate) fetch_url: Option<OsString>,
}

/// The spellings of `url`, or of its prefixes, that another clone may use: git compares prefixes, and the helper
/// passes through pushes to other repositories.
fn spellings(url: &str, ours: &OsStr, all: bool, uses_lfs: bool) -> Vec<OsString> {
    let mut spellings = vec![OsString::from(url)];
    let is_local = local_path(url.as_ref()).is_some();
    if is_local {
        // Another clone on this machine may use the absolute path.
        spellings.extend([ours.to_owned(), join(&["file://".as_ref(), ours])]);
    }
    if all {
        let short = url.trim_end_matches('/').trim_end_matches(".git");
        spellings.push(short.into());
    }
    if all && is_local {
        // Or a path through a link, or relative to that clone.
        spellings.extend(["/", "./", "../"].map(OsString::from));
        // Git LFS bypasses the helper by a URL of this kind.
        spellings.extend((!uses_lfs).then(|| OsString::from("file://")));
    }
    spellings
}

/// The user's own rules that rewrite another spelling, which another clone may use, to `url`: `insteadOf` first.
fn aliases(git: &Git, url: &OsStr) -> [Vec<(OsString, OsString)>; 2] {
    [&b".insteadof"[..], b".pushinsteadof"].map(|kind| {
        let rules = git.settings(&[], r"^url\..*\.(push)?insteadof$").into_iter();
        let alias = |(key, prefix): (OsString, OsString)| {
            let base = key.as_bytes().strip_prefix(b"url.")?.strip_suffix(kind)?;
            let rest = url.as_bytes().strip_prefix(base)?;
            Some((join(&[&prefix, OsStr::from_bytes(rest)]), url.to_owned()))
        };
        rules.filter_map(alias).collect()
    })
}

/// The settings that send pushes to the lease's repository through the helper, for every spelling in the
/// configuration; with `fetches_too`, also for remotes with explicit push URLs elsewhere.
fn rules(
    spellings: &[OsString],
    [aliases, push_aliases]: &[Vec<(OsString, OsString)>; 2],
    remotes: &[Configured],
    ours: &OsStr,
    base: &Path,
    fetches_too: bool,
) -> Vec<(OsString, OsString)> {
    let rule = |written: &OsStr, leads_to: &OsStr, kind: &str| {
        let key = join(&["url.".as_ref(), HELPER.as_ref(), &without_password(leads_to), kind.as_ref()]);
        (key, written.to_owned())
    };
    let is_here = |way: &&(OsString, OsString)| address(&way.1, base) == ours;
    let (mut pushes, mut all): (Vec<_>, Vec<_>) =
        (spellings.iter().map(|url| (url.clone(), url.clone())).collect(), Vec::new());
    all.extend(pushes.iter().chain(aliases).filter(|_| fetches_too).cloned());
    pushes.extend(aliases.iter().chain(push_aliases).cloned());
    for remote in remotes {
        let written = if remote.is_explicit { &mut all } else { &mut pushes };
        written.extend(remote.pushes.iter().filter(is_here).cloned());
        all.extend(remote.fetches.iter().filter(is_here).filter(|_| fetches_too).cloned());
    }
    let of_kind = |ways: Vec<(OsString, OsString)>, kind| {
        ways.into_iter().map(move |(written, leads_to)| rule(&written, &leads_to, kind)).collect::<Vec<_>>()
    };
    [of_kind(pushes, ".pushInsteadOf"), of_kind(all, ".insteadOf")].concat()
}

/// A rule of the user for exactly this URL takes precedence over ours. Then a plain push would bypass the
/// fence, so refuse before anything runs.
fn check(ways: &[Way<'_>], git: &Git, inside: &Environment, ours: &OsStr) -> Result<(), Failure> {
    let git_inside = Git { environment: inside.clone(), ..git.clone() };
    for Way { name, .. } in ways {
        let goes_to = git_inside.lines_of(["remote", "get-url", "--push", "--all", name], b'\n');
        if goes_to.is_empty() || goes_to.iter().any(|url| address(url, &git.dir) == ours) {
            return Err(Failure::broken(
                format!(
                    "plain  git push {name}  would bypass the fence: your setting url.*.insteadOf or pushInsteadOf matches its whole URL"
                ),
                "shorten the prefix in that setting, for example to the host, or set the real URL in the remote",
            ));
        }
    }
    Ok(())
}

/// Git searches for the helper where it searches for all its commands.
fn with_helper_in_path(inside: &mut Environment) -> Result<(), Failure> {
    let path = inside.get(env::PATH).unwrap_or_default().to_owned();
    if std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()) {
        return Ok(());
    }
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let own = own.filter(|dir| dir.join(PROGRAM).is_file()).ok_or_else(|| {
        Failure::broken(
            format!("'{PROGRAM}' is neither in PATH nor next to this program"),
            "install it next to git-fence: git runs it for every push under the lease",
        )
    })?;
    let separator = if path.is_empty() { "" } else { ":" };
    inside.set(env::PATH, join(&[&path, separator.as_ref(), own.as_os_str()]));
    Ok(())
}

fn join(parts: &[&OsStr]) -> OsString {
    parts.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(is_explicit: bool, written: &str, leads_to: &str) -> Configured {
        let way = vec![(written.into(), leads_to.into())];
        let fetches = if is_explicit { Vec::new() } else { way.clone() };
        Configured { name: "r".into(), is_explicit, pushes: way, fetches }
    }

    #[test]
    fn every_spelling_of_the_url_has_a_rule() {
        let remotes = [
            remote(false, "gh:app", "https://h/app"),
            remote(true, "alias:app", "https://h/app.git"),
            remote(false, "https://h/app-infra", "https://h/app-infra"),
            remote(false, "https://bot:secret@h/app", "https://bot:secret@h/app"),
        ];
        let ours = address(OsStr::new("https://h/app"), Path::new("/"));
        let url = |fetches_too| spellings("https://h/app.git", &ours, fetches_too, false);
        let aliases = [vec![("h:app".into(), "https://h/app.git".into())], Vec::new()];
        let pairs = |expected: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            expected.iter().map(|(key, value)| (key.into(), value.into())).collect()
        };
        let with_gate = [
            ("url.fence::https://h/app.git.pushInsteadOf", "https://h/app.git"),
            ("url.fence::https://h/app.git.pushInsteadOf", "h:app"),
            ("url.fence::https://h/app.pushInsteadOf", "gh:app"),
            ("url.fence::https://h/app.pushInsteadOf", "https://bot:secret@h/app"),
            ("url.fence::https://h/app.git.insteadOf", "alias:app"),
        ];
        assert_eq!(rules(&url(false), &aliases, &remotes, &ours, Path::new("/"), false), pairs(&with_gate));
        let without = [
            ("url.fence::https://h/app.git.insteadOf", "https://h/app.git"),
            ("url.fence::https://h/app.insteadOf", "https://h/app"),
            ("url.fence::https://h/app.git.insteadOf", "h:app"),
            ("url.fence::https://h/app.insteadOf", "gh:app"),
            ("url.fence::https://h/app.git.insteadOf", "alias:app"),
            ("url.fence::https://h/app.insteadOf", "https://bot:secret@h/app"),
        ];
        let all = rules(&url(true), &aliases, &remotes, &ours, Path::new("/"), true);
        let instead: Vec<_> = all.iter().filter(|(key, _)| key.as_bytes().ends_with(b".insteadOf")).cloned().collect();
        assert_eq!(instead, pairs(&without));
        assert_eq!(all.len() - instead.len(), with_gate.len());
    }

    #[test]
    fn absolute_relative_and_linked_paths_are_all_matched() {
        let ours = OsStr::new("/srv/app.git");
        let all = spellings("../app.git", ours, true, false);
        assert_eq!(all, ["../app.git", "/srv/app.git", "file:///srv/app.git", "../app", "/", "./", "../", "file://"]);
        assert!(!spellings("../app.git", ours, true, true).contains(&"file://".into()));
        assert_eq!(spellings("../app.git", ours, false, false).len(), 3);
    }

    #[test]
    fn lease_of_an_inner_run_does_not_hide_that_of_the_outer_run() {
        let mut environment = Environment::default();
        let pair = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
        environment.set_settings(&[
            pair("git-fence.https://h/a.lease", "/outer"),
            pair("git-fence.https://h/b.lease", "/b"),
            pair("git-fence.https://h/a.lease", "/inner"),
        ]);
        let found =
            |url: &str| lease_of(&environment, OsStr::new(url), Path::new("/")).map(|dir| dir.path().to_owned());
        assert_eq!(found("https://h/a.git"), Some("/inner".into()));
        assert_eq!(found("https://h/b"), Some("/b".into()));
        assert_eq!(found("https://h/app"), None);
    }
}
