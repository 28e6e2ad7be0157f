//! Lines of the log as a table for people.

use crate::{
    commands::audit::columns::{COLUMNS, Column, InTable, NarrowLine},
    host::terminal,
    log::journal::ReadLine,
};
use std::io::{self, Write};

/// From this width on, a log line is one row of the table.
const WIDE: usize = 100;
/// The second row in a narrow table is indented past the line number.
const INDENT: &str = "       ";

/// The row of a log line. On a terminal of `width` columns, rows are cut to fit, and a narrow terminal shows the
/// details in a second row. Output to a file or pipe is not cut.
pub(crate) fn row(read: &ReadLine<'_>, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    // These bytes have been parsed as a line before.
    let fields = serde_json::from_slice(read.bytes)?;
    let shown = COLUMNS.iter().filter_map(|column| Some((column, column.in_table?)));
    let cell = |(column, format): (&Column, InTable)| {
        (format, column.cell(read.line, &fields).unwrap_or_else(|| "-".to_owned()))
    };
    let cells: Vec<(InTable, String)> = shown.map(cell).collect();
    writeln!(out, "{}", layout(&cells, width))
}

/// The row that names the columns.
pub(crate) fn headings(width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let shown = COLUMNS.iter().filter_map(|column| Some((column.in_table?, column.name.to_uppercase())));
    writeln!(out, "{}", layout(&shown.collect::<Vec<_>>(), width))
}

fn layout(cells: &[(InTable, String)], width: Option<usize>) -> String {
    let narrow = |line: NarrowLine| {
        let on_it = cells.iter().filter(|(format, _)| format.line == line);
        on_it.map(|(format, cell)| (format.narrow)(cell)).collect::<Vec<_>>().join("  ")
    };
    let shown = match width {
        Some(width) if width < WIDE => {
            let first = terminal::cut(&narrow(NarrowLine::First), width);
            let second = terminal::cut(&format!("{INDENT}{}", narrow(NarrowLine::Second)), width);
            format!("{first}\n{}", second.trim_end())
        }
        width => {
            let row = cells.iter().map(|(format, cell)| (format.wide)(cell)).collect::<Vec<_>>().join("  ");
            width.map_or(row.clone(), |width| terminal::cut(&row, width))
        }
    };
    shown.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminal_output_is_cut_and_a_narrow_one_has_two_rows() {
        let json = r#"{"seq":12,"time":"2026-01-02T03:04:05.678Z","event":"push.rejected","code":"FENCE-STALE",
            "reason":"token 41 is not above 42, the mark of fence 'repo'","token":41,"pusher":"anna","refs":[],"count":0,
            "elapsed_us":7,"prev":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
        let line = serde_json::from_str(json).unwrap();
        let show = |width| {
            let mut out = Vec::new();
            row(&ReadLine { bytes: json.as_bytes(), line: &line }, width, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = "    12  2026-01-02T03:04:05.678Z  rejected        41  anna          FENCE-STALE token 41 is not \
                     above 42, the mark of fence 'repo'\n";
        assert_eq!(show(None), whole);
        assert_eq!(show(Some(200)), whole);
        assert_eq!(
            show(Some(100)),
            "    12  2026-01-02T03:04:05.678Z  rejected        41  anna          FENCE-STALE token 41 is not abo…\n"
        );
        assert_eq!(show(Some(40)), "   12  2026-01-02 03:04:05  rejected\n       41  anna  FENCE-STALE token 41 i…\n");
        assert_eq!(show(Some(1)), "…\n…\n");
        let heading = |width| {
            let mut out = Vec::new();
            headings(width, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let shown = "   SEQ  TIME                      EVENT        TOKEN  PUSHER        DETAIL\n";
        assert_eq!((heading(None).as_str(), heading(Some(100)).as_str()), (shown, shown));
        assert_eq!(heading(Some(40)), "  SEQ  TIME                 EVENT\n       TOKEN  PUSHER  DETAIL\n");
    }
}
