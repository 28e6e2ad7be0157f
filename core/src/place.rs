//! Where a push is being carried out: which process, on which machine, since which boot.

use serde::{Deserialize, Serialize};

/// Where the gate ran when it let a push through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The kernel's boot id: the same id is the same kernel since the same boot.
    pub boot: String,
    /// The machine id, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The inode of the process namespace: pids mean something only within one.
    pub pid_ns: u64,
    /// Milliseconds since the boot, suspend included.
    pub uptime_ms: u64,
}

/// The process that moves the refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivePack {
    /// Its pid in [`Place::pid_ns`].
    pub pid: u32,
    /// Its start, in clock ticks since boot: tells it from a later process with its pid.
    pub start: u64,
    /// The inode of its pidfd, where the kernel gives each process its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
}

impl ReceivePack {
    /// When it started, in milliseconds since boot.
    pub fn started_ms(&self, ticks_per_second: u64) -> u64 {
        self.start.saturating_mul(1000) / ticks_per_second.max(1)
    }
}

/// What can be known here about a process that was recorded there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Same kernel, same boot, same process namespace: one can look.
    Clear,
    /// The same machine has booted since: no process of then is left.
    Rebooted,
    /// Another namespace or another machine: one cannot look.
    Hidden,
}

impl Place {
    /// What can be known here (`self`) about a process that was recorded at `there`.
    pub fn view_of(&self, there: &Place) -> View {
        if self.boot == there.boot {
            return if self.pid_ns == there.pid_ns { View::Clear } else { View::Hidden };
        }
        match (&self.machine, &there.machine) {
            (Some(here), Some(there)) if here == there => View::Rebooted,
            _ => View::Hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_kernel_and_namespace_can_be_looked_at() {
        let place = |boot: &str, machine: Option<&str>, pid_ns| Place {
            boot: boot.to_owned(),
            machine: machine.map(str::to_owned),
            pid_ns,
            uptime_ms: 0,
        };
        let here = place("b1", Some("m"), 1);
        for (there, view) in [
            (place("b1", Some("m"), 1), View::Clear),
            // One kernel is one kernel, whatever a container says of its machine id.
            (place("b1", None, 1), View::Clear),
            (place("b1", Some("m"), 2), View::Hidden),
            (place("b0", Some("m"), 1), View::Rebooted),
            (place("b0", Some("m"), 2), View::Rebooted),
            (place("b0", Some("other"), 1), View::Hidden),
            (place("b0", None, 1), View::Hidden),
        ] {
            assert_eq!(here.view_of(&there), view, "{there:?}");
        }
    }
}
