//! File descriptors: passing one to another process, and detecting that the other end is closed.
//!
//! Another Unix: the same calls. macOS has neither `MSG_CMSG_CLOEXEC` (so `fcntl F_SETFD` right after) nor `MSG_NOSIGNAL`
//! (so `SO_NOSIGPIPE` on the socket); Rust programs ignore SIGPIPE anyway.

use crate::os::descriptor::{RECEIVE, SEND};
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, recvmsg, sendmsg},
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// Sends a file descriptor, before anything else.
pub fn send_descriptor(to: &UnixStream, fd: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(b"\n")], &mut ancillary, SEND)?;
    Ok(())
}

/// Receives the file descriptor; `None` if the other process has exited instead.
pub fn receive_descriptor(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(from, &mut bytes, &mut ancillary, RECEIVE))?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Waits until the other end is closed by all its holders. It reads and writes nothing.
pub fn wait_until_closed(fd: impl AsFd) -> io::Result<()> {
    // No events requested, so only errors and hang-ups are reported.
    retry_on_intr(|| poll(&mut [PollFd::new(&fd, PollFlags::empty())], None))?;
    Ok(())
}

/// The same with a timeout; returns whether it is closed. A signal may end the wait early.
pub fn is_closed_within(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&fd, PollFlags::empty())], Some(&timeout)) {
        Ok(closed) => Ok(closed > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Seek, Write},
    };

    #[test]
    fn file_descriptor_is_received_and_later_data_is_kept() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"words").unwrap();
        file.rewind().unwrap();
        send_descriptor(&here, &file).unwrap();
        (&here).write_all(b"after").unwrap();
        assert!(!is_closed_within(&there, Duration::ZERO).unwrap());
        drop(here);
        let mut words = String::new();
        File::from(receive_descriptor(&there).unwrap().unwrap()).read_to_string(&mut words).unwrap();
        assert_eq!(words, "words");
        words.clear();
        there.read_to_string(&mut words).unwrap();
        assert_eq!(words, "after");
        assert!(is_closed_within(&there, Duration::ZERO).unwrap());
        wait_until_closed(&there).unwrap();
    }

    #[test]
    fn exited_sender_yields_no_descriptor() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        assert!(receive_descriptor(&there).unwrap().is_none());
    }
}
