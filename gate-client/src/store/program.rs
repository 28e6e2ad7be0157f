//! `git-fence-store`, the program that talks to the engines: started when it is first needed, and kept as long as the
//! client, so that a heartbeat does not connect anew.

use crate::{clock::Clock, failure::Failure, git::How, lease::held::HeldStore};
use git_fence_core::{Stamp, StoreFault, StorePlace, StoreReading, StoreRecord, StoreReply, StoreRequest};
use std::{
    env::current_exe,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

const PROGRAM: &str = "git-fence-store";
/// How long one answer may take where nothing else bounds it.
const PATIENCE: Duration = Duration::from_secs(20);
/// The program answers in time by itself. One that does not is given up a little later.
const GRACE: Duration = Duration::from_secs(2);
/// How often a wait looks whether the command was asked to end.
const LOOK: Duration = Duration::from_millis(50);

/// A store, and the repository's name in it.
#[derive(Debug)]
pub(crate) struct StoreProgram {
    /// With its password. Never shown.
    url: String,
    resource: String,
    running: Mutex<Option<Running>>,
    /// The store's clock when it was last read.
    clock: Mutex<Option<StoreTime>>,
}

/// What the store's clock showed at a moment that is not before `asked`.
#[derive(Debug, Clone)]
struct StoreTime {
    now_ms: u64,
    asked: Stamp,
}

#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
    place: StorePlace,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only we started it, and it keeps nothing that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a swap of a whole record.
#[derive(Debug)]
pub(crate) enum RecordSwapped {
    Won(StoreRecord),
    Lost(Option<StoreRecord>),
    Unknown(String),
    NotSent(Failure),
}

impl StoreProgram {
    pub(crate) fn new(url: &str, resource: &str) -> StoreProgram {
        StoreProgram {
            url: url.to_owned(),
            resource: resource.to_owned(),
            running: Mutex::default(),
            clock: Mutex::default(),
        }
    }

    /// The URL as it was given: it may hold a password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is the store of this lease.
    pub(crate) fn is_of(&self, held: &HeldStore) -> bool {
        self.url == held.url && self.resource == held.place.resource
    }

    /// Where the leases are, without user and password.
    pub(crate) fn place(&self) -> Result<StorePlace, Failure> {
        let mut running = self.lock();
        self.start(&mut running).map(|running| running.place.clone())
    }

    /// Reads a record.
    pub(crate) fn read(&self, name: &str, how: &How, clock: &Clock) -> Result<Option<StoreRecord>, Failure> {
        let asked = clock.now();
        let within_ms = within(how);
        match self.ask(&StoreRequest::Read { name: name.to_owned(), within_ms }, how)? {
            StoreReply::Found(reading) => Ok(self.heard(reading, asked)),
            StoreReply::Failed(fault) => Err(self.failed(fault)),
            _ => Err(self.failed(strange())),
        }
    }

    /// Replaces a record, if it is as expected. The engine keeps it in its history if `keep` is set.
    pub(crate) fn swap(
        &self,
        name: &str,
        expected: Option<&StoreRecord>,
        next: &str,
        keep: bool,
        how: &How,
        clock: &Clock,
    ) -> RecordSwapped {
        let asked = clock.now();
        let request = StoreRequest::Swap {
            name: name.to_owned(),
            expected: expected.cloned(),
            next: next.to_owned(),
            keep,
            within_ms: within(how),
        };
        match self.ask(&request, how) {
            Ok(StoreReply::Won { version, now_ms }) => {
                self.note_clock(now_ms, asked);
                RecordSwapped::Won(StoreRecord { version, body: next.to_owned() })
            }
            Ok(StoreReply::Lost(reading)) => RecordSwapped::Lost(self.heard(reading, asked)),
            Ok(StoreReply::Unknown { why }) => RecordSwapped::Unknown(why),
            Ok(StoreReply::Failed(fault)) => RecordSwapped::NotSent(self.failed(fault)),
            Ok(_) => RecordSwapped::Unknown(strange().why),
            Err(Asked::NotSent(failure)) => RecordSwapped::NotSent(failure),
            Err(Asked::NoReply(why)) => RecordSwapped::Unknown(why),
        }
    }

    /// Makes what the store needs, such as tables.
    pub(crate) fn init(&self, how: &How) -> Result<Vec<String>, Failure> {
        match self.ask(&StoreRequest::Init { within_ms: within(how) }, how)? {
            StoreReply::Made { what } => Ok(what),
            StoreReply::Failed(fault) => Err(self.failed(fault)),
            _ => Err(self.failed(strange())),
        }
    }

    /// Tries whether it can keep leases.
    pub(crate) fn check(&self, how: &How) -> Result<git_fence_core::StoreCheck, Failure> {
        match self.ask(&StoreRequest::Check { within_ms: within(how) }, how)? {
            StoreReply::Checked(check) => Ok(check),
            StoreReply::Failed(fault) => Err(self.failed(fault)),
            _ => Err(self.failed(strange())),
        }
    }

    /// `now`, by the store's clock where it has one. It is never behind that clock by our own fault: it counts from before
    /// the request that read it.
    pub(crate) fn by_its_clock(&self, now: Stamp) -> Stamp {
        let known = self.clock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(StoreTime { now_ms, asked }) => {
                let since = u64::try_from(asked.age_at(&now).as_millis()).unwrap_or(u64::MAX);
                Stamp { unix_ms: now_ms.saturating_add(since), ..now }
            }
            None => now,
        }
    }

    fn heard(&self, reading: StoreReading, asked: Stamp) -> Option<StoreRecord> {
        self.note_clock(reading.now_ms, asked);
        reading.record
    }

    fn note_clock(&self, now_ms: Option<u64>, asked: Stamp) {
        if let Some(now_ms) = now_ms {
            *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(StoreTime { now_ms, asked });
        }
    }

    fn failed(&self, fault: StoreFault) -> Failure {
        let place = self.lock().as_ref().map(|running| running.place.store.clone());
        Failure::Store { place: place.unwrap_or_default(), fault }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for the reply.
    fn ask(&self, request: &StoreRequest, how: &How) -> Result<StoreReply, Asked> {
        let mut guard = self.lock();
        let running = self.start(&mut guard).map_err(Asked::NotSent)?;
        let reply = running.send(request).map_err(Asked::NotSent).and_then(|()| running.receive(how));
        if matches!(reply, Err(Asked::NoReply(_))) {
            // A late reply must not be taken for that of the next request.
            *guard = None;
        }
        reply
    }

    fn start<'a>(&self, guard: &'a mut MutexGuard<'_, Option<Running>>) -> Result<&'a mut Running, Failure> {
        if guard.as_mut().is_some_and(|running| !matches!(running.child.try_wait(), Ok(None))) {
            **guard = None;
        }
        match &mut **guard {
            Some(running) => Ok(running),
            none => Ok(none.insert(Running::start(&self.url, &self.resource)?)),
        }
    }
}

/// Why there is no reply.
enum Asked {
    NotSent(Failure),
    NoReply(String),
}

impl From<Asked> for Failure {
    fn from(asked: Asked) -> Failure {
        match asked {
            Asked::NotSent(failure) => failure,
            Asked::NoReply(why) => Failure::Store { place: String::new(), fault: StoreFault::unreachable(why) },
        }
    }
}

impl Running {
    /// Starts the program and opens the store. Nothing is connected yet. The URL goes over the pipe: everybody can see the
    /// arguments of a process.
    fn start(url: &str, resource: &str) -> Result<Running, Failure> {
        let mut command = Command::new(program());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let missing = |e: std::io::Error| {
            Failure::broken(
                format!("cannot run {PROGRAM}, which talks to stores"),
                "install it next to git-fence, or add it to the PATH",
            )
            .because(e)
        };
        let mut child = command.spawn().map_err(missing)?;
        let (Some(requests), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::broken(format!("cannot talk to {PROGRAM}"), "try again"));
        };
        let (tell, replies) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let nowhere = StorePlace { store: String::new(), resource: resource.to_owned() };
        let mut running = Running { child, requests, replies, place: nowhere };
        running.send(&StoreRequest::Open { url: url.to_owned() })?;
        let fault = match running.receive(&How::default())? {
            StoreReply::Opened { place } => match StorePlace::new(&place, resource) {
                Some(place) => {
                    running.place = place;
                    return Ok(running);
                }
                None => StoreFault::unusable("the name of the resource has no printable characters", "set another one"),
            },
            StoreReply::Failed(fault) => fault,
            _ => strange(),
        };
        Err(Failure::Store { place: String::new(), fault })
    }

    fn send(&mut self, request: &StoreRequest) -> Result<(), Failure> {
        let line = serde_json::to_string(request).unwrap_or_default() + "\n";
        let sent = self.requests.write_all(line.as_bytes()).and_then(|()| self.requests.flush());
        sent.map_err(|_| Failure::Store { place: self.place.store.clone(), fault: ended() })
    }

    fn receive(&mut self, how: &How) -> Result<StoreReply, Asked> {
        let (since, most) = (Instant::now(), Duration::from_millis(within(how)) + GRACE);
        loop {
            match self.replies.recv_timeout(LOOK) {
                Ok(line) => return serde_json::from_str(&line).map_err(|_| Asked::NoReply(strange().why)),
                Err(RecvTimeoutError::Disconnected) => return Err(Asked::NoReply(ended().why)),
                Err(RecvTimeoutError::Timeout) if since.elapsed() > most || how.is_stopped() => {
                    return Err(Asked::NoReply("it did not answer in time".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Next to this program, where it is installed, or else somewhere in the PATH.
fn program() -> PathBuf {
    let beside = current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// How long the program may take, in milliseconds.
fn within(how: &How) -> u64 {
    u64::try_from(how.within.unwrap_or(PATIENCE).min(PATIENCE).as_millis()).unwrap_or(u64::MAX)
}

fn ended() -> StoreFault {
    StoreFault::unreachable(format!("{PROGRAM} has ended"))
}

fn strange() -> StoreFault {
    StoreFault::unusable(format!("{PROGRAM} is of another version"), "update git-fence as a whole")
}
