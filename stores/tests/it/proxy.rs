//! A proxy between a client and an engine that cuts connections on purpose.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// A proxy to one port.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Whether the next answer is dropped, and its connection cut.
    cuts: Arc<AtomicBool>,
    cut: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn to(engine: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (for_all, count) = (cuts.clone(), cut.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(engine) = TcpStream::connect(("127.0.0.1", engine)) else { continue };
                let (up, down) = ((client.try_clone().unwrap(), engine.try_clone().unwrap()), (engine, client));
                thread::spawn(move || copy(up.0, up.1, || false));
                let (cuts, count) = (for_all.clone(), count.clone());
                let is_cut = move || {
                    let cuts = cuts.swap(false, Ordering::SeqCst);
                    count.fetch_add(usize::from(cuts), Ordering::SeqCst);
                    cuts
                };
                thread::spawn(move || copy(down.0, down.1, is_cut));
            }
        });
        Proxy { port, cuts, cut }
    }

    /// The next answer of the engine is dropped, and its connection cut.
    pub(crate) fn cut_next_answer(&self) {
        self.cuts.store(true, Ordering::SeqCst);
    }

    /// How many answers were dropped.
    pub(crate) fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }
}

/// Copies until one side ends, or until what was read is to be dropped.
fn copy(mut from: TcpStream, mut to: TcpStream, is_cut: impl Fn() -> bool) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if is_cut() || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
