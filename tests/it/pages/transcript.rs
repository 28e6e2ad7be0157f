//! Whether a command printed what its page shows.
//!
//! Pages show real output. Three things differ in every run and compare as equal: object ids, times, and blanks at the end
//! of a line. `…` stands for any text within a line, and a line that is only `…` for any number of lines.

/// Whether the lines that were printed are those that the page shows.
pub(super) fn agrees(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == "…" => (0..=printed.len()).any(|skip| agrees(rest, &printed[skip..])),
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, more)| same_line(first, line) && agrees(rest, more))
        }
    }
}

fn same_line(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (steady(shown), steady(printed));
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        (rest, last) = (&rest[at + part.len()..], Some(part));
    }
    // The text after the last `…` stands at the end.
    rest.is_empty() || last.is_some_and(|last| rest.ends_with(last))
}

/// The line with object ids and times replaced by a sign.
fn steady(line: &str) -> String {
    let line = line.trim_end();
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || (matches!(c, '-' | ':' | '.' | '_') && !word.is_empty()) {
            word.push(c);
        } else {
            out.push_str(&steady_word(&word));
            word.clear();
            out.push(c);
        }
    }
    out.trim_end().to_owned()
}

fn steady_word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':', '-']);
    let tail = &word[core.len()..];
    let has = |test: fn(&char) -> bool| core.chars().any(|c| test(&c));
    let is_id = core.len() >= 7
        && core.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && has(char::is_ascii_digit)
        && has(char::is_ascii_lowercase);
    if is_id {
        return format!("<id>{tail}");
    }
    if is_time(core) {
        return format!("<time>{tail}");
    }
    // Two ids with dots between them, as git shows a move.
    match core.split_once("..") {
        Some((old, new)) if !old.is_empty() => format!("{}..{}{tail}", steady_word(old), steady_word(new)),
        _ => word.to_owned(),
    }
}

/// `2026-01-31T12:00:00.123Z` and its parts, `2026-01-31` and `12:00:00Z`.
fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    let shape = shape.replace(".999", "");
    matches!(shape.as_str(), "9999-99-99T99:99:99Z" | "9999-99-99" | "99:99:99Z" | "99:99:99")
}

#[test]
fn a_page_must_show_what_is_printed() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let agrees = |shown, printed| agrees(&lines(shown), &lines(printed));
    assert!(agrees("a\nb", "a\nb"));
    assert!(!agrees("a", "a\nb"));
    assert!(!agrees("a\nb", "a"));
    assert!(!agrees("token 4", "token 5"));
    assert!(agrees("held for … s", "held for 12 s"));
    assert!(!agrees("held for … s", "held for 12 min"));
    assert!(!agrees("… b", "a b c"));
    assert!(agrees("a\n…\nc", "a\nb\nb\nc"));
    assert!(!agrees("a\n…\nc", "a\nb"));
    assert!(agrees("   1a2b3c4..5d6e7f8  main -> main", "   0a2b3c4..5d6e7f9  main -> main"));
    assert!(agrees("2026-01-31T12:00:00.123Z  accepted", "2030-11-01T02:10:05.001Z  accepted"));
    assert!(!agrees("deadbeef00 x", "cafe x"));
}
