//! The table of columns: what `audit` shows of a line is declared here, once. The CSV output, the table output and
//! `docs/reading-the-log.md` are made from it.

use crate::commands::audit::detail::detail;
use git_fence_core::Line;
use serde_json::Value;

/// A column of `audit`'s output.
pub(crate) struct Column {
    /// The field of the log line that it shows, and its name in CSV.
    pub(crate) name: &'static str,
    /// Its description, for the documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test writes it to the page"))]
    meaning: &'static str,
    of: Of,
    /// Its format in the table output, if it is shown there.
    pub(crate) in_table: Option<InTable>,
}

/// The source of a column.
enum Of {
    /// The field with the column's name, as in the log.
    Field,
    /// Prose made from the whole line. Not for programs.
    Words(fn(&Line) -> String),
}

/// The format of a column in the table output.
#[derive(Clone, Copy)]
pub(crate) struct InTable {
    /// In a wide table, with one row per log line.
    pub(crate) wide: fn(&str) -> String,
    /// In a narrow table, with two rows per log line.
    pub(crate) narrow: fn(&str) -> String,
    /// Which of the two rows it is in.
    pub(crate) line: NarrowLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NarrowLine {
    First,
    Second,
}

/// All columns, in order.
pub(crate) const COLUMNS: &[Column] = &[
    in_both(
        "seq",
        "the line's number",
        InTable { wide: |cell| format!("{cell:>6}"), narrow: |cell| format!("{cell:>5}"), line: NarrowLine::First },
    ),
    in_both(
        "time",
        "when it was written",
        InTable {
            wide: |cell| format!("{cell:<24}"),
            // Up to the second; the full time is in a wide table or a pipe.
            narrow: |cell| format!("{:<19}", cell.get(..19).map_or(cell.to_owned(), |cell| cell.replace('T', " "))),
            line: NarrowLine::First,
        },
    ),
    in_both(
        "event",
        "what happened",
        InTable { wide: |cell| format!("{:<10}", in_a_word(cell)), narrow: in_a_word, line: NarrowLine::First },
    ),
    in_csv("push", "the push's id: the number of the line that accepted it"),
    in_csv("fence", "the fence; the first one if a push concerns several"),
    in_both(
        "token",
        "the token for this fence",
        InTable { wide: |cell| format!("{cell:>6}"), narrow: str::to_owned, line: NarrowLine::Second },
    ),
    in_csv("mark", "the fence's mark"),
    in_csv("also", "further fences, each with its token"),
    in_csv("code", "why it was refused, or would have been"),
    in_csv("reason", "the same in words"),
    in_csv("source", "where the token came from"),
    in_csv("owner", "the owner that the pusher claims to be"),
    in_both(
        "pusher",
        "the pusher, as the host reports it",
        InTable { wide: |cell| format!("{cell:<12}"), narrow: str::to_owned, line: NarrowLine::Second },
    ),
    in_csv("address", "the address of the pusher"),
    in_csv("refs", "the refs, by name"),
    in_csv("count", "the total number of refs"),
    in_csv("moved", "how many of them moved"),
    in_csv("elapsed_us", "how long the decision took, in microseconds"),
    Column {
        name: "detail",
        meaning: "other details, in words",
        of: Of::Words(detail),
        in_table: Some(InTable { wide: str::to_owned, narrow: str::to_owned, line: NarrowLine::Second }),
    },
];

const fn in_csv(name: &'static str, meaning: &'static str) -> Column {
    Column { name, meaning, of: Of::Field, in_table: None }
}

const fn in_both(name: &'static str, meaning: &'static str, in_table: InTable) -> Column {
    Column { name, meaning, of: Of::Field, in_table: Some(in_table) }
}

/// The columns of the CSV output.
pub(crate) fn in_csv_form() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| matches!(column.of, Of::Field))
}

impl Column {
    /// The cell for a line, which is given parsed and as raw fields; `None` if the line has no such field.
    pub(crate) fn cell(&self, line: &Line, fields: &Value) -> Option<String> {
        match self.of {
            Of::Field => fields.get(self.name).filter(|field| !field.is_null()).map(in_one_cell),
            Of::Words(words) => Some(words(line)),
        }
    }
}

/// Lists become names: refs by name, further fences with their tokens.
fn in_one_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(in_one_cell).collect::<Vec<_>>().join(" "),
        Value::Object(item) => match (&item.get("name"), &item.get("fence"), &item.get("token")) {
            (Some(name), ..) => in_one_cell(name),
            (None, Some(fence), Some(Value::Number(token))) => format!("{}:{token}", in_one_cell(fence)),
            (None, Some(fence), _) => in_one_cell(fence),
            (None, None, _) => value.to_string(),
        },
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// `push.accepted` becomes `accepted`, `settings.changed` becomes `settings`.
fn in_a_word(event: &str) -> String {
    let word = match event.split_once('.') {
        Some((what, "changed")) => what,
        Some((_, happened)) => happened,
        None => event,
    };
    word.to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The table of `docs/reading-the-log.md`.
    pub(crate) fn markdown() -> String {
        let head = "| column | shows | in the table | in CSV |\n|---|---|---|---|\n".to_owned();
        let row = |column: &Column| {
            let Column { name, meaning, of, in_table } = column;
            let mark = |is_shown: bool| if is_shown { "yes" } else { "" };
            let cells = [mark(in_table.is_some()), mark(matches!(of, Of::Field))];
            format!("| `{name}` | {meaning} | {} | {} |\n", cells[0], cells[1])
        };
        head + &COLUMNS.iter().map(row).collect::<String>()
    }
}
