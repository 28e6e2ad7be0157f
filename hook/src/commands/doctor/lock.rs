//! Checks whether the lock can be taken, and only by users who may push.

use crate::{
    commands::{
        advice::quoted,
        doctor::finding::{Finding, Severity},
    },
    host::clock::WaitBudget,
    log::{files::FenceDir, mutex::Mutex},
};
use std::time::{Duration, Instant};

/// The lock is held only briefly. A process that holds it for this long blocks all others.
const HELD_TOO_LONG: Duration = Duration::from_secs(1);

/// Everything that keeps a push from taking the lock, or lets readers do so.
pub(crate) fn check(dir: &FenceDir) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(held) = Mutex::is_held(dir, &WaitBudget::of(HELD_TOO_LONG, Instant::now())) {
        let sentence =
            format!("{held}, and has been for a while: pushes wait for it and are then refused as FENCE-BUSY");
        findings.push(Finding { name: "lock-held", severity: Severity::Error, sentence, fix: None });
    }
    for path in [dir.mutex(), dir.writer()] {
        if let Some(mode) = dir.lets_readers_lock(&path) {
            let sentence = format!(
                "'{}' can be opened by users with read access only: any of them can take the lock and block all pushes",
                path.display()
            );
            findings.push(Finding::warning("lock-readable", sentence, format!("chmod {mode:o} {}", quoted(&path))));
        }
    }
    findings
}
