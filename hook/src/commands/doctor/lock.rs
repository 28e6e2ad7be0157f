//! Whether the lock can be had, and by nobody who should not.

use crate::{
    commands::doctor::gate::{Finding, Severity, quoted},
    host::clock::Patience,
    log::{files::FenceDir, mutex::Mutex},
};
use std::time::{Duration, Instant};

/// The lock is held for moments only. Whoever holds it for so long holds everybody up.
const MOMENT: Duration = Duration::from_secs(1);

/// Everything that keeps a push from getting the lock, or lets others keep it from that.
pub(crate) fn check(dir: &FenceDir) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(held) = Mutex::is_held(dir, &Patience::of(MOMENT, Instant::now())) {
        let sentence = format!("{held}, and has been for a while: pushes wait for that, and are FENCE-BUSY then");
        findings.push(Finding { name: "lock-held", severity: Severity::Error, sentence, mend: None });
    }
    for path in [dir.mutex(), dir.writer()] {
        if let Some(mode) = dir.lets_readers_lock(&path) {
            let sentence = format!(
                "'{}' can be opened by users who may only read: each of them can hold the lock and keep all pushes waiting",
                path.display()
            );
            findings.push(Finding::warning("lock-readable", sentence, format!("chmod {mode:o} {}", quoted(&path))));
        }
    }
    findings
}
