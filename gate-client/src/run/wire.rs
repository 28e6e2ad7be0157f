//! The protocol between `run` and its keeper: lines of JSON over a socket pair.
//!
//! The socket is the keeper's standard input, and the command's standard input is sent through it. So no
//! other file descriptor is ever inheritable, whatever other threads start meanwhile, and the end of the
//! socket means the end of the other process.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// An order from `run` to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperOrder {
    /// Forward a signal to the command's group.
    Signal(i32),
    /// End the command by this time since boot, which includes suspend: a lease does not wait for a laptop to wake up.
    EndBy(Duration),
}

/// A report from the keeper to `run`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperReport {
    Started { pid: i32, start: u64 },
    CannotStart { not_found: bool, why: String },
    LeftBehind(usize),
    Exited(i32),
    Killed(i32),
}

pub(crate) fn send<T: Serialize>(mut to: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// The messages of the other process, until it is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: &UnixStream) -> impl Iterator<Item = T> {
    BufReader::new(from).lines().map_while(|line| serde_json::from_str(&line.ok()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_system::descriptor::{receive_descriptor, send_descriptor};
    use std::{fs::File, io::Read};

    #[test]
    fn file_descriptor_and_then_lines_are_received() {
        let (run, keeper) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file.write_all(b"words").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        send_descriptor(&run, &file).unwrap();
        send(&run, &KeeperOrder::Signal(15)).unwrap();
        send(&run, &KeeperOrder::EndBy(Duration::from_millis(1500))).unwrap();
        drop(run);
        let mut words = String::new();
        File::from(receive_descriptor(&keeper).unwrap().unwrap()).read_to_string(&mut words).unwrap();
        assert_eq!(words, "words");
        let orders: Vec<KeeperOrder> = receive(&keeper).collect();
        assert!(
            matches!(orders[..], [KeeperOrder::Signal(15), KeeperOrder::EndBy(by)] if by.as_millis() == 1500),
            "{orders:?}"
        );
    }
}
