//! The rule: which fence guards a ref, which tokens are admitted, and why a push is refused.
//!
//! The gate calls it under its lock, and the model with the same values. Decisions depend only on their arguments:
//! no clock, no file, no environment.

pub(crate) mod code;
pub(crate) mod decide;
pub(crate) mod enforcement;
pub(crate) mod family;
pub(crate) mod fence;
pub(crate) mod heirs;
pub(crate) mod hint;
pub(crate) mod offer;
pub(crate) mod pattern;
pub(crate) mod reject;
pub(crate) mod rules;
pub(crate) mod store_setting;
pub(crate) mod weaker;
