//! Lines of the log as rows of CSV, for spreadsheets and databases.

use crate::{commands::audit::columns, log::journal::ReadLine};
use std::io::{self, Write};

/// The first row.
pub(crate) fn header(out: &mut impl Write) -> io::Result<()> {
    let names: Vec<&str> = columns::in_csv_form().map(|column| column.name).collect();
    writeln!(out, "{}", names.join(","))
}

/// The row of a line.
pub(crate) fn row(read: &ReadLine<'_>, out: &mut impl Write) -> io::Result<()> {
    // These bytes have been parsed as a line before.
    let fields = serde_json::from_slice(read.bytes)?;
    let cell = |column: &columns::Column| quoted(&column.cell(read.line, &fields).unwrap_or_default());
    let cells: Vec<String> = columns::in_csv_form().map(cell).collect();
    writeln!(out, "{}", cells.join(","))
}

/// Quoted as in RFC 4180: only if necessary, with quotes doubled.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_quoted() {
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
    fn row_has_every_column_and_lists_become_names() {
        let json = r#"{"seq":3,"time":"T","event":"push.accepted","push":3,"fence":"repo","token":5,"mark":4,
            "also":[{"fence":"deploy","token":9,"mark":8},{"fence":"docs","token":null,"mark":1}],"source":"none",
            "pusher":"a,b","refs":[{"name":"refs/heads/a","fence":"repo","old":null,"new":null},
            {"name":"refs/heads/b","fence":"repo","old":null,"new":null}],"count":2,"digest":"",
            "place":{"machine":"m","boot":"b","pid_ns":1,"uptime_ms":1},"elapsed_us":7,
            "prev":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
        let line = serde_json::from_str(json).unwrap();
        let mut out = Vec::new();
        row(&ReadLine { bytes: json.as_bytes(), line: &line }, &mut out).unwrap();
        let expected = "3,T,push.accepted,3,repo,5,4,deploy:9 docs,,,none,,\"a,b\",,refs/heads/a refs/heads/b,2,,7\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
