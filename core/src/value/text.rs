//! Text from outside, made safe to show.
//!
//! Terminals and language models read what the gate prints and records. What a pusher sent must stay data
//! there: short, on one line, and without anything that moves a cursor, changes a colour, or reorders or
//! hides letters.

use std::fmt::Write as _;

/// `bytes` as one line of at most `most` characters, without control and invisible characters.
pub fn one_line(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = text.chars().filter(|c| !is_unsafe(*c));
    let mut line: String = shown.by_ref().take(most).collect();
    if shown.next().is_some() {
        line.push('…');
    }
    line
}

/// `bytes` in single quotes, as one short line: for showing a refused value to its sender.
pub fn quoted(bytes: &[u8]) -> String {
    in_quotes(&one_line(bytes, 60))
}

/// `text` in single quotes, with quotes and backslashes escaped.
pub fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// `bytes` as text from which every byte can be read back: what is not plain text is escaped as `\xNN`.
///
/// Git allows neither backslashes nor control characters in ref names, so every valid name in UTF-8 stays
/// as it is.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || is_unsafe(c) {
                escape_bytes(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape_bytes(chunk.invalid(), &mut text);
    }
    text
}

/// The bytes that [`escape`] was given; `None` if `text` does not come from it.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let hex = rest[at..].strip_prefix("\\x")?.get(..2)?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &rest[at + 4..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    // One name has one spelling: refuse `\x+f`, `\xFF` and unnecessary escapes.
    (escape(&bytes) == text).then_some(bytes)
}

fn escape_bytes(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Characters that are not shown as themselves: controls, joiners, direction marks, tags.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_removed() {
        assert_eq!(one_line(b"a\x1b[31mb\nc\r\x07", 99), "a[31mbc");
        assert_eq!(one_line("x\u{202e}y\u{e0041}z\u{9b}".as_bytes(), 99), "xyz");
        assert_eq!(one_line(b"ok\xff", 99), "ok\u{fffd}");
        assert_eq!(one_line("ääää".as_bytes(), 3), "äää…");
        assert_eq!(one_line("äää".as_bytes(), 3), "äää");
    }

    #[test]
    fn quotes_and_backslashes_inside_quotes_are_escaped() {
        assert_eq!(quoted(b"a' or \\ b"), r"'a\' or \\ b'");
    }

    #[test]
    fn escaping_keeps_every_byte() {
        for bytes in [
            &b"refs/heads/main"[..],
            "refs/heads/größe".as_bytes(),
            b"a\xffb\\x41\xc2\x9b\n",
            b"",
            &(0..=255).collect::<Vec<u8>>(),
        ] {
            let text = escape(bytes);
            assert!(!text.chars().any(is_unsafe), "{text}");
            assert_eq!(unescape(&text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(escape("refs/heads/größe".as_bytes()), "refs/heads/größe");
        for text in ["\\", "\\x", "\\x4", "\\n41", "\\xä1", "\\x+f", "\\xFF", "\\x61", "\\xc3\\xa4"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }
}
