//! The setting `fence.store`: where the leases of a fence are kept, if not in the repository.
//!
//! A store is known by its name, which marks carry: two names are two places, and no fence is kept in two. So the name is made
//! from the URL in one way, however the URL is spelled, and has everything in it that selects other records: `etcd://b,a:2379`
//! and `etcd+http://A,B` are one store, and each `?prefix=` of Redis is one of its own. Where machines reach one store by
//! different addresses, or its addresses change, `?name=` names it.

use serde::{Serialize, Serializer};
use std::{collections::BTreeSet, fmt};

/// The URL of a store. It may contain a password: only [`StoreUrl::reveal`] returns it whole, for the program that opens
/// the store. Logs, messages and listings get scheme, hosts and path.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Reads a URL. The error does not quote it.
    pub fn parse(url: &str) -> Result<StoreUrl, &'static str> {
        let expected = "expected a URL such as etcd://host:2379, or none";
        let (scheme, rest) = url.split_once("://").ok_or(expected)?;
        let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let is_text = !url.chars().any(|c| c.is_control() || c.is_whitespace());
        let has_host = !Parts::of(rest).hosts.is_empty();
        if Parts::of(rest).parameter(NAME_PARAMETER).is_some_and(|name| !is_store_name(name)) {
            return Err(WRONG_NAME);
        }
        if is_scheme && is_text && has_host { Ok(StoreUrl(url.to_owned())) } else { Err(expected) }
    }

    /// The URL with everything that is in it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The name of the store, without user and password.
    pub fn shown(&self) -> String {
        shown_url(&self.0)
    }
}

/// What may be told of a URL, or of what was meant to be one: the name of its store.
pub fn shown_url(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => name_of(&scheme.to_ascii_lowercase(), &Parts::of(rest)),
        // It may be a password.
        None => "(not a URL)".to_owned(),
    }
}

/// What is said of a name that no store may have.
pub const WRONG_NAME: &str = "expected a name of at most 64 of a-z 0-9 . _ - after ?name=";

/// The parameter that names a store.
pub const NAME_PARAMETER: &str = "name";

/// Whether a store may be called so.
pub fn is_store_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// An engine: its schemes, the port where it listens if none is given, what its path is if none is given, and the parameters
/// that select other records, each with its default.
struct Spelling {
    schemes: &'static [&'static str],
    port: &'static str,
    path: &'static str,
    parameters: &'static [(&'static str, &'static str)],
}

/// The first scheme of a row stands for all of them.
const SPELLINGS: [Spelling; 9] = [
    Spelling { schemes: &["etcd", "etcd+http"], port: "2379", path: "git-fence", parameters: &[] },
    Spelling { schemes: &["etcd+https"], port: "2379", path: "git-fence", parameters: &[] },
    Spelling { schemes: &["postgres", "postgresql"], port: "5432", path: "", parameters: POSTGRES },
    Spelling { schemes: &["redis"], port: "6379", path: "0", parameters: REDIS },
    Spelling { schemes: &["rediss"], port: "6379", path: "0", parameters: REDIS },
    Spelling { schemes: &["redis+sentinel"], port: "26379", path: "", parameters: REDIS },
    Spelling { schemes: &["rediss+sentinel"], port: "26379", path: "", parameters: REDIS },
    Spelling { schemes: &["http"], port: "80", path: "", parameters: &[] },
    Spelling { schemes: &["https"], port: "443", path: "", parameters: &[] },
];
const POSTGRES: &[(&str, &str)] = &[("host", ""), ("options", "")];
const REDIS: &[(&str, &str)] = &[("prefix", "git-fence:")];
/// Of an engine that this version does not know, and of Firestore, which has no hosts.
const OTHER: Spelling = Spelling { schemes: &[], port: "", path: "(default)", parameters: &[] };

/// What follows the scheme, without the login. Of a login with a slash or a question mark in it nothing is left over:
/// everything up to the last `@` may be part of a password.
struct Parts<'a> {
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Parts<'a> {
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        Parts { hosts, path, query }
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }
}

fn name_of(scheme: &str, parts: &Parts<'_>) -> String {
    let engine = match scheme.split('+').next().unwrap_or_default() {
        "postgresql" => "postgres",
        "rediss" => "redis",
        "https" => "http",
        engine => engine,
    };
    let spelling = SPELLINGS.iter().find(|spelling| spelling.schemes.contains(&scheme)).unwrap_or(&OTHER);
    if let Some(name) = parts.parameter(NAME_PARAMETER).filter(|name| is_store_name(name)) {
        return format!("{engine}:{name}");
    }
    let hosts: BTreeSet<String> = parts.hosts.split(',').map(|host| host_of(host, spelling.port)).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let path = parts.path.trim_end_matches('/');
    let path = if path.is_empty() || path == spelling.path { String::new() } else { format!("/{path}") };
    let selects = |(name, default): &(&str, &str)| {
        let value = parts.parameter(name).filter(|value| !value.is_empty() && value != default)?;
        Some(format!("{name}={value}"))
    };
    let query: Vec<String> = spelling.parameters.iter().filter_map(selects).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let scheme = spelling.schemes.first().unwrap_or(&scheme);
    format!("{scheme}://{}{path}{query}", hosts.join(","))
}

/// A host without the port that goes without saying.
fn host_of(host: &str, port: &str) -> String {
    let host = host.to_ascii_lowercase();
    match host.rsplit_once(':') {
        Some((name, given)) if given == port && !port.is_empty() => name.to_owned(),
        _ => host,
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_and_parameters_are_never_shown() {
        for (url, shown) in [
            ("etcd+https://bot:s3cret@a:2379,b:2380/pre?token=s3cret", "etcd+https://a,b:2380/pre"),
            ("REDIS://:s3cret@host", "redis://host"),
            ("postgres://u:s3/cret?@host/db#s3cret", "postgres://host/db"),
            ("firestore://project/database", "firestore://project/database"),
        ] {
            let read = StoreUrl::parse(url).unwrap();
            assert_eq!((read.to_string(), read.reveal()), (shown.to_owned(), url));
            assert_eq!(serde_json::to_value(&read).unwrap(), shown);
            assert!(!format!("{read:?}").contains("cret"), "{read:?}");
        }
        assert_eq!(shown_url("s3cret"), "(not a URL)");
    }

    #[test]
    fn one_store_has_one_name_however_its_url_is_spelled() {
        for (name, urls) in [
            ("etcd://a,b", &["etcd://a,b", "etcd+http://B:2379,A", "etcd://u:p@a,b/git-fence", "etcd://a,b,a/"][..]),
            ("postgres://a/db", &["postgresql://u@A:5432/db", "postgres://a/db?sslmode=require&application_name=x"]),
            ("redis://a", &["redis://a:6379/0", "redis://a?prefix=git-fence:", "redis://a?cacert=/f"]),
            ("redis+sentinel://a,b/main", &["redis+sentinel://b:26379,a/main"]),
            ("https://a/leases", &["https://A:443/leases/"]),
            ("firestore://project", &["firestore://project/(default)"]),
            ("etcd:prod", &["etcd://a?name=prod", "etcd+https://b,c/x?cacert=/f&name=prod"]),
            ("redis:prod", &["redis://a?name=prod", "rediss://b?name=prod", "redis+sentinel://c/main?name=prod"]),
            ("http:prod", &["https://a/b?name=prod"]),
        ] {
            for url in urls {
                assert_eq!(shown_url(url), name, "{url}");
            }
        }
    }

    #[test]
    fn two_stores_have_two_names() {
        let urls = [
            "etcd://a",
            "etcd://a:2380",
            "etcd://a/team",
            "etcd+https://a",
            "etcd://a?name=prod",
            "etcd://a?name=test",
            "postgres://a/db",
            "postgres://a/other",
            "postgres://a/db?options=-csearch_path%3Dteam",
            "redis://a",
            "redis://a/1",
            "redis://a?prefix=team:",
            "redis+sentinel://a/main",
            "redis+sentinel://a/other",
            "https://a/b",
            "https://a/B",
            "firestore://project",
            "firestore://project/database",
        ];
        let names: BTreeSet<String> = urls.iter().map(|url| shown_url(url)).collect();
        assert_eq!(names.len(), urls.len(), "{names:?}");
    }

    #[test]
    fn name_that_is_none_is_refused() {
        for name in ["", "Prod", "a b", "a/b", "%61", &"x".repeat(65)] {
            assert!(!is_store_name(name), "{name}");
            assert!(StoreUrl::parse(&format!("etcd://a?name={name}")).is_err(), "{name}");
        }
    }

    #[test]
    fn other_texts_are_no_urls() {
        for text in
            ["", "s3cret", "://host", "etcd://", "etcd://u:p@", "etcd://a b", "et cd://a", "etcd://?x", "etcd:///x"]
        {
            assert!(StoreUrl::parse(text).is_err_and(|why| !why.contains("s3cret")), "{text}");
        }
    }
}
