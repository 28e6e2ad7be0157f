//! `git-fence-store`: requests from standard input, replies to standard output, a line each.

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    limits, open, retrying,
    surroundings::Surroundings,
    trial,
};
use git_fence_core::{StoreFault, StoreReply, StoreRequest};
use std::{
    io::{self, BufRead, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

/// Serves until the end of the input.
pub fn serve(input: impl BufRead, mut output: impl Write, around: &Surroundings) -> io::Result<()> {
    let mut store: Option<Store> = None;
    for line in input.lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(StoreRequest::Open { url }) => match Store::open(&url, around) {
                Ok(opened) => {
                    let place = opened.place.clone();
                    store = Some(opened);
                    StoreReply::Opened { place }
                }
                Err(fault) => StoreReply::Failed(fault),
            },
            Ok(request) => match &mut store {
                Some(store) => store.ask(request),
                None => StoreReply::Failed(StoreFault::unusable("no store is open", "send 'open' first")),
            },
            // The line is not quoted: it may hold a password.
            Err(_) => {
                StoreReply::Failed(StoreFault::unusable("a request cannot be read", "update git-fence as a whole"))
            }
        };
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// How much longer than its deadline an engine is waited for: its own answer says more than that there was none.
const GRACE: Duration = Duration::from_millis(250);

/// An open store. Its engine works in a thread of its own, because not every step of a library can be bounded: one that
/// accepts a connection and then says nothing may hold it for ever. Such a thread is left behind, and another begins.
struct Store {
    url: String,
    place: String,
    around: Surroundings,
    worker: Option<Worker>,
}

struct Worker {
    requests: Sender<StoreRequest>,
    replies: Receiver<StoreReply>,
}

impl Store {
    fn open(url: &str, around: &Surroundings) -> Result<Store, StoreFault> {
        let worker = Some(Worker::start(url, around)?);
        let place = Address::parse(url)?.to_string();
        Ok(Store { url: url.to_owned(), place, around: around.clone(), worker })
    }

    fn ask(&mut self, request: StoreRequest) -> StoreReply {
        let worker = match self.worker.take().map_or_else(|| Worker::start(&self.url, &self.around), Ok) {
            Ok(worker) => worker,
            Err(fault) => return StoreReply::Failed(fault),
        };
        let is_swap = matches!(request, StoreRequest::Swap { .. });
        let patience = Duration::from_millis(within(&request)) + GRACE;
        let sent = worker.requests.send(request);
        let why = match worker.replies.recv_timeout(patience) {
            Ok(reply) if sent.is_ok() => {
                self.worker = Some(worker);
                return reply;
            }
            Err(RecvTimeoutError::Timeout) => format!("{} did not answer in time", self.place),
            _ => format!("internal error: the connection to {} crashed", self.place),
        };
        match is_swap {
            true => StoreReply::Unknown { why },
            false => StoreReply::Failed(StoreFault::unreachable(why)),
        }
    }
}

impl Worker {
    fn start(url: &str, around: &Surroundings) -> Result<Worker, StoreFault> {
        let mut engine = open(url, around)?;
        let (requests, asked) = mpsc::channel::<StoreRequest>();
        let (answer, replies) = mpsc::channel();
        let (url, around) = (url.to_owned(), around.clone());
        thread::spawn(move || {
            for request in asked {
                let reply = reply(&mut *engine, &url, request, &around).unwrap_or_else(StoreReply::Failed);
                if answer.send(reply).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { requests, replies })
    }
}

/// How long a request may take.
fn within(request: &StoreRequest) -> u64 {
    match request {
        StoreRequest::Open { .. } => 0,
        StoreRequest::Read { within_ms, .. }
        | StoreRequest::Swap { within_ms, .. }
        | StoreRequest::Init { within_ms }
        | StoreRequest::Check { within_ms } => *within_ms,
    }
}

fn reply(
    engine: &mut dyn Engine,
    url: &str,
    request: StoreRequest,
    around: &Surroundings,
) -> Result<StoreReply, StoreFault> {
    let until = |ms| Deadline::within(Duration::from_millis(ms));
    Ok(match request {
        StoreRequest::Open { .. } => return Err(StoreFault::unusable("the store is open", "report it")),
        StoreRequest::Read { name, within_ms } => {
            limits::name(&name)?;
            let reading = retrying::read(engine, &name, &until(within_ms))?;
            reading.record.as_ref().map_or(Ok(()), |record| limits::record(&record.body))?;
            StoreReply::Found(reading)
        }
        StoreRequest::Swap { name, expected, next, keep, within_ms } => {
            limits::name(&name)?;
            limits::record(&next)?;
            let swap = RecordSwap { name: &name, expected: expected.as_ref(), next: &next, keep };
            match retrying::swap(engine, &swap, &until(within_ms))? {
                SwapAttempt::Won { version, now_ms } => StoreReply::Won { version, now_ms },
                SwapAttempt::Lost(reading) => StoreReply::Lost(reading),
                SwapAttempt::Unknown { why } => StoreReply::Unknown { why },
            }
        }
        StoreRequest::Init { within_ms } => {
            let until = until(within_ms);
            let what = retrying::init(engine, &until)?;
            // An engine that needs nothing must be there all the same.
            retrying::read(engine, "git-fence-check/init", &until)?;
            StoreReply::Made { what }
        }
        StoreRequest::Check { within_ms } => StoreReply::Checked(trial::try_out(url, around, &until(within_ms))?),
    })
}
