//! Values: parsed once, where they come in, and trusted from then on.
//!
//! Everything else is built of them. They know nothing of fences, logs or leases.

pub(crate) mod length;
pub(crate) mod names;
pub(crate) mod object_id;
pub(crate) mod push;
pub mod text;
pub(crate) mod token;
