//! The terminal, if the output goes to one.

use std::os::fd::AsFd;

/// The number of columns of the terminal at `output`; `None` if it is not a terminal: piped output is never cut.
pub(crate) fn width(output: impl AsFd) -> Option<usize> {
    git_fence_system::terminal::columns(output).map(usize::from)
}

/// `text`, cut with … to at most `width` columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().map(columns).sum::<usize>() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fitting = text.chars().take_while(|c| {
        let fits = columns(*c) <= left;
        left = left.saturating_sub(columns(*c));
        fits
    });
    let mut cut: String = fitting.collect();
    cut.truncate(cut.trim_end().len());
    if width > 0 { cut + "…" } else { String::new() }
}

/// The width of a character in a terminal: East Asian characters and emoji take two columns. An approximation, but never
/// too small for the usual characters of ref names and user names.
fn columns(c: char) -> usize {
    match c {
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f000}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_only_if_it_does_not_fit() {
        for (text, width, cut_to) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("größe", 5, "größe"),
            ("größen", 5, "größ…"),
            ("a  bcd", 4, "a…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, width), cut_to, "{text} in {width}");
        }
    }
}
