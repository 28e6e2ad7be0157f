//! A proxy between a client and an engine that cuts connections, or holds answers back, on purpose.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// A proxy to one port.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    answers: Arc<Answers>,
}

/// What becomes of the answers of the engine.
#[derive(Default)]
struct Answers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether the next one is dropped, and its connection cut.
    cuts_next: bool,
    /// How many were.
    cut: usize,
    is_held: bool,
}

impl Proxy {
    pub(crate) fn to(engine: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new(Answers::default());
        let of_all = answers.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(engine) = TcpStream::connect(("127.0.0.1", engine)) else { continue };
                let (up, down) = ((client.try_clone().unwrap(), engine.try_clone().unwrap()), (engine, client));
                thread::spawn(move || copy(up.0, up.1, || false));
                let answers = of_all.clone();
                thread::spawn(move || copy(down.0, down.1, || answers.is_cut()));
            }
        });
        Proxy { port, answers }
    }

    /// The next answer of the engine is dropped, and its connection cut.
    pub(crate) fn cut_next_answer(&self) {
        self.answers.state.lock().unwrap().cuts_next = true;
    }

    /// How many answers were dropped.
    pub(crate) fn cut(&self) -> usize {
        self.answers.state.lock().unwrap().cut
    }

    /// Answers wait from now on.
    pub(crate) fn hold(&self) {
        self.answers.state.lock().unwrap().is_held = true;
    }

    /// They wait no longer.
    pub(crate) fn release(&self) {
        self.answers.state.lock().unwrap().is_held = false;
        self.answers.changed.notify_all();
    }
}

impl Answers {
    /// Waits while answers are held back; whether this one is dropped.
    fn is_cut(&self) -> bool {
        let mut state = self.changed.wait_while(self.state.lock().unwrap(), |state| state.is_held).unwrap();
        let cuts = std::mem::take(&mut state.cuts_next);
        state.cut += usize::from(cuts);
        cuts
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
