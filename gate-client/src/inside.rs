//! The surroundings of a command that runs under a lease: in them a plain `git push` is fenced.
//!
//! Git is told through the environment to hand pushes of the lease's URL to `git-remote-fence`. No
//! file is touched, so outside of the command nothing changes; and the secret is in none of it.

use crate::{
    address::{address, local_path, without_password},
    client::Client,
    failure::Failure,
    git::Git,
    held::LeaseDir,
    lfs,
    surroundings::{Environment, HELPER},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

const PROGRAM: &str = "git-remote-fence";

/// A setting that no git reads: which lease an address belongs to. One run inside another adds its
/// own, and both leases are found.
const LEASE_OF: (&str, &str) = ("git-fence.", ".lease");

/// The environment of a command that runs under the lease in `dir`.
pub(crate) fn environment(client: &Client, dir: &LeaseDir, outer: &Environment) -> Result<Environment, Failure> {
    let held = dir.held()?;
    let mut inside = outer.clone();
    inside.set("GIT_FENCE", held.fence.as_str());
    inside.set("GIT_FENCE_TOKEN", held.lease.token.to_string());
    inside.set("GIT_FENCE_OWNER", &held.lease.owner);
    inside.set("GIT_FENCE_REMOTE", &held.remote);
    inside.set("GIT_FENCE_LEASE", held.lease.id.as_str());
    let absolute = std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned());
    inside.set("GIT_FENCE_DIR", &absolute);
    with_helper_in_path(&mut inside)?;

    let git = &client.local.git;
    let ours = address(OsStr::new(&client.remote.url), &git.dir);
    let remotes = Configured::remotes(git);
    let ways: Vec<Way<'_>> = remotes.iter().filter_map(|remote| remote.way_to(&ours, git)).collect();
    let mut settings = outer.settings();
    // Where somebody lists the ways that git may go, this is one more; what is behind it is judged again.
    settings.push(("protocol.fence.allow".into(), "always".into()));
    if let Some(allowed) = outer.get("GIT_ALLOW_PROTOCOL") {
        inside.set("GIT_ALLOW_PROTOCOL", join(&[allowed, ":fence".as_ref()]));
    }
    settings.push((join(&[LEASE_OF.0.as_ref(), &ours, LEASE_OF.1.as_ref()]), absolute.into_os_string()));
    for rule in rules(&remotes, &client.remote.url, &ours, &git.dir) {
        if !settings.contains(&rule) {
            settings.push(rule);
        }
    }
    if lfs::is_used(git) {
        settings.extend(lfs::settings(&ways, &ours, &client.local, dir)?);
    }
    inside.set_settings(&settings);
    check(&ways, git, &inside, &ours)?;
    Ok(inside)
}

/// The directory of the lease that pushes to `url` belong to, whether it is still there or not.
pub(crate) fn lease_of(environment: &Environment, url: &OsStr, base: &Path) -> Option<LeaseDir> {
    let key = join(&[LEASE_OF.0.as_ref(), &address(url, base), LEASE_OF.1.as_ref()]);
    let settings = environment.settings();
    let (_, dir) = settings.iter().rev().find(|(name, _)| *name == key)?;
    Some(LeaseDir::at(Path::new(dir)))
}

/// A remote of the user's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configured {
    name: String,
    /// Whether its push URLs are written down as such.
    is_explicit: bool,
    /// Where pushes go: as it is written, and where that leads.
    pushes: Vec<(OsString, OsString)>,
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
            // An empty one takes back those before it.
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
            let leads_to = git.lines_of(["remote", "get-url", "--push", "--all", &name], b'\n');
            Some(Configured { name, is_explicit, pushes: written.into_iter().zip(leads_to).collect() })
        });
        remotes.collect()
    }

    fn way_to(&self, ours: &OsStr, git: &Git) -> Option<Way<'_>> {
        let (_, url) = self.pushes.iter().find(|(_, leads_to)| address(leads_to, &git.dir) == ours)?;
        let fetch_url =
            if self.is_explicit { git.lines_of(["remote", "get-url", &self.name], b'\n').pop() } else { None };
        let fetch_url = fetch_url.filter(|url| address(url, &git.dir) == ours);
        Some(Way { name: &self.name, url, fetch_url })
    }
}

/// A remote by which pushes come to the lease's repository.
pub(crate) struct Way<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: &'a OsStr,
    /// Where it is fetched from, if the helper is in the way of that, too.
    pub(crate) fetch_url: Option<OsString>,
}

/// The settings that send pushes to `url` through the helper, for every way in which the configuration
/// spells it. Where a push URL is written down, `pushInsteadOf` is not looked at, and only `insteadOf`
/// is left; fetches of that very URL go through the helper then, too.
fn rules(remotes: &[Configured], url: &str, ours: &OsStr, base: &Path) -> Vec<(OsString, OsString)> {
    let rule = |written: &OsStr, leads_to: &OsStr, kind: &str| {
        let key = join(&["url.".as_ref(), HELPER.as_ref(), &without_password(leads_to), kind.as_ref()]);
        (key, written.to_owned())
    };
    let mut rules = vec![rule(url.as_ref(), url.as_ref(), ".pushInsteadOf")];
    if local_path(url.as_ref()).is_some() {
        // Another clone on this machine may spell the path in full.
        let whole = ours.to_owned();
        let as_url = join(&["file://".as_ref(), ours]);
        rules.extend([whole, as_url].map(|url| rule(&url, &url, ".pushInsteadOf")));
    }
    for remote in remotes {
        let kind = if remote.is_explicit { ".insteadOf" } else { ".pushInsteadOf" };
        let here = remote.pushes.iter().filter(|(_, leads_to)| address(leads_to, base) == ours);
        rules.extend(here.map(|(written, leads_to)| rule(written, leads_to, kind)));
    }
    rules
}

/// A rule of the user's for exactly this URL comes before ours. Then a plain push would go around the
/// fence, and that is said before anything runs.
fn check(ways: &[Way<'_>], git: &Git, inside: &Environment, ours: &OsStr) -> Result<(), Failure> {
    let git_inside = Git { environment: inside.clone(), ..git.clone() };
    for Way { name, .. } in ways {
        let goes_to = git_inside.lines_of(["remote", "get-url", "--push", "--all", name], b'\n');
        if goes_to.is_empty() || goes_to.iter().any(|url| address(url, &git.dir) == ours) {
            return Err(Failure::broken(
                format!(
                    "a plain  git push {name}  would go around the fence: a url.*.insteadOf or pushInsteadOf of your own replaces exactly its URL"
                ),
                "shorten what that setting replaces, to the host for example, or write the real URL into the remote",
            ));
        }
    }
    Ok(())
}

/// Git looks for the helper where it looks for all its commands.
fn with_helper_in_path(inside: &mut Environment) -> Result<(), Failure> {
    let path = inside.get("PATH").unwrap_or_default().to_owned();
    if std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()) {
        return Ok(());
    }
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let own = own.filter(|dir| dir.join(PROGRAM).is_file()).ok_or_else(|| {
        Failure::broken(
            format!("'{PROGRAM}' is neither in the PATH nor beside this program"),
            "install it beside git-fence: git runs it for every push under the lease",
        )
    })?;
    let separator = if path.is_empty() { "" } else { ":" };
    inside.set("PATH", join(&[&path, separator.as_ref(), own.as_os_str()]));
    Ok(())
}

fn join(parts: &[&OsStr]) -> OsString {
    parts.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(is_explicit: bool, written: &str, leads_to: &str) -> Configured {
        Configured { name: "r".into(), is_explicit, pushes: vec![(written.into(), leads_to.into())] }
    }

    #[test]
    fn every_spelling_that_leads_to_the_url_has_a_rule() {
        let remotes = [
            remote(false, "gh:app", "https://h/app"),
            remote(true, "alias:app", "https://h/app.git"),
            remote(false, "https://h/app-infra", "https://h/app-infra"),
            remote(false, "https://bot:secret@h/app", "https://bot:secret@h/app"),
        ];
        let ours = address(OsStr::new("https://h/app"), Path::new("/"));
        let rules = rules(&remotes, "https://h/app", &ours, Path::new("/"));
        let expected = [
            ("url.fence::https://h/app.pushInsteadOf", "https://h/app"),
            ("url.fence::https://h/app.pushInsteadOf", "gh:app"),
            ("url.fence::https://h/app.git.insteadOf", "alias:app"),
            ("url.fence::https://h/app.pushInsteadOf", "https://bot:secret@h/app"),
        ];
        assert_eq!(rules, expected.map(|(key, value)| (OsString::from(key), OsString::from(value))));
    }

    #[test]
    fn the_lease_of_an_inner_run_does_not_hide_that_of_the_outer() {
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
