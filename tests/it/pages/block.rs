//! The code blocks of a page, and what is to be done with each.
//!
//! The word after the fence says what a block is. `sh` is a script that a reader pastes, `console` is a session with
//! `$ ` before each command and its output below, `NAME file=PATH` is the content of a file. Every other word (`text`, `json`,
//! `python` …) shows something and runs nothing. A comment before a block changes what happens to it:
//!
//! - `<!-- not run: REASON -->`: a reader can run it, the test cannot.
//! - `<!-- run` … `-->`: a script that readers do not see: what the page takes for granted.

/// What a page does, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A script that must succeed, line by line.
    Script { line: usize, text: String },
    /// A session: commands, each with the output that the page shows for it.
    Session { line: usize, turns: Vec<Turn> },
    /// The content of a file that later commands use.
    File { path: String, text: String },
    /// Commands that are not run, and why.
    NotRun { line: usize, reason: String },
}

/// A command of a session and what it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    /// The line of the page, from 1.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// The steps of a page, or the line that cannot be understood.
pub(super) fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut reason: Option<String> = None;
    let mut lines = page.lines().enumerate().map(|(at, line)| (at + 1, line));
    while let Some((at, line)) = lines.next() {
        if let Some(rest) = line.trim_start().strip_prefix("<!-- not run:") {
            let told = rest.trim_end_matches("-->").trim();
            reason = Some(told.to_owned()).filter(|told| !told.is_empty());
            reason.as_ref().ok_or(format!("line {at}: no reason"))?;
        } else if line.trim_start() == "<!-- run" {
            let text =
                until(&mut lines, |line| line.trim() == "-->").ok_or(format!("line {at}: the comment does not end"))?;
            steps.push(Step::Script { line: at, text: joined(&text) });
        } else if let Some(kind) = line.trim_start().strip_prefix("```") {
            let indent = line.len() - line.trim_start().len();
            let text =
                until(&mut lines, |line| line.trim() == "```").ok_or(format!("line {at}: the block does not end"))?;
            let text = text.into_iter().map(|(at, line)| (at, line.get(indent..).unwrap_or("").to_owned())).collect();
            if indent > 0 && kind == "console" {
                return Err(format!("line {at}: a session is not part of a list"));
            }
            steps.extend(step(at, kind, text, reason.take())?);
        } else if !line.trim().is_empty() && reason.is_some() {
            return Err(format!("line {at}: 'not run' is not before a block"));
        }
    }
    Ok(steps)
}

type Lines = Vec<(usize, String)>;

fn step(line: usize, kind: &str, text: Lines, not_run: Option<String>) -> Result<Option<Step>, String> {
    let (word, file) = kind.split_once(" file=").map_or((kind, None), |(word, path)| (word, Some(path)));
    let is_command = matches!(word, "sh" | "console") && file.is_none();
    Ok(match (word, file, not_run) {
        ("", ..) => return Err(format!("line {line}: the block does not say what it is (sh, console, text …)")),
        (_, _, Some(reason)) if is_command => Some(Step::NotRun { line, reason }),
        (_, _, Some(_)) => return Err(format!("line {line}: 'not run' before what would not be run anyway")),
        (_, Some(path), None) => Some(Step::File { path: path.to_owned(), text: joined(&text) }),
        ("sh", None, None) => Some(Step::Script { line, text: joined(&text) }),
        ("console", None, None) => Some(Step::Session { line, turns: turns(text)? }),
        _ => None,
    })
}

/// Commands begin with `$ `; a line that begins with `> ` carries the command on.
fn turns(text: Lines) -> Result<Vec<Turn>, String> {
    let mut turns: Vec<Turn> = Vec::new();
    for (line, text) in text {
        match (text.strip_prefix("$ "), turns.last_mut()) {
            (Some(command), _) => turns.push(Turn { line, command: command.to_owned(), output: Vec::new() }),
            (None, None) => return Err(format!("line {line}: a session begins with '$ '")),
            (None, Some(turn)) => match text.strip_prefix("> ").filter(|_| turn.output.is_empty()) {
                Some(more) => turn.command = format!("{}\n{more}", turn.command),
                None => turn.output.push(text),
            },
        }
    }
    Ok(turns)
}

fn until<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, is_end: impl Fn(&str) -> bool) -> Option<Lines> {
    let mut text = Vec::new();
    loop {
        let (at, line) = lines.next()?;
        if is_end(line) {
            return Some(text);
        }
        text.push((at, line.to_owned()));
    }
}

fn joined(lines: &[(usize, String)]) -> String {
    lines.iter().map(|(_, line)| format!("{line}\n")).collect()
}

#[test]
fn every_block_says_what_it_is() {
    assert_eq!(steps("```\nls\n```\n").unwrap_err(), "line 1: the block does not say what it is (sh, console, text …)");
    assert!(steps("<!-- not run: -->\n```sh\nls\n```\n").is_err());
    assert!(steps("<!-- not run: slow -->\nwords\n```sh\nls\n```\n").is_err());
    assert!(steps("```sh\nls\n").is_err());
    assert_eq!(steps("```text\nls\n```\n").unwrap(), []);
    let page =
        "<!-- run\nx=1\n-->\n```console\n$ echo \\\n> $x\n1\n$ true\n```\n<!-- not run: slow -->\n```sh\nls\n```\n";
    let session = vec![
        Turn { line: 5, command: "echo \\\n$x".to_owned(), output: vec!["1".to_owned()] },
        Turn { line: 8, command: "true".to_owned(), output: vec![] },
    ];
    let expected = [
        Step::Script { line: 1, text: "x=1\n".to_owned() },
        Step::Session { line: 4, turns: session },
        Step::NotRun { line: 11, reason: "slow".to_owned() },
    ];
    assert_eq!(steps(page).unwrap(), expected);
}
