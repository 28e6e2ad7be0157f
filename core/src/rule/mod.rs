//! The rule: which fence guards a ref, which token is good, and why a push is refused.
//!
//! Called by the gate under its lock, and by the model, with the same values. Decisions are functions of what they are
//! given: no clock, no file, no environment.

pub(crate) mod code;
pub(crate) mod decide;
pub(crate) mod enforcement;
pub(crate) mod fence;
pub(crate) mod heirs;
pub(crate) mod offer;
pub(crate) mod pattern;
pub(crate) mod rules;
pub(crate) mod verdict;
