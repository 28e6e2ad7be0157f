//! Values: parsed once, at the edge, and trusted from then on.
//!
//! Everything else is built from them. They know nothing about fences, logs or leases.

pub mod clone_setting;
pub(crate) mod length;
mod members;
pub(crate) mod names;
pub(crate) mod object_id;
pub(crate) mod push;
pub mod text;
pub(crate) mod token;
