//! Lines of the log for people's eyes.

use crate::host::terminal;
use git_fence_core::Token;

/// From this many columns on, a line of the log is one line of the table.
const WIDE: usize = 100;

/// What the table shows of a line: when, what, which token, who, and the details.
pub(crate) struct Row<'a> {
    pub(crate) seq: u64,
    pub(crate) time: &'a str,
    pub(crate) what: &'static str,
    pub(crate) token: Option<Token>,
    pub(crate) who: &'a str,
    pub(crate) detail: String,
}

impl Row<'_> {
    /// The row as text. A terminal of `width` columns gets no more than fit: the details are cut, and
    /// a narrow one shows them on a line of their own. What goes elsewhere is whole.
    pub(crate) fn show(&self, width: Option<usize>) -> String {
        let Row { seq, time, what, who, detail, .. } = self;
        let token = self.token.map_or("-".to_owned(), |token| token.to_string());
        let shown = match width {
            Some(width) if width < WIDE => {
                // The day and the second; who looks closer has a wider terminal or a pipe.
                let time = time.get(..19).unwrap_or(time).replace('T', " ");
                let first = terminal::cut(&format!("{seq:>5}  {time}  {what}"), width);
                let second = terminal::cut(&format!("       {token}  {who}  {detail}"), width);
                format!("{first}\n{}", second.trim_end())
            }
            width => {
                let row = format!("{seq:>6}  {time}  {what:<10}  {token:>6}  {who:<12}  {detail}");
                width.map_or(row.clone(), |width| terminal::cut(&row, width))
            }
        };
        shown.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_cuts_and_a_narrow_one_takes_two_lines() {
        let row = Row {
            seq: 12,
            time: "2026-01-02T03:04:05.678Z",
            what: "rejected",
            token: Token::parse(b"41").ok(),
            who: "anna",
            detail: "FENCE-STALE token 41 is not above 42, the mark of fence 'repo'".to_owned(),
        };
        let whole = "    12  2026-01-02T03:04:05.678Z  rejected        41  anna          FENCE-STALE token 41 is not \
                     above 42, the mark of fence 'repo'";
        assert_eq!(row.show(None), whole);
        assert_eq!(row.show(Some(200)), whole);
        assert_eq!(
            row.show(Some(100)),
            "    12  2026-01-02T03:04:05.678Z  rejected        41  anna          FENCE-STALE token 41 is not abo…"
        );
        assert_eq!(
            row.show(Some(40)),
            "   12  2026-01-02 03:04:05  rejected\n       41  anna  FENCE-STALE token 41 i…"
        );
        assert_eq!(row.show(Some(1)), "…\n…");
    }
}
