//! The setting `fence.store`: where the leases of a fence are kept, if not in the repository.

use serde::{Serialize, Serializer};
use std::fmt;

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
        let has_host = !host_and_path(rest).split('/').next().unwrap_or_default().is_empty();
        if is_scheme && is_text && has_host { Ok(StoreUrl(url.to_owned())) } else { Err(expected) }
    }

    /// The URL with everything that is in it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL without user, password and parameters.
    pub fn shown(&self) -> String {
        shown_url(&self.0)
    }
}

/// A URL, or what was meant to be one, without user, password and parameters.
pub fn shown_url(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{}://{}", scheme.to_ascii_lowercase(), host_and_path(rest)),
        // It may be a password.
        None => "(not a URL)".to_owned(),
    }
}

/// What follows the scheme, without login, query and fragment. Of a login with a slash or a question mark in it nothing is
/// left over: everything up to the last `@` may be part of a password.
fn host_and_path(rest: &str) -> &str {
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split(['?', '#']).next().unwrap_or_default()
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
            ("etcd+https://bot:s3cret@a:2379,b:2379/pre?token=s3cret", "etcd+https://a:2379,b:2379/pre"),
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
    fn other_texts_are_no_urls() {
        for text in
            ["", "s3cret", "://host", "etcd://", "etcd://u:p@", "etcd://a b", "et cd://a", "etcd://?x", "etcd:///x"]
        {
            assert!(StoreUrl::parse(text).is_err_and(|why| !why.contains("s3cret")), "{text}");
        }
    }
}
