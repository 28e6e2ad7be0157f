//! Checks that tables in the documentation match those in the code. The failing test prints the command that updates the
//! page.

use crate::{commands::audit::columns, repository::settings};
use git_fence_core::{
    Code,
    clone_setting::{CLONE_SETTINGS, CloneSetting},
};
use std::{fs, path::Path};

/// The variable that makes the tests write the pages.
const WRITE: &str = "GIT_FENCE_WRITE_DOCS";

/// Compares a table with the one on a page that has the same first row.
#[expect(clippy::disallowed_methods, reason = "used by a test, not by the gate")]
fn assert_shown(page: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let head = table.lines().next().unwrap();
    let start = text.find(head).unwrap_or_else(|| panic!("{page} has no table that begins with {head}"));
    let rows = text[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let end = start + rows.map(str::len).sum::<usize>();
    if text[start..end] == *table {
        return;
    }
    let command = format!("{WRITE}=1 cargo test -p git-fence-hook --lib documentation");
    let writes = std::env::var_os(WRITE).is_some();
    assert!(writes, "the table in {page} differs from the code. To update it:\n\n    {command}\n");
    fs::write(&path, [&text[..start], table, &text[end..]].concat()).unwrap();
}

#[test]
fn settings_page_matches_the_code() {
    assert_shown("docs/settings.md", &settings::table::tests::markdown());
}

#[test]
fn settings_of_clones_match_the_code() {
    let head = "| setting of a clone | values | default | meaning |\n|---|---|---|---|\n".to_owned();
    let row = |CloneSetting { key, values, default, meaning }: &CloneSetting| {
        format!("| `fence.{key}` | {values} | {default} | {meaning} |\n")
    };
    assert_shown("docs/settings.md", &(head + &CLONE_SETTINGS.iter().map(row).collect::<String>()));
}

#[test]
fn codes_page_matches_the_code() {
    let head = "| code | meaning | what to do |\n|---|---|---|\n".to_owned();
    let row = |code: &Code| format!("| `{code}` | {} | {} |\n", code.meaning(), code.remedy());
    assert_shown("docs/codes.md", &(head + &Code::ALL.iter().map(row).collect::<String>()));
}

#[test]
fn columns_page_matches_the_code() {
    assert_shown("docs/reading-the-log.md", &columns::tests::markdown());
}
