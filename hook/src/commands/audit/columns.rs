//! The table of columns: what `audit` shows of a line is declared here, once. CSV, the table for people and
//! `docs/reading-the-log.md` go by it.

use crate::commands::audit::detail::detail;
use git_fence_core::Line;
use serde_json::Value;

/// Something that `audit` shows of a line.
pub(crate) struct Column {
    /// The field of the log's lines that it shows; the name of its column in CSV.
    pub(crate) name: &'static str,
    /// For the documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page is made from it by a test"))]
    meaning: &'static str,
    of: Of,
    /// How the table for people shows it, if it does.
    pub(crate) in_table: Option<InTable>,
}

/// What a column is made of.
enum Of {
    /// The field of its name, as the log has it.
    Field,
    /// The whole line, in words. Not for programs.
    Words(fn(&Line) -> String),
}

/// How a column looks in the table.
#[derive(Clone, Copy)]
pub(crate) struct InTable {
    /// In a wide one, where a line of the log is one line.
    pub(crate) wide: fn(&str) -> String,
    /// In a narrow one, where it is two.
    pub(crate) narrow: fn(&str) -> String,
    /// On which of the two.
    pub(crate) line: NarrowLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NarrowLine {
    First,
    Second,
}

/// Every column there is, in order.
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
            wide: str::to_owned,
            // The day and the second; who looks closer has a wider terminal or a pipe.
            narrow: |cell| cell.get(..19).unwrap_or(cell).replace('T', " "),
            line: NarrowLine::First,
        },
    ),
    in_both(
        "event",
        "what happened",
        InTable { wide: |cell| format!("{:<10}", in_a_word(cell)), narrow: in_a_word, line: NarrowLine::First },
    ),
    in_csv("push", "the push's id: the number of the line that let it through"),
    in_csv("fence", "the fence; of a push over several, the first"),
    in_both(
        "token",
        "the token for it",
        InTable { wide: |cell| format!("{cell:>6}"), narrow: str::to_owned, line: NarrowLine::Second },
    ),
    in_csv("mark", "the fence's mark"),
    in_csv("also", "further fences, each with its token"),
    in_csv("code", "why it was refused, or would have been"),
    in_csv("reason", "the same in words"),
    in_csv("source", "where the token stood"),
    in_csv("owner", "what the pusher calls itself"),
    in_both(
        "pusher",
        "who the host says it is",
        InTable { wide: |cell| format!("{cell:<12}"), narrow: str::to_owned, line: NarrowLine::Second },
    ),
    in_csv("address", "where it comes from"),
    in_csv("refs", "the refs, by name"),
    in_csv("count", "how many refs there are in all"),
    in_csv("moved", "how many of them have moved"),
    in_csv("elapsed_us", "how long the decision took, in microseconds"),
    Column {
        name: "detail",
        meaning: "what else there is to say, in words",
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

/// The columns that are for programs, too.
pub(crate) fn in_csv_form() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| matches!(column.of, Of::Field))
}

impl Column {
    /// What it shows of a line, which is given as it was read and as the log has it; nothing where the line has no
    /// such field.
    pub(crate) fn cell(&self, line: &Line, fields: &Value) -> Option<String> {
        match self.of {
            Of::Field => fields.get(self.name).filter(|field| !field.is_null()).map(in_one_cell),
            Of::Words(words) => Some(words(line)),
        }
    }
}

/// Of lists, what there is to name: refs by name, further fences with their tokens.
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

/// `push.accepted` is accepted, `settings.changed` is settings.
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
