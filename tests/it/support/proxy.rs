//! A proxy between the client and an engine that cuts a connection on purpose.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering},
    },
    thread,
};

/// A proxy to an engine.
pub(crate) struct Proxy {
    port: u16,
    engine: Arc<AtomicU16>,
    /// How many answers are left until one is dropped.
    left: Arc<AtomicI64>,
    /// Whether the client goes on waiting for that answer.
    is_silent: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(engine: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy =
            Proxy { port, engine: Arc::new(AtomicU16::new(engine)), left: Arc::default(), is_silent: Arc::default() };
        let (engine, for_all, is_silent) = (proxy.engine.clone(), proxy.left.clone(), proxy.is_silent.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(engine) = TcpStream::connect(("127.0.0.1", engine.load(Ordering::SeqCst))) else { continue };
                let (up, down) = ((client.try_clone().unwrap(), engine.try_clone().unwrap()), (engine, client));
                thread::spawn(move || copy(up.0, up.1, || Passes::On));
                let (left, is_silent) = (for_all.clone(), is_silent.clone());
                let passes = move || match left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    false => Passes::On,
                    true if is_silent.load(Ordering::SeqCst) => Passes::Nothing,
                    true => Passes::End,
                };
                thread::spawn(move || copy(down.0, down.1, passes));
            }
        });
        proxy
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to another engine.
    pub(crate) fn lead_to(&self, engine: u16) {
        self.engine.store(engine, Ordering::SeqCst);
    }

    /// Drops the `nth` answer of the engine from now on, counted from 1, and cuts its connection. 0: none.
    pub(crate) fn cut_answer(&self, nth: i64) {
        self.is_silent.store(false, Ordering::SeqCst);
        self.left.store(nth, Ordering::SeqCst);
    }

    /// Drops that answer and everything after it, and keeps its connection.
    pub(crate) fn swallow_answer(&self, nth: i64) {
        self.is_silent.store(true, Ordering::SeqCst);
        self.left.store(nth, Ordering::SeqCst);
    }

    /// Whether that answer has come.
    pub(crate) fn has_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

/// What becomes of what was read, and of all that follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    On,
    /// It is dropped, and the connection cut.
    End,
    /// It is dropped.
    Nothing,
}

/// Copies until one side ends.
fn copy(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut() -> Passes) {
    let mut buffer = [0; 64 * 1024];
    let mut now = Passes::On;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if now == Passes::On {
            now = passes();
        }
        if now == Passes::End || now == Passes::On && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
