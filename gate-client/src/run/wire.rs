//! What `run` and its keeper say to each other: lines of JSON over a socket pair.
//!
//! The socket is the keeper's standard input, and the command's standard input is sent through it.
//! So no file descriptor is ever inheritable that should not be, whatever other threads start
//! meanwhile, and the end of the socket means the end of the other process.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// What `run` wants of the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperOrder {
    /// Pass a signal on to the command's group.
    Signal(i32),
    /// End the command, at the latest at this time since boot: a lease does not wait for a laptop to wake up.
    EndBy(Duration),
}

/// What the keeper has seen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperReport {
    Started { pid: i32, start: u64 },
    CannotStart { not_found: bool, why: String },
    LeftBehind(usize),
    Exited(i32),
    Killed(i32),
}

pub(crate) fn say<T: Serialize>(mut to: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// What the other process says, until it is gone.
pub(crate) fn hear<T: DeserializeOwned>(from: &UnixStream) -> impl Iterator<Item = T> {
    BufReader::new(from).lines().map_while(|line| serde_json::from_str(&line.ok()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_system::descriptor::{hand_over, take_over};
    use std::{fs::File, io::Read};

    #[test]
    fn a_file_descriptor_and_then_lines_get_across() {
        let (run, keeper) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file.write_all(b"words").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        hand_over(&run, &file).unwrap();
        say(&run, &KeeperOrder::Signal(15)).unwrap();
        say(&run, &KeeperOrder::EndBy(Duration::from_millis(1500))).unwrap();
        drop(run);
        let mut words = String::new();
        File::from(take_over(&keeper).unwrap().unwrap()).read_to_string(&mut words).unwrap();
        assert_eq!(words, "words");
        let orders: Vec<KeeperOrder> = hear(&keeper).collect();
        assert!(
            matches!(orders[..], [KeeperOrder::Signal(15), KeeperOrder::EndBy(by)] if by.as_millis() == 1500),
            "{orders:?}"
        );
    }
}
