//! Which repository a URL names: the same one may have several spellings.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// A URL in a normal form, for comparison. A path is resolved from `base`. For other URLs, a trailing `.git` or
/// slash and the user's name and password are removed.
pub(crate) fn address(url: &OsStr, base: &Path) -> OsString {
    match local_path(url) {
        Some(path) => repository_at(&base.join(path)).into_os_string(),
        None => {
            let url = without_password(url);
            let mut bytes = url.as_bytes();
            for end in [&b"/"[..], b".git", b"/"] {
                bytes = bytes.strip_suffix(end).unwrap_or(bytes);
            }
            OsString::from_vec(bytes.to_vec())
        }
    }
}

/// The name of the repository at `url` in a store, the same on all machines: host and path without scheme, user, port and
/// `.git`. A path on this machine is its own name.
pub(crate) fn resource(url: &OsStr, base: &Path) -> String {
    let address = address(url, base).to_string_lossy().into_owned();
    if local_path(url).is_some() {
        return address.trim_start_matches('/').trim_end_matches(".git").to_owned();
    }
    let (host, path) = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').unwrap_or((rest, "")),
        // As ssh is written in short: host:path.
        None => address.split_once(':').unwrap_or((&address, "")),
    };
    let host = host.rsplit('@').next().unwrap_or(host);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => host,
    };
    let path = path.trim_matches('/');
    if path.is_empty() { host.to_lowercase() } else { format!("{}/{path}", host.to_lowercase()) }
}

/// The URL without the name and password that a web URL may contain. Git hides them in its messages, but not
/// after the helper's prefix.
pub(crate) fn without_password(url: &OsStr) -> OsString {
    let bytes = url.as_bytes();
    let Some(scheme) = [&b"https://"[..], b"http://"].into_iter().find(|scheme| bytes.starts_with(scheme)) else {
        return url.to_owned();
    };
    let rest = &bytes[scheme.len()..];
    let host = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    let at = host.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    OsString::from_vec([scheme, &rest[at..]].concat())
}

/// The path that `url` names, if it is on this machine.
pub(crate) fn local_path(url: &OsStr) -> Option<PathBuf> {
    let bytes = url.as_bytes();
    if let Some(path) = bytes.strip_prefix(b"file://") {
        return Some(PathBuf::from(OsStr::from_bytes(path)));
    }
    // `host:path`, `scheme://…` and `helper::…` have a colon before the first slash.
    let first = bytes.iter().find(|byte| matches!(byte, b':' | b'/'));
    (first != Some(&b':') && !bytes.is_empty()).then(|| PathBuf::from(url))
}

/// The repository that git finds at `path`, trying the same places in the same order.
fn repository_at(path: &Path) -> PathBuf {
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let places = [with("/.git"), path.to_owned(), with(".git/.git"), with(".git")];
    let found = places.into_iter().filter_map(|place| fs::canonicalize(place).ok()).find(|place| place.is_dir());
    found.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_one_name_in_stores() {
        let base = Path::new("/");
        for url in [
            "https://git.example.com/team/app.git",
            "https://bot:secret@git.example.com:8443/team/app/",
            "ssh://git@git.example.com:2222/team/app.git",
            "git@git.example.com:team/app.git",
            "git@Git.Example.Com:/team/app",
        ] {
            assert_eq!(resource(OsStr::new(url), base), "git.example.com/team/app", "{url}");
        }
        assert_eq!(resource(OsStr::new("/srv/git/app.git"), base), "srv/git/app");
        assert_eq!(resource(OsStr::new("file:///srv/git/app.git"), base), "srv/git/app");
    }

    #[test]
    fn spellings_of_one_repository_have_one_address() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("app.git")).unwrap();
        fs::create_dir_all(base.join("app-infra.git")).unwrap();
        fs::create_dir_all(base.join("clone/.git")).unwrap();
        let at = |url: &str| address(OsStr::new(url), &base.join("clone"));
        let here = base.join("app.git").into_os_string();
        for url in ["../app.git", "../app", "../app.git/", base.join("app.git").to_str().unwrap()] {
            assert_eq!(at(url), here, "{url}");
        }
        assert_eq!(at(&format!("file://{}/app.git", base.display())), here);
        assert_ne!(at("../app-infra"), here);
        assert_eq!(at("."), base.join("clone/.git").into_os_string());
        assert_eq!(at("https://h/app.git/"), at("https://h/app"));
        assert_ne!(at("https://h/app-infra.git"), at("https://h/app"));
        assert_eq!(at("git@h:app.git"), OsString::from("git@h:app"));
        assert_eq!(at("https://bot:secret@h/app@2"), OsString::from("https://h/app@2"));
        assert_ne!(at("host:app"), at("./host:app"));
    }
}
