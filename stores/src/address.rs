//! Where a store is: its URL, taken apart once, with the password kept out of everything that is shown.

use git_fence_core::{NAME_PARAMETER, StoreFault, WRONG_NAME, is_store_name, shown_url};
use percent_encoding::percent_decode_str;
use std::{collections::BTreeMap, fmt};

/// A store's URL: `scheme://[user[:password]@]host[:port][,host…][/path][?name=value&…]`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// What comes before `://`.
    pub scheme: String,
    /// The hosts, with their ports as written.
    pub hosts: Vec<String>,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// What follows the hosts, without the first slash.
    pub path: String,
    /// What follows `?`.
    query: BTreeMap<String, String>,
    name: String,
}

/// Not shown: the password, and what the query may hold.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// The name of the store.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Address {
    /// Takes a URL apart.
    pub(crate) fn parse(url: &str) -> Result<Address, StoreFault> {
        let wrong = |why: &str| {
            let hint = "use for example  etcd+https://host:2379,  postgres://host/database,  redis://host,  \
                        firestore://project/database  or  https://host/path";
            StoreFault::unusable(format!("the URL of the store is wrong: {why}"), hint)
        };
        // The URL is not quoted anywhere: it may hold a password.
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("it has blanks or control characters"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // Where a password has a slash, a question mark or a hash that is not encoded, this would show the rest of it.
        if path.contains('@') || query.contains('@') || path.contains('#') {
            let why = "it has '@' or '#' after the hosts: write  / ? # @  in a password as  %2F %3F %23 %40";
            return Err(wrong(why));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(String::from).map_err(|_| wrong("it has a part that is not UTF-8"))
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        let mut pairs = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.insert(decode(name)?, decode(value)?);
        }
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if hosts.iter().any(String::is_empty) {
            return Err(wrong("it names no host"));
        }
        if pairs.remove(NAME_PARAMETER).is_some_and(|name| !is_store_name(&name)) {
            return Err(wrong(WRONG_NAME));
        }
        Ok(Address {
            name: shown_url(url),
            scheme: scheme.to_ascii_lowercase(),
            hosts,
            user: user.filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
            path: path.to_owned(),
            query: pairs,
        })
    }

    /// Scheme, hosts and path as they were written.
    pub(crate) fn as_written(&self) -> String {
        format!("{}://{}/{}", self.scheme, self.hosts.join(","), self.path)
    }

    /// Takes a value of the query.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.query.remove(name).filter(|value| !value.is_empty())
    }

    /// Fails if the query has more than what was taken: a misspelt name must not be ignored.
    pub(crate) fn nothing_left(&self, known: &str) -> Result<(), StoreFault> {
        match self.query.keys().next() {
            None => Ok(()),
            Some(name) => Err(StoreFault::unusable(
                format!("the URL of the store has the parameter '{name}', which {} does not know", self.scheme),
                format!("it knows: {known}"),
            )),
        }
    }

    /// What is left of the query, for the engine's own parser.
    pub(crate) fn rest_of_query(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A name as one segment of a path: everything but letters, digits, `-`, `_` and `.` is encoded.
pub(crate) fn one_segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_taken_apart_and_shown_without_its_password() {
        let mut address =
            Address::parse("etcd+https://bot:p%40ss@a:2379,[::1]:2380/pre/fix?cacert=/etc/ca.pem&x=1").unwrap();
        assert_eq!(address.hosts, ["a:2379", "[::1]:2380"]);
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("bot"), Some("p@ss")));
        assert_eq!(address.take("cacert").as_deref(), Some("/etc/ca.pem"));
        assert!(address.nothing_left("cacert").unwrap_err().why.contains("'x'"));
        for shown in [address.to_string(), format!("{address:?}")] {
            assert!(shown.contains("etcd+https://[::1]:2380,a/pre/fix"), "{shown}");
            assert!(!shown.contains("p@ss") && !shown.contains("p%40ss") && !shown.contains("bot"), "{shown}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_without_being_quoted() {
        for url in [
            "",
            "secret",
            "redis://",
            "redis://:secret@",
            "redis://a,,b",
            "redis://a b",
            "redis://u:%ff@a",
            "redis://u:/secret@a",
            "redis://u:?secret@a",
        ] {
            let fault = Address::parse(url).unwrap_err();
            assert!(!fault.why.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn name_is_one_segment() {
        assert_eq!(one_segment("host/app/repo"), "host%2Fapp%2Frepo");
        assert_eq!(one_segment("a.b-c_d%ü"), "a.b-c_d%25%C3%BC");
    }
}
