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
    /// Milliseconds since the boot, suspend included, as the machine's first time namespace counts them.
    pub uptime_ms: u64,
}

/// The process that moves the refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivePack {
    /// Its pid in [`Place::pid_ns`].
    pub pid: u32,
    /// Its start, in clock ticks since boot as the machine's first time namespace counts them: tells it from a
    /// later process with its pid. 0 where that cannot be told.
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
    /// Another namespace, or a machine that is another one or may be: one cannot look.
    Hidden,
}

impl Place {
    /// What can be known here (`self`) about a process that was recorded at `there`; `booted_since` says
    /// whether this boot began after that.
    ///
    /// Machines made from one image share their id, so another boot id is a reboot only if it is the later
    /// of the two. In doubt one cannot look.
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
    fn only_the_same_kernel_and_namespace_can_be_looked_at() {
        let place = |boot: &str, machine: Option<&str>, pid_ns| Place {
            boot: boot.to_owned(),
            machine: machine.map(str::to_owned),
            pid_ns,
            uptime_ms: 0,
        };
        let here = place("b1", Some("m"), 1);
        for (there, booted_since, view) in [
            (place("b1", Some("m"), 1), false, View::Clear),
            // One kernel is one kernel, whatever a container says of its machine id.
            (place("b1", None, 1), false, View::Clear),
            (place("b1", Some("m"), 2), false, View::Hidden),
            (place("b0", Some("m"), 1), true, View::Rebooted),
            (place("b0", Some("m"), 2), true, View::Rebooted),
            // A clone of this machine, which has been up for longer.
            (place("b0", Some("m"), 1), false, View::Hidden),
            (place("b0", Some("other"), 1), true, View::Hidden),
            (place("b0", None, 1), true, View::Hidden),
            // Whatever the clocks say, this is one boot.
            (place("b1", Some("m"), 1), true, View::Clear),
            (place("b1", Some("m"), 2), true, View::Hidden),
        ] {
            assert_eq!(here.view_of(&there, booted_since), view, "{there:?}, {booted_since}");
        }
    }
}
