//! The pushers: some with own tokens, some under a lease. Each push has its own commit, so that
//! the value of a ref identifies the push that moved it there.

use super::{
    checker::{Push, Told},
    faults::Order,
    rng::Rng,
};
use crate::support::{World, agents::Agent, text};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// No push may take longer, whatever its faults.
const FAR_TOO_LONG: Duration = Duration::from_secs(90);

/// Whether the pushers with own tokens push all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Sometimes only one of them pushes.
    QuietHours,
    /// Only one of them pushes.
    Quiet,
}

/// The shared state of all pushers.
pub(crate) struct Field<'w> {
    pub(crate) world: &'w World,
    pub(crate) seed: u64,
    /// The total number of pushes, which is also the number of refs to delete.
    asked_for: u64,
    /// The number of pushes that are left.
    pub(crate) left: AtomicU64,
    next_id: AtomicU64,
    token: AtomicU64,
    /// The token of the last push whose client was told that it landed.
    landed: AtomicU64,
    pace: Pace,
    /// Held for reading during a push, for writing during a restart of everything.
    pub(crate) door: RwLock<()>,
    pub(crate) pushes: Mutex<Vec<Push>>,
    /// Commits, and the pushes they belong to.
    pub(crate) commits: Mutex<BTreeMap<String, u64>>,
    /// The tokens of the pushes with own tokens.
    pub(crate) tokens: Mutex<BTreeMap<u64, u64>>,
    /// Faults that are not planned on the server.
    pub(crate) faults: Mutex<BTreeMap<String, u64>>,
}

impl<'w> Field<'w> {
    pub(crate) fn new(world: &'w World, seed: u64, pushes: u64, pace: Pace) -> Field<'w> {
        fs::create_dir(world.path("said")).unwrap();
        Field {
            world,
            seed,
            asked_for: pushes,
            left: AtomicU64::new(pushes),
            next_id: AtomicU64::new(1),
            token: AtomicU64::new(1),
            landed: AtomicU64::new(1),
            pace,
            door: RwLock::new(()),
            pushes: Mutex::default(),
            commits: Mutex::default(),
            tokens: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    /// Takes one of the pushes that are left.
    fn take(&self) -> Option<u64> {
        let left = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).ok()?;
        Some(self.next_id.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn count(&self, fault: &str) {
        *self.faults.lock().unwrap().entry(fault.to_owned()).or_default() += 1;
    }

    /// The commit of push `id`, in the clone `dir`.
    fn commit(&self, dir: &str, id: u64) -> String {
        let mut command = self.world.git(dir);
        command.args(["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", &format!("push {id} of seed {}", self.seed)]);
        let commit = self.world.ok(&mut command);
        self.commits.lock().unwrap().insert(commit.clone(), id);
        commit
    }

    fn said(&self, name: &str) -> PathBuf {
        self.world.path("said").join(name)
    }

    /// Runs a command to its end, and returns its output. Processes that it started may outlive it.
    fn run(&self, command: &mut Command, name: &str) -> (ExitStatus, String) {
        let (out, err) = (self.said(&format!("{name}.out")), self.said(&format!("{name}.err")));
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > FAR_TOO_LONG {
                let _ = child.kill();
                let _ = child.wait();
                panic!("seed {}: {name} hangs: {command:?}\n{}", self.seed, fs::read_to_string(err).unwrap());
            }
            thread::sleep(Duration::from_millis(5));
        };
        (status, text(&fs::read(out).unwrap()) + &text(&fs::read(err).unwrap()))
    }

    fn report(&self, push: Push) {
        self.pushes.lock().unwrap().push(push);
    }

    /// A waiting push reads the refs of the push in flight repeatedly, and so records resets by itself. If no push
    /// waits, only the companion does.
    fn is_quiet(&self) -> bool {
        self.pace == Pace::Quiet || self.next_id.load(Ordering::SeqCst) / 10 % 4 == 3
    }

    /// Pushes with own tokens until no push is left.
    pub(crate) fn push_raw(&self, lane: u64) {
        let mut rng = Rng::new(self.seed, lane);
        loop {
            if lane > 0 && self.is_quiet() && self.left.load(Ordering::SeqCst) > 0 {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            let Some(id) = self.take() else { return };
            let _open = self.door.read().unwrap();
            self.one_raw(id, &mut rng);
        }
    }

    fn one_raw(&self, id: u64, rng: &mut Rng) {
        let commit = self.commit("work", id);
        let order = Order::draw(rng);
        // Most are the newest; some are late, some already used, some are the one that landed last.
        let newest = self.token.fetch_add(rng.between(1, 3), Ordering::SeqCst) + 1;
        let token = match rng.between(0, 20) {
            0..5 => newest.saturating_sub(rng.between(0, 12)).max(1),
            5..7 => self.landed.load(Ordering::SeqCst),
            7..12 if self.is_quiet() => self.landed.load(Ordering::SeqCst),
            _ => newest,
        };
        self.tokens.lock().unwrap().insert(id, token);
        let branch = |rng: &mut Rng| format!("refs/heads/raw/{}", rng.pick(&["a", "b", "c", "d", "e"]));
        let forced = |name: &str| (format!("+{commit}:{name}"), name.to_owned());
        // Few names in all: each transaction records the values of all of them, in one write.
        let own = format!("refs/heads/raw/own-{}", id % 16);
        let refs = match rng.between(0, 12) {
            0 => vec![forced("refs/heads/raw/declined")],
            1 => vec![forced("refs/heads/raw/declined"), forced(&own)],
            2 => vec![forced(&own), forced("refs/heads/raw/f"), forced(&branch(rng))],
            // Not forced: if the branch exists, this is not a fast-forward.
            3 => vec![branch(rng)].into_iter().map(|name| (format!("{commit}:{name}"), name)).collect(),
            4 | 5 if id > self.asked_for => vec![forced(&own)],
            4 => vec![(format!(":refs/heads/gone/{id}"), format!("refs/heads/gone/{id}")), forced(&branch(rng))],
            5 => vec![(format!(":refs/heads/gone/{id}"), format!("refs/heads/gone/{id}"))],
            6..9 => vec![forced(&own)],
            _ => vec![forced(&branch(rng))],
        };
        if let Some(order) = &order {
            order.leave(self.world, &commit);
        }
        let mut command = self.world.git("work");
        command.args(["push", "--porcelain"]);
        let atomic = refs.len() > 1 && rng.one_in(2);
        if atomic {
            command.arg("--atomic");
        }
        // No file may grow beyond 4 kB: a longer log cannot grow.
        let log = fs::metadata(self.world.fence_file("audit.jsonl")).map_or(0, |log| log.len());
        let no_room = rng.one_in(25) && log > 8 * 512;
        if no_room {
            command.arg("--receive-pack=ulimit -f 8; exec git-receive-pack");
            self.count("no room: file size limit");
        }
        command.arg(format!("--push-option=fence-token={token}")).arg(self.world.server());
        command.args(refs.iter().map(|(refspec, _)| refspec));
        let (status, said) = self.run(&mut command, &id.to_string());
        let told: BTreeMap<_, _> = refs.iter().map(|(_, name)| (name.clone(), told_of(name, status, &said))).collect();
        if told.values().any(|told| *told == Told::Landed) {
            self.landed.store(token, Ordering::SeqCst);
        }
        let what =
            format!("token {token} to {refs:?}, atomic {atomic}, no room {no_room}, {order:?}\n{status}\n{said}");
        self.report(Push { id, told, code: code_in(&said), leased: false, no_room, what });
    }

    /// Pushes under leases until no push is left.
    pub(crate) fn push_leased(&self, agent: &Agent<'_>, lane: u64) {
        let mut rng = Rng::new(self.seed, lane);
        loop {
            let ids: Vec<u64> = (0..rng.between(2, 5)).map_while(|_| self.take()).collect();
            if ids.is_empty() {
                return;
            }
            self.one_lease(agent, &ids, &mut rng);
        }
    }

    /// A run with several pushes in it; repeated until it gets the lease.
    fn one_lease(&self, agent: &Agent<'_>, ids: &[u64], rng: &mut Rng) {
        let mut script = String::new();
        let mut planned = Vec::new();
        for id in ids {
            let commit = self.commit(&agent.name, *id);
            let order = Order::draw(rng);
            let name = format!("refs/heads/leased/{}", rng.pick(&["a", "b", "c", "declined"]));
            let push = rng.pick(&["git push --porcelain", "git push --porcelain", "git fence push"]);
            if let Some(order) = &order {
                order.leave(self.world, &commit);
            }
            let file = self.said(&id.to_string());
            let file = file.display();
            script += &format!(
                "{push} origin +{commit}:{name} >{file}.out 2>{file}.err\n\
                 echo $? >{file}.new; mv {file}.new {file}.code\n"
            );
            planned.push((*id, name, push, order));
        }
        let patient = Instant::now();
        loop {
            let _open = self.door.read().unwrap();
            let mut run = agent.run(&["--fence", "leased", "--ttl", "4s", "--if-held", "skip", "-E", "99"], &script);
            self.run(&mut run, &format!("run-{}", ids[0]));
            // Another agent has it, or was killed with it and it must expire first, or this one was killed too early.
            let has_begun = self.said(&format!("{}.out", ids[0])).exists();
            if has_begun || patient.elapsed() > FAR_TOO_LONG {
                break;
            }
            thread::sleep(Duration::from_millis(rng.between(50, 400)));
        }
        for (id, name, push, order) in planned {
            let file = self.said(&id.to_string()).display().to_string();
            if !Path::new(&format!("{file}.out")).exists() {
                // The run was over before this push's turn: it does not count, and another one is made.
                self.left.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let read = |suffix: &str| fs::read_to_string(format!("{file}.{suffix}")).unwrap_or_default();
            let (code, said) = (read("code"), read("out") + &read("err"));
            let told = match code.trim() {
                "" | "69" => Told::Nothing,
                _ if said.contains("is not at the pushed value") => Told::NotThere,
                _ if push.contains("porcelain") => told_in(&name, &said),
                "0" => Told::Landed,
                // A failed push says that it was refused, or that the outcome is unknown.
                "1" | "11" | "75" => Told::Refused,
                _ => Told::Nothing,
            };
            let what = format!("{push} to {name}, {order:?}\nexit code {code}\n{said}");
            self.report(Push { id, told: [(name, told)].into(), code: None, leased: true, no_room: false, what });
        }
    }
}

/// What `git push --porcelain` reports about a ref. A client that was killed has reported nothing.
fn told_of(name: &str, status: ExitStatus, said: &str) -> Told {
    match status.signal() {
        Some(_) => Told::Nothing,
        None if status.success() => Told::Landed,
        None => told_in(name, said),
    }
}

fn told_in(name: &str, said: &str) -> Told {
    let about = said.lines().find(|line| {
        let mut fields = line.split('\t');
        fields.next().is_some_and(|flag| flag.len() == 1)
            && fields.next().is_some_and(|refs| refs.rsplit(':').next() == Some(name))
    });
    match about {
        Some(line) if line.contains("[remote failure]") => Told::Nothing,
        Some(line) if line.starts_with('!') => Told::Refused,
        Some(_) => Told::Landed,
        None => Told::Nothing,
    }
}

/// The code in the JSON line.
fn code_in(said: &str) -> Option<String> {
    let json = said.lines().find_map(|line| line.strip_prefix("remote: fence: "))?;
    let verdict: serde_json::Value = serde_json::from_str(json.trim_end()).ok()?;
    Some(verdict["code"].as_str()?.to_owned())
}
