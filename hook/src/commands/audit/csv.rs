//! Lines of the log as rows of CSV, for spreadsheets and databases.

use serde_json::Value;
use std::io::{self, Write};

/// The columns, each named for the field of the log's lines that it shows.
const COLUMNS: [&str; 18] = [
    "seq",
    "time",
    "event",
    "push",
    "fence",
    "token",
    "mark",
    "also",
    "code",
    "reason",
    "source",
    "owner",
    "pusher",
    "address",
    "refs",
    "count",
    "moved",
    "elapsed_us",
];

/// The first row.
pub(crate) fn header(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))
}

/// The row of a line, as the log has it.
pub(crate) fn row(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    // It has been read as a line before.
    let line: Value = serde_json::from_slice(bytes)?;
    for (at, column) in COLUMNS.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(out, "{comma}{}", quoted(&cell(&line[column])))?;
    }
    writeln!(out)
}

/// Of lists, what there is to name: refs by name, further fences with their tokens.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Object(item) => match (&item.get("name"), &item.get("fence"), &item.get("token")) {
            (Some(name), ..) => cell(name),
            (None, Some(fence), Some(Value::Number(token))) => format!("{}:{token}", cell(fence)),
            (None, Some(fence), _) => cell(fence),
            (None, None, _) => value.to_string(),
        },
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Quoted as RFC 4180 says: only where it must be, quotes doubled.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_text_stays_in_its_cell() {
        for (text, cell) in [
            ("plain text", "plain text"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "=1+1"),
            ("", ""),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }

    #[test]
    fn a_row_has_every_column_and_names_what_lists_hold() {
        let line = r#"{"seq":3,"time":"T","event":"push.accepted","fence":"repo","token":5,"mark":4,
            "also":[{"fence":"deploy","token":9,"mark":8},{"fence":"docs","token":null,"mark":1}],
            "pusher":"a,b","refs":[{"name":"refs/heads/a","old":null},{"name":"refs/heads/b"}],"count":2,"elapsed_us":7}"#;
        let mut out = Vec::new();
        row(line.as_bytes(), &mut out).unwrap();
        let expected = "3,T,push.accepted,,repo,5,4,deploy:9 docs,,,,,\"a,b\",,refs/heads/a refs/heads/b,2,,7\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
