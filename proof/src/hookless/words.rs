//! The steps of a trace, for people.

use super::{SwapStep, op_of, run_of};

/// A step in words.
pub fn line(step: SwapStep) -> String {
    let who = |p: usize| format!("run {}, {:<13}", run_of(p), format!("{:?}:", op_of(p)).to_lowercase());
    match step {
        SwapStep::Read(p) => format!("{} reads the lease", who(p)),
        SwapStep::Send(p) => format!("{} connects and sends its push", who(p)),
        SwapStep::Land(p) => format!("{} git moves the refs that it may", who(p)),
        SwapStep::Receive(p) => format!("{} the client receives the answer", who(p)),
        SwapStep::Lose(p) => format!("{} the answer is lost", who(p)),
        SwapStep::Kill(p) => format!("{} its receive-pack is killed", who(p)),
    }
}
