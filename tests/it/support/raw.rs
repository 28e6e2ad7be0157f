//! A client that is not git: it sends arbitrary pkt-lines to receive-pack.

use super::{Pushed, World, text};
use std::{
    io::{Read, Write},
    process::{Child, ChildStdout, Stdio},
};

/// One line of a push, unchecked.
pub(crate) struct RawCommand {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) name: Vec<u8>,
}

impl RawCommand {
    pub(crate) fn new(old: &str, new: &str, name: impl AsRef<[u8]>) -> RawCommand {
        RawCommand { old: old.to_owned(), new: new.to_owned(), name: name.as_ref().to_vec() }
    }
}

pub(crate) const NULL: &str = "0000000000000000000000000000000000000000";

/// Pushes without new objects: everything it names is already on the server.
pub(crate) fn push(world: &World, commands: &[RawCommand], options: &[&[u8]]) -> Pushed {
    let (child, mut stdout) = send(world, commands, options);
    let mut report = Vec::new();
    stdout.read_to_end(&mut report).unwrap();
    let output = child.wait_with_output().unwrap();
    let reported = text(&report);
    let landed = reported.contains("ok refs/") && !reported.contains("ng ");
    let remote = text(&output.stderr);
    Pushed { ok: landed, text: format!("{remote}{reported}"), remote }
}

/// A client that has sent its push and does not read the answer. Its receive-pack is ended by pid
/// when the test is over.
pub(crate) struct Frozen {
    receive_pack: Child,
    _unread: ChildStdout,
}

impl Frozen {
    pub(crate) fn push(world: &World, commands: &[RawCommand], options: &[&[u8]]) -> Frozen {
        let (receive_pack, stdout) = send(world, commands, options);
        Frozen { receive_pack, _unread: stdout }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.receive_pack.kill();
        let _ = self.receive_pack.wait();
    }
}

/// Starts a receive-pack and sends the whole push.
fn send(world: &World, commands: &[RawCommand], options: &[&[u8]]) -> (Child, ChildStdout) {
    let mut receive_pack = world.git(".");
    receive_pack.arg("receive-pack").arg(world.server());
    let mut child = receive_pack.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    skip_advertisement(&mut stdout);

    let mut input = Vec::new();
    for (at, RawCommand { old, new, name }) in commands.iter().enumerate() {
        let mut line = format!("{old} {new} ").into_bytes();
        line.extend(name);
        if at == 0 {
            line.extend(b"\0report-status push-options object-format=sha1 agent=raw/1");
        }
        pkt_line(&mut input, &line);
    }
    input.extend(b"0000");
    for option in options {
        pkt_line(&mut input, option);
    }
    input.extend(b"0000");
    if commands.iter().any(|command| command.new != NULL) {
        input.extend(EMPTY_PACK);
    }
    child.stdin.take().unwrap().write_all(&input).unwrap();
    (child, stdout)
}

/// A pack of version 2 with no objects, and its SHA-1.
const EMPTY_PACK: &[u8] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";

fn pkt_line(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend(format!("{:04x}", payload.len() + 4).bytes());
    out.extend(payload);
}

fn skip_advertisement(from: &mut impl Read) {
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length).unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&length).unwrap(), 16).unwrap();
        if length == 0 {
            return;
        }
        from.read_exact(&mut vec![0; length - 4]).unwrap();
    }
}
