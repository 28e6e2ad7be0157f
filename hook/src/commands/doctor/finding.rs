//! What a check reports.

use serde::Serialize;
use std::io::{self, Write};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Worth knowing.
    Note,
    /// The fence is weaker than it could be.
    Warning,
    /// The fence is absent, or stuck.
    Error,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) sentence: String,
    /// The shell command that fixes it.
    #[serde(rename = "mend", skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Finding {
    pub(crate) fn error(name: &'static str, sentence: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { name, severity: Severity::Error, sentence: sentence.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn warning(name: &'static str, sentence: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::error(name, sentence, fix) }
    }

    pub(crate) fn note(name: &'static str, sentence: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { severity: Severity::Note, ..Finding::error(name, sentence, fix) }
    }

    /// For people: the sentence, and the command that fixes it.
    pub(crate) fn show(&self, out: &mut impl Write) -> io::Result<()> {
        let Finding { name, severity, sentence, fix } = self;
        let severity = match severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        writeln!(out, "{severity}: {name}: {sentence}")?;
        fix.iter().try_for_each(|fix| writeln!(out, "  fix: {fix}"))
    }
}
