//! Where a push runs: in which process, on which machine, since which boot.

use serde::{Deserialize, Serialize};

/// Where the gate ran when it admitted a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The kernel's boot id: equal ids mean the same kernel and the same boot.
    pub boot: String,
    /// The machine id, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The inode of the pid namespace: pids are only valid within one.
    pub pid_ns: u64,
    /// Milliseconds since boot, including suspend, in the machine's initial time namespace.
    pub uptime_ms: u64,
}

/// The process that moves the refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivePack {
    /// Its pid in [`Place::pid_ns`].
    pub pid: u32,
    /// Its start time in clock ticks since boot, in the machine's initial time namespace: distinguishes it from a
    /// later process with the same pid. 0 if unknown.
    pub start: u64,
    /// The inode of its pidfd, if the kernel gives each process its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
}

impl ReceivePack {
    /// Its start time in milliseconds since boot.
    pub fn started_ms(&self, ticks_per_second: u64) -> u64 {
        self.start.saturating_mul(1000) / ticks_per_second.max(1)
    }
}

/// What one place can tell about a process that was recorded at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Same kernel, same boot, same pid namespace: the process can be inspected.
    Clear,
    /// The same machine has rebooted since: the process is gone.
    Rebooted,
    /// Another namespace, or possibly another machine: the process cannot be inspected.
    Hidden,
}

impl Place {
    /// What can be told here (`self`) about a process that was recorded at `there`; `booted_since` says
    /// whether this boot began after the recording.
    ///
    /// Machines made from one image share their id, so another boot id is a reboot only if its boot is the
    /// later one. If in doubt, the process cannot be inspected.
    pub fn view_of(&self, there: &Place, booted_since: bool) -> View {
        if self.boot == there.boot {
            return if self.pid_ns == there.pid_ns { View::Clear } else { View::Hidden };
        }
        match (&self.machine, &there.machine) {
            (Some(here), Some(there)) if here == there && booted_since => View::Rebooted,
            _ => View::Hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_can_be_inspected_only_in_the_same_kernel_and_namespace() {
        let place = |boot: &str, machine: Option<&str>, pid_ns| Place {
            boot: boot.to_owned(),
            machine: machine.map(str::to_owned),
            pid_ns,
            uptime_ms: 0,
        };
        let here = place("b1", Some("m"), 1);
        for (there, booted_since, view) in [
            (place("b1", Some("m"), 1), false, View::Clear),
            // The same kernel, even if a container has another machine id.
            (place("b1", None, 1), false, View::Clear),
            (place("b1", Some("m"), 2), false, View::Hidden),
            (place("b0", Some("m"), 1), true, View::Rebooted),
            (place("b0", Some("m"), 2), true, View::Rebooted),
            // A clone of this machine that was booted later.
            (place("b0", Some("m"), 1), false, View::Hidden),
            (place("b0", Some("other"), 1), true, View::Hidden),
            (place("b0", None, 1), true, View::Hidden),
            // The same boot, whatever the clocks say.
            (place("b1", Some("m"), 1), true, View::Clear),
            (place("b1", Some("m"), 2), true, View::Hidden),
        ] {
            assert_eq!(here.view_of(&there, booted_since), view, "{there:?}, {booted_since}");
        }
    }
}
