//! Git LFS reads push URLs from the configuration and does not support remote helpers. So we configure where
//! its objects go, in a file that git reads only for the clone of the lease: in another clone, a remote of the
//! same name may be another repository.

use crate::{
    failure::{Failure, of_file},
    files::write_whole,
    git::{Git, address::local_path, in_double_quotes, local::Local},
    lease::held::LeaseDir,
    run::inside::Way,
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Whether the user's git uses Git LFS.
pub(crate) fn is_used(git: &Git) -> bool {
    !git.lines_of(["config", "--get-regexp", r"^filter\.lfs\.(clean|process)$"], b'\n').is_empty()
}

/// The settings for the remotes `ways`, by name. `address` is the lease's repository.
pub(crate) fn settings(
    ways: &[Way<'_>],
    address: &OsStr,
    local: &Local,
    dir: &LeaseDir,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let chosen = chosen(&local.git);
    let mut file = Vec::new();
    let mut endpoints: Vec<Vec<u8>> = chosen.iter().map(|(_, url)| url.as_bytes().to_vec()).collect();
    for way in ways {
        let is_of_it = |key: &[u8]| {
            let key = key.strip_prefix(b"remote.").and_then(|key| key.strip_prefix(way.name.as_bytes()));
            key == Some(b".lfsurl") || key == Some(b".lfspushurl")
        };
        if chosen.iter().any(|(key, _)| is_of_it(key.as_bytes())) {
            continue;
        }
        file.extend([b"[remote ", &*in_double_quotes(way.name.as_bytes()), b"]\n"].concat());
        for (key, url) in [("lfspushurl", Some(way.url)), ("lfsurl", way.fetch_url.as_deref())] {
            let Some(endpoint) = url.map(|url| endpoint(url, address)) else { continue };
            file.extend([b"\t", key.as_bytes(), b" = ", &in_double_quotes(&endpoint), b"\n"].concat());
            endpoints.push(endpoint);
        }
    }
    // A URL that starts with ours would be rewritten to the helper's, unless a longer rule matches, so add one.
    // But not for a URL that can be a repository: pushes to it would bypass the fence.
    endpoints.retain(|url| url.ends_with(b"/info/lfs"));
    for url in &endpoints {
        file.extend([b"[url ", &*in_double_quotes(url), b"]\n"].concat());
        for key in ["insteadOf", "pushInsteadOf"] {
            file.extend([b"\t", key.as_bytes(), b" = ", &in_double_quotes(url), b"\n"].concat());
        }
    }
    let path = std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned()).join("config");
    write_whole(&path, &file).map_err(|e| of_file(&path, e))?;
    let common_dir = fs::canonicalize(&local.common_dir).unwrap_or_else(|_| local.common_dir.clone());
    let only_in = |below: &str| {
        let pattern =
            [&b"includeIf.gitdir:"[..], &literal(common_dir.as_os_str()), below.as_bytes(), b".path"].concat();
        (OsString::from_vec(pattern), path.clone().into_os_string())
    };
    Ok(vec![only_in(""), only_in("/worktrees/*")])
}

/// The endpoints that the user has configured.
fn chosen(git: &Git) -> Vec<(OsString, OsString)> {
    let keys = r"^(lfs\.(push)?url|remote\..*\.lfs(push)?url)$";
    [git.settings(&[], keys), git.settings(&["--file", ".lfsconfig"], keys)].concat()
}

/// The endpoint that Git LFS would derive from the URL, in a spelling that our rules do not rewrite: one that
/// starts differently, or, for the web, one with a longer rule.
fn endpoint(url: &OsStr, address: &OsStr) -> Vec<u8> {
    let bytes = url.as_bytes();
    if local_path(url).is_some() {
        return [b"file:///.", address.as_bytes()].concat();
    }
    if bytes.starts_with(b"http://") || bytes.starts_with(b"https://") {
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let end: &[u8] = if bytes.ends_with(b".git") { b"/info/lfs" } else { b".git/info/lfs" };
        return [bytes, end].concat();
    }
    if let Some(rest) = bytes.strip_prefix(b"ssh://") {
        return [b"git+ssh://", rest].concat();
    }
    match bytes.iter().position(|byte| *byte == b':').filter(|colon| !bytes[*colon..].starts_with(b"://")) {
        Some(colon) if !bytes.starts_with(b"[") => {
            let path = &bytes[colon + 1..];
            [b"git+ssh://", &bytes[..colon], b"/", path.strip_prefix(b"/").unwrap_or(path)].concat()
        }
        _ => bytes.to_vec(),
    }
}

/// A pattern that matches only this path.
fn literal(path: &OsStr) -> Vec<u8> {
    let is_special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
    path.as_bytes().iter().flat_map(|byte| is_special(*byte).then_some(b'\\').into_iter().chain([*byte])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_go_where_git_lfs_would_send_them() {
        let at = |url: &str| String::from_utf8(endpoint(OsStr::new(url), OsStr::new("/srv/app.git"))).unwrap();
        assert_eq!(at("https://h/app"), "https://h/app.git/info/lfs");
        assert_eq!(at("https://bot:x@h/app.git/"), "https://bot:x@h/app.git/info/lfs");
        assert_eq!(at("ssh://git@h/app.git"), "git+ssh://git@h/app.git");
        assert_eq!(at("git@h:me/app.git"), "git+ssh://git@h/me/app.git");
        assert_eq!(at("git@h:/srv/app.git"), "git+ssh://git@h/srv/app.git");
        assert_eq!(at("../app.git"), "file:///./srv/app.git");
        assert_eq!(literal(OsStr::new("/a[1]/b*")), br"/a\[1\]/b\*");
        assert_eq!(in_double_quotes(br#"a"b\c"#), br#""a\"b\\c""#);
    }
}
