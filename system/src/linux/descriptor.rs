//! The flags for passing a descriptor: no signal if the other end is closed, and close-on-exec from the start.

use rustix::net::{RecvFlags, SendFlags};

pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;
pub(crate) const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
