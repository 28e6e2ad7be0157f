//! The file that has the passwords for all clients of PostgreSQL.

use crate::{address::Address, surroundings::Surroundings};
use git_fence_system::env;
use std::fs;

/// The password in the file that every client of PostgreSQL reads: `host:port:database:user:password` in each line.
pub(super) fn password(around: &Surroundings, address: &Address, user: &str, database: &str) -> Option<String> {
    let file = around.text(env::PGPASSFILE).or_else(|| Some(around.text(env::HOME)? + "/.pgpass"))?;
    let lines = fs::read_to_string(file).ok()?;
    let host = address.hosts.first()?;
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
    lines.lines().find_map(|line| {
        let fields = fields_of(line)?;
        let fits = [host, port, database, user].iter().zip(&fields).all(|(have, field)| field == "*" || field == have);
        fits.then(|| fields[4].clone())
    })
}

/// The five fields of a line, in which a backslash stands before a colon or a backslash that is meant.
fn fields_of(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => fields.last_mut()?.extend(letters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    (!line.starts_with('#')).then_some(fields)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_password_file_has_five_fields() {
        let five = |line: &str| fields_of(line).map(|fields| fields[4].clone());
        assert_eq!(five("h:5432:db:me:se:cret").as_deref(), Some("se:cret"));
        assert_eq!(five(r"h:5432:db:me:a\:b\\c").as_deref(), Some(r"a:b\c"));
        assert_eq!(five("# h:5432:db:me:x"), None);
        assert_eq!(five("h:5432:db:me"), None);
    }
}
