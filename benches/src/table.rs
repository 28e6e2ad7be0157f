//! The table for people, in Markdown, and the same rows as JSON.

use crate::row::{Row, Seen};
use serde_json::{Value, json};

const HEAD: [&str; 6] = ["where", "what", "measured", "ratio", "limit", ""];

/// The rows, with columns that line up in a terminal, too.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let cells: Vec<[String; 6]> = [HEAD.map(str::to_owned)].into_iter().chain(rows.iter().map(cells_of)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let padded: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule = line(&widths.map(|width| "-".repeat(width)));
    let mut lines: Vec<String> = cells.iter().map(line).collect();
    lines.insert(1, rule);
    lines.concat()
}

fn cells_of(row: &Row) -> [String; 6] {
    let (measured, ratio) = match &row.seen {
        Seen::Over { base, ratio } => (
            format!("{} ms, over {}: {} ms", number(ratio.of_ms.median), base, number(ratio.over_ms.median)),
            format!("{:.2} ({:.2} to {:.2})", ratio.ratio, ratio.low, ratio.high),
        ),
        Seen::Figure { value, unit } => (format!("{} {unit}", number(*value)), String::new()),
    };
    let limit = row.limit.map_or(String::new(), |limit| format!("{limit}"));
    let verdict = match row.is_within() {
        None => "",
        Some(true) => "pass",
        Some(false) => "fail",
    };
    [row.at.clone(), row.what.clone(), measured, ratio, limit, verdict.to_owned()]
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        at if at >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        at if at >= 10.0 => format!("{value:.1}"),
        at if at >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The rows with everything that was measured. `run` says how, and on which machine.
pub(crate) fn json(rows: &[Row], run: &Value) -> Value {
    let row = |row: &Row| {
        let mut value = json!(row);
        value["within"] = json!(row.is_within());
        value
    };
    json!({ "run": run, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{row::Ratio, spread::Spread};

    fn rows() -> Vec<Row> {
        let spread = |median| Spread { median, low: median, high: median };
        let ratio = |ratio| Ratio { ratio, low: 0.9, high: 1.75, of_ms: spread(3.0), over_ms: spread(2.345) };
        vec![
            Row::ratio("etcd", "a lease", "a swap", ratio(1.504), Some(1.5)),
            Row::ratio("redis", "a lease", "a swap", ratio(1.51), Some(1.5)),
            Row::ratio("redis", "no limit", "a swap", ratio(9.0), None),
            Row::figure("postgres", "connections", 1000.0, ""),
        ]
    }

    #[test]
    fn table_lines_up_and_judges() {
        let expected = "\
| where    | what        | measured                     | ratio               | limit |      |
| -------- | ----------- | ---------------------------- | ------------------- | ----- | ---- |
| etcd     | a lease     | 3 ms, over a swap: 2.35 ms   | 1.50 (0.90 to 1.75) | 1.5   | pass |
| redis    | a lease     | 3 ms, over a swap: 2.35 ms   | 1.51 (0.90 to 1.75) | 1.5   | fail |
| redis    | no limit    | 3 ms, over a swap: 2.35 ms   | 9.00 (0.90 to 1.75) |       |      |
| postgres | connections | 1000                         |                     |       |      |
";
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let table = markdown(&rows());
        assert_eq!(squeeze(&table).replace('-', ""), squeeze(expected).replace('-', ""));
        let lengths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }

    #[test]
    fn json_has_rows_verdicts_and_the_run() {
        let json = json(&rows(), &json!({ "samples": 3 }));
        assert_eq!(json["run"]["samples"], 3);
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(
            (&rows[0]["within"], &rows[1]["within"], &rows[2]["within"]),
            (&true.into(), &false.into(), &Value::Null)
        );
        assert_eq!((&rows[0]["over"]["base"], &rows[0]["over"]["ratio"]), (&"a swap".into(), &1.504.into()));
        assert_eq!((&rows[3]["figure"]["value"], &rows[3]["limit"]), (&1000.0.into(), &Value::Null));
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 123.4, 1000.0].map(number);
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123", "1000"]);
    }
}
