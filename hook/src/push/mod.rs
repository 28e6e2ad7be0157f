//! A push on its way through the gate: what git says in, a verdict out.
//!
//! `pre_receive` and `post_receive` are the doors, called by the command line alone. What lives here reads the push,
//! the settings and the refs, and writes to the log under its lock. It never moves a ref: git does, after the gate has
//! let the push through. Commands use what they share with it (`slot`, `settling`, `catch_up`), nothing else.

pub(crate) mod arrival;
pub(crate) mod catch_up;
pub(crate) mod companion;
pub(crate) mod gate;
pub(crate) mod leases;
pub(crate) mod plan;
pub(crate) mod post_receive;
pub(crate) mod pre_receive;
pub(crate) mod recorder;
pub(crate) mod settling;
pub(crate) mod slot;
pub(crate) mod tokens;
pub(crate) mod trailers;
pub(crate) mod verdict;
pub(crate) mod voice;
