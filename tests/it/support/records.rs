//! The records in a store, read and written by hand through `git-fence-store`.

use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const WITHIN_MS: u64 = 30_000;

/// An open store.
pub(crate) struct Records {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The program, which `cargo build --workspace` puts beside the others.
fn program() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_git-fence")).with_file_name("git-fence-store");
    assert!(path.is_file(), "there is no {}: run  cargo build --workspace", path.display());
    path
}

impl Records {
    pub(crate) fn at(url: &str) -> Records {
        let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut records = Records { child, input, output };
        let opened = records.ask(&json!({ "do": "open", "url": url }));
        assert_eq!(opened["is"], "opened", "{opened}");
        records
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
        let mut reply = String::new();
        self.output.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap_or_else(|e| panic!("{e}: {reply}"))
    }

    /// Makes what the engine needs, such as tables. Returns whether it could.
    pub(crate) fn init(&mut self) -> bool {
        self.ask(&json!({ "do": "init", "within_ms": WITHIN_MS }))["is"] == "made"
    }

    fn found(&mut self, name: &str) -> Value {
        let found = self.ask(&json!({ "do": "read", "name": name, "within_ms": WITHIN_MS }));
        assert_eq!(found["is"], "found", "{found}");
        found["record"].clone()
    }

    /// The body of a record; none if there is no such record.
    pub(crate) fn body(&mut self, name: &str) -> Option<String> {
        self.found(name)["body"].as_str().map(str::to_owned)
    }

    /// The record, parsed.
    pub(crate) fn record(&mut self, name: &str) -> Value {
        serde_json::from_str(&self.body(name).expect("there is a record")).unwrap()
    }

    /// Replaces a record, whatever it is.
    pub(crate) fn put(&mut self, name: &str, body: &str) {
        let expected = self.found(name);
        let swap = json!({
            "do": "swap", "name": name, "expected": expected, "next": body, "keep": true, "within_ms": WITHIN_MS
        });
        let answer = self.ask(&swap);
        assert_eq!(answer["is"], "won", "{answer}");
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
