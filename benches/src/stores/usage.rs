//! What processes use, as the kernel counts it.

use crate::Outcome;
use std::{collections::BTreeMap, fs, time::Duration};

/// The processor time of these processes, with all of their threads.
pub(super) fn of(pids: &[u32]) -> Outcome<Duration> {
    let mut nanoseconds = 0;
    for pid in pids {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            // In nanoseconds. The times in `stat` are in hundredths of a second, too coarse for a process that does little.
            let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let ran = stat.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok());
            nanoseconds += ran.ok_or("the kernel does not count what threads use")?;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The same of a process and all that it has started.
pub(super) fn of_tree(root: u32) -> Outcome<Duration> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut tree, mut next) = (vec![root], 0);
    while let Some(pid) = tree.get(next).copied() {
        tree.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    of(&tree)
}

/// The second field behind the name, which may have spaces and brackets.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The memory that belongs to one of these processes alone, on average, in KiB.
pub(super) fn memory_kib(pids: &[u32]) -> Outcome<f64> {
    let mut all = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let own =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
        all += own.unwrap_or(0_u64);
    }
    Ok(all as f64 / pids.len().max(1) as f64)
}

/// Established connections to a port of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connections {
    pub(super) of_clients: usize,
    pub(super) of_server: usize,
}

pub(super) fn connections(port: u16) -> Outcome<Connections> {
    Ok(connections_in(&fs::read_to_string("/proc/net/tcp")?, port))
}

/// Both ends of a connection on loopback are in the same table.
fn connections_in(table: &str, port: u16) -> Connections {
    const ESTABLISHED: &str = "01";
    let end = format!(":{port:04X}");
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open: Vec<_> = lines.filter(|fields| fields.get(3) == Some(&ESTABLISHED)).collect();
    let ending = |field: usize| open.iter().filter(|fields| fields[field].ends_with(&end)).count();
    Connections { of_clients: ending(2), of_server: ending(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn both_ends_of_a_connection_are_counted() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:18EB 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0100007F:C350 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0100007F:C351 0100007F:18EB 06 00000000:00000000 00:00000000 00000000     0        0 0
   4: 0100007F:C350 0100007F:18EC 01 00000000:00000000 00:00000000 00000000     0        0 4
";
        assert_eq!(connections_in(table, 0x18eb), Connections { of_clients: 1, of_server: 1 });
    }

    #[test]
    fn parent_is_found_behind_any_name() {
        assert_eq!(parent_of("7 (a) b (c) S 3 7 7 0"), Some(3));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn time_and_memory_of_this_process_are_counted() {
        let own = [process::id()];
        assert!(of_tree(own[0]).unwrap() > Duration::ZERO && memory_kib(&own).unwrap() > 0.0);
    }
}
