//! The command runs, with as few samples as possible. No time is asserted: a machine may be as slow as it likes.

#![allow(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};

fn benches(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_git-fence-benches")).args(arguments).output().unwrap()
}

fn is_installed(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success()
}

/// As in all other tests: `./check` builds and installs what is needed.
fn lacks_something() -> bool {
    let helper = Path::new(env!("CARGO_BIN_EXE_git-fence-benches")).with_file_name("git-fence-store");
    if helper.is_file() && is_installed("redis-server") && is_installed("setpriv") {
        return false;
    }
    let needed = std::env::var("GIT_FENCE_TESTS_NEED").unwrap_or_default();
    assert!(needed.is_empty(), "this test needs redis-server, setpriv, and  cargo build --workspace");
    eprintln!("note: skipped a test that needs redis-server, setpriv, and  cargo build --workspace");
    true
}

#[test]
fn leases_in_redis_are_measured() {
    if lacks_something() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.json");
    let redis = ["stores", "--built", "--engine", "redis", "--samples", "2", "--fences", "3"];
    let rows = ["--only", "lease", "--only", "fences", "--json", file.to_str().unwrap()];
    let ran = benches(&[&redis[..], &rows].concat());
    let (table, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    assert!(table.starts_with("| where ") && table.contains("| Redis | acquire, renew and release "), "{table}");
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&json["run"]["group"], &json["run"]["form"]), (&"stores".into(), &"2 samples".into()));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len() + 2, table.lines().count(), "{json}");
    for row in rows.iter().filter(|row| !row["limit"].is_null()) {
        assert!(row["over"]["ratio"].is_f64() && row["within"].is_boolean(), "{row}");
    }
    assert_eq!(rows.iter().filter(|row| !row["limit"].is_null()).count(), 2);
}

#[test]
fn wrong_usage_is_told() {
    let ran = benches(&["stores", "--engine", "paper"]);
    assert_eq!((ran.status.code(), ran.stdout.is_empty()), (Some(2), true));
}
