//! The flags for passing a descriptor on: no signal where nobody is there, and closed on exec from its first moment.

use rustix::net::{RecvFlags, SendFlags};

pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;
pub(crate) const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
