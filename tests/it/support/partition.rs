//! The network between the nodes of an etcd cluster, which can be cut around one of them.
//!
//! Each node is known to the others by the port of a relay. Nodes name themselves in the header of what they send, so that
//! the relays can cut a node off in both directions: nothing reaches it, and nothing of it reaches the others. Its clients
//! still reach it.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// By which a node names itself.
const SENDER: &str = "x-server-from: ";

/// The relays between nodes.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<Relays>>);

#[derive(Default)]
struct Relays {
    /// The ports of the nodes, in the order of the nodes.
    nodes: Vec<u16>,
    connections: Vec<Connection>,
    cut_off: Option<CutOff>,
}

/// The node that nobody reaches.
#[derive(Clone, PartialEq, Eq)]
struct CutOff {
    node: u16,
    /// Its member id, as it stands in headers.
    member: String,
}

struct Connection {
    to: u16,
    /// The member id of the sender; requests for the state of a node do not say it.
    from: Option<String>,
    ends: [TcpStream; 2],
}

impl CutOff {
    fn is_between(&self, to: u16, from: Option<&str>) -> bool {
        self.node == to || from == Some(&self.member)
    }
}

impl Network {
    /// Starts a relay to `node`, and returns its port.
    pub(crate) fn relay(&self, node: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        self.0.lock().unwrap().nodes.push(node);
        let network = self.clone();
        thread::spawn(move || {
            for sender in listener.incoming().flatten() {
                let network = network.clone();
                thread::spawn(move || network.connect(sender, node));
            }
        });
        port
    }

    /// Cuts the `nth` node off from the others; `member` is its id.
    pub(crate) fn cut_off(&self, nth: usize, member: u64) {
        let mut relays = self.0.lock().unwrap();
        let cut_off = CutOff { node: relays.nodes[nth], member: format!("{member:x}") };
        let is_cut = |known: &mut Connection| cut_off.is_between(known.to, known.from.as_deref());
        for Connection { ends, .. } in relays.connections.extract_if(.., is_cut) {
            ends.iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
        }
        relays.cut_off = Some(cut_off);
    }

    pub(crate) fn heal(&self) {
        self.0.lock().unwrap().cut_off = None;
    }

    fn connect(&self, mut sender: TcpStream, to: u16) {
        let Ok(head) = head(&mut sender) else { return };
        let text = String::from_utf8_lossy(&head).to_lowercase();
        let from = text.lines().find_map(|line| line.strip_prefix(SENDER)).map(str::to_owned);
        let mut relays = self.0.lock().unwrap();
        if relays.cut_off.as_ref().is_some_and(|cut_off| cut_off.is_between(to, from.as_deref())) {
            return;
        }
        let Ok(mut node) = TcpStream::connect(("127.0.0.1", to)) else { return };
        if node.write_all(&head).is_err() {
            return;
        }
        let ends = [&sender, &node].map(|end| end.try_clone().unwrap());
        relays.connections.push(Connection { to, from, ends });
        drop(relays);
        let (back, answers) = (node.try_clone().unwrap(), sender.try_clone().unwrap());
        thread::spawn(move || pass_on(back, answers));
        pass_on(sender, node);
    }
}

/// What comes up to the end of the first header.
fn head(sender: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match sender.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(head)
}

/// Until one side ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
