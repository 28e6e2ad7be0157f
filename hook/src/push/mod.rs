//! A push on its way through the gate: from git's input to a verdict.
//!
//! `pre_receive` and `post_receive` are the entry points, called only by the command line. The modules here read the
//! push, the settings and the refs, and write to the log under its lock. They never move a ref: git does, after the gate
//! has admitted the push. Commands use only what they share with a push (`slot`, `settling`, `catch_up`,
//! `companion`, `plan`).

pub(crate) mod arrival;
pub(crate) mod catch_up;
pub(crate) mod companion;
pub(crate) mod gate;
pub(crate) mod leases;
pub(crate) mod messages;
pub(crate) mod plan;
pub(crate) mod post_receive;
pub(crate) mod pre_receive;
pub(crate) mod recorder;
pub(crate) mod settling;
pub(crate) mod slot;
pub(crate) mod store_question;
pub(crate) mod tokens;
pub(crate) mod trailers;
pub(crate) mod verdict;
pub(crate) mod watched;
