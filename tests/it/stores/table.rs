//! The table of journeys and stores: which journey was played where, and how it ended.
//!
//! A run of the tests writes `journeys-of-stores.md` into the target directory, anew with each journey that has ended, and `./check`
//! prints it. `GIT_FENCE_WRITE_DOCS=1 cargo test --test it stores::` writes the table of that run into docs/stores/journeys.md.

use super::{Place, journeys::JOURNEYS};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// The page with the table of a whole run.
const PAGE: &str = "docs/stores/journeys.md";

/// The first cells of every row.
const FIRST: [&str; 2] = ["journey", "what must hold"];

/// How a journey ended in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Ok,
    Failed,
    /// The engine is not here.
    Skipped,
    /// There is no such journey in this place.
    NotThere,
}

impl End {
    fn in_a_word(self) -> &'static str {
        match self {
            End::Ok => "ok",
            End::Failed => "FAILED",
            End::Skipped => "skipped",
            End::NotThere => "–",
        }
    }
}

/// The ends of a journey, in the order of [`Place::all`].
type Ends = Vec<End>;

static PLAYED: Mutex<BTreeMap<&'static str, Ends>> = Mutex::new(BTreeMap::new());

/// The name of the test in which `play` is a closure, as it is in [`JOURNEYS`].
#[track_caller]
pub(super) fn name_of<F>(_play: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let name = path.split_once("::stores::").map_or(path, |(_, name)| name).trim_end_matches("::{{closure}}");
    let listed = JOURNEYS.iter().flat_map(|(_, tests)| *tests).find(|test| **test == name);
    listed.unwrap_or_else(|| panic!("name the journey '{name}' in tests/it/stores/journeys.rs"))
}

/// Adds a row, and writes the table.
pub(super) fn add(name: &'static str, ends: Ends) {
    let mut played = PLAYED.lock().unwrap();
    played.insert(name, ends);
    let all = table(&played);
    fs::write(file(), &all).unwrap();
    let is_whole = JOURNEYS.iter().flat_map(|(_, tests)| *tests).all(|test| played.contains_key(test));
    if is_whole && std::env::var_os("GIT_FENCE_WRITE_DOCS").is_some() {
        let (before, _, after) = page();
        fs::write(path_of_page(), [before, all, after].concat()).unwrap();
    }
}

/// Where a run writes the table.
fn file() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("journeys-of-stores.md")
}

fn path_of_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)
}

/// The rows and their first cells, in the order in which they are listed.
fn rows() -> impl Iterator<Item = (&'static str, [String; 2])> {
    let row = |words: &str, test: &str| {
        let claim = test.split_once("::").map_or(test, |(_, claim)| claim);
        [words.to_owned(), claim.replace('_', " ")]
    };
    JOURNEYS.iter().flat_map(move |(words, tests)| tests.iter().map(move |test| (*test, row(words, test))))
}

fn heads() -> Vec<String> {
    FIRST.into_iter().map(str::to_owned).chain(Place::all().into_iter().map(Place::title)).collect()
}

/// The table, with empty cells where nothing has been played yet.
fn table(played: &BTreeMap<&'static str, Ends>) -> String {
    let cells = |(test, first): (&str, [String; 2])| {
        let ends = Place::all().into_iter().enumerate();
        let end = |nth: usize| played.get(test).map_or("", |ends| ends[nth].in_a_word()).to_owned();
        first.into_iter().chain(ends.map(|(nth, _)| end(nth))).collect::<Vec<_>>()
    };
    let mut lines = vec![heads()];
    lines.extend(rows().map(cells));
    let width = |nth: usize| lines.iter().map(|line| line[nth].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let written = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule = format!("|{}\n", widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect::<String>());
    let mut lines = lines.iter().map(written);
    lines.next().into_iter().chain([rule]).chain(lines).collect()
}

/// The page before its table, the table, and what follows.
fn page() -> (String, String, String) {
    let text = fs::read_to_string(path_of_page()).unwrap();
    let start = text.find("\n| journey ").unwrap_or_else(|| panic!("{PAGE} has no table of journeys")) + 1;
    let length: usize =
        text[start..].split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    let (before, rest) = text.split_at(start);
    let (table, after) = rest.split_at(length);
    (before.to_owned(), table.to_owned(), after.to_owned())
}

/// The cells of a line.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn page_has_the_rows_and_the_columns_of_the_tests() {
    let (_, table, _) = page();
    let mut lines = table.lines();
    let how = "To write the table anew:  GIT_FENCE_WRITE_DOCS=1 cargo test --test it stores::";
    assert_eq!(cells(lines.next().unwrap()), heads(), "{how}");
    let shown: Vec<Vec<&str>> = lines.skip(1).map(cells).collect();
    let first: Vec<&[&str]> = shown.iter().map(|row| &row[..2]).collect();
    assert_eq!(first, rows().map(|(_, first)| first).collect::<Vec<_>>(), "{how}");
    let is_end = |cell: &&str| ["ok", "skipped", "–"].contains(cell);
    for row in shown {
        assert!(row[2..].iter().all(is_end) && row.len() == heads().len(), "{row:?}\n{how}");
    }
}

/// Each name in the list is that of a test.
#[test]
fn listed_journeys_are_tests() {
    for (test, _) in rows() {
        let (module, name) = test.split_once("::").unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stores").join(module).with_extension("rs");
        let source = fs::read_to_string(path).unwrap();
        assert!(source.contains(&format!("#[test]\nfn {name}() {{\n")), "there is no test '{test}'");
    }
}
