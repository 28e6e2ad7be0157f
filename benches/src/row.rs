//! A row of the table: what was measured, and its limit.

use crate::spread::Spread;
use serde::Serialize;

/// What was measured, and how much of it there may be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Where it was measured, such as an engine.
    pub(crate) at: String,
    /// What was measured.
    pub(crate) what: String,
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// Ratio or figure is at most this; none if it is only shown.
    pub(crate) limit: Option<f64>,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Seen {
    /// How often something else fits into it.
    Over {
        /// What it is compared with.
        base: String,
        #[serde(flatten)]
        ratio: Ratio,
    },
    /// A figure of its own.
    Figure { value: f64, unit: &'static str },
}

/// A ratio of two medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) ratio: f64,
    /// Quartiles of the ratios of single rounds.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) of_ms: Spread,
    pub(crate) over_ms: Spread,
}

impl Row {
    pub(crate) fn ratio(at: &str, what: &str, base: &str, ratio: Ratio, limit: Option<f64>) -> Row {
        let seen = Seen::Over { base: base.to_owned(), ratio };
        Row { at: at.to_owned(), what: what.to_owned(), seen, limit }
    }

    pub(crate) fn figure(at: &str, what: &str, value: f64, unit: &'static str) -> Row {
        Row { at: at.to_owned(), what: what.to_owned(), seen: Seen::Figure { value, unit }, limit: None }
    }

    /// Whether it is within its limit, if it has one. What the table shows is what counts: two decimals.
    pub(crate) fn is_within(&self) -> Option<bool> {
        let value = match &self.seen {
            Seen::Over { ratio, .. } => (ratio.ratio * 100.0).round() / 100.0,
            Seen::Figure { value, .. } => *value,
        };
        self.limit.map(|limit| value <= limit)
    }
}
