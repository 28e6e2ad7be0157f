//! The options of `audit`: which lines to show, and in which format.

use crate::{commands::audit::moment::Moment, host::clock};
use clap::Args;
use git_fence_core::{FenceName, FenceNameError, Filter, Token, TokenError};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct AuditArgs {
    /// The repository
    #[arg(default_value = ".")]
    pub(crate) repository: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// Only the last N of these lines
    #[arg(short = 'n', long = "last", value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Without the row that names the columns
    #[arg(long)]
    pub(crate) no_headings: bool,
    /// Keep showing new lines as they are written, until interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print the lines as they are in the log, one JSON object each
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values, with a header row, for spreadsheets
    #[arg(long)]
    csv: bool,
}

#[derive(Args)]
struct Selection {
    /// Only pushes that were refused, or would have been in enforce mode
    #[arg(long)]
    rejected: bool,
    /// Only lines that name this fence, this member of a family, or any member of this family
    #[arg(long, value_name = "NAME", value_parser = fence)]
    fence: Option<FenceName>,
    /// Only lines that name this pusher
    #[arg(long, value_name = "NAME")]
    pusher: Option<String>,
    /// Only lines that name this token
    #[arg(long, value_name = "N", value_parser = token)]
    token: Option<Token>,
    /// Only lines since then: 2026-01-31T12:00:00Z, 2026-01-31 (UTC), or how long ago, as in 2h or 7d
    #[arg(long, value_name = "T", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Only lines before then; a day is included completely
    #[arg(long, value_name = "T", value_parser = Moment::parse)]
    until: Option<Moment>,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditForm {
    Table,
    Json,
    Csv,
}

impl AuditArgs {
    pub(crate) fn form(&self) -> AuditForm {
        match (self.json, self.csv) {
            (true, _) => AuditForm::Json,
            (_, true) => AuditForm::Csv,
            (false, false) => AuditForm::Table,
        }
    }

    /// The selection, with relative times counted from now.
    pub(crate) fn filter(&self) -> Filter {
        let now = clock::timestamp();
        let Selection { rejected, fence, pusher, token, since, until } = &self.selection;
        Filter {
            rejected: *rejected,
            fence: fence.clone(),
            pusher: pusher.clone(),
            token: *token,
            since: since.as_ref().map(|since| since.beginning(now)),
            until: until.as_ref().map(|until| until.end(now)),
        }
    }
}

pub(crate) fn fence(name: &str) -> Result<FenceName, FenceNameError> {
    FenceName::read(name.as_bytes())
}

fn token(digits: &str) -> Result<Token, TokenError> {
    Token::parse(digits.as_bytes())
}
