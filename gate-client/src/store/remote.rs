//! The lease in the remote itself: two refs, moved by git's own compare-and-swap, alone or together with the user's refs.
//!
//! This is also the one place that learns whether the remote has a gate. A gate receives the token and the proof as push
//! options, and a remote without a gate may not accept any: a push that was sent in the wrong form is sent again in the
//! other.

use crate::{
    client::{Client, reasons},
    failure::Failure,
    files::{home, name_of_url, write_whole},
    git::said::is_denied,
    random,
    store::{
        answer::{PushAnswer, RefAnswer},
        objects::{commit_of, copy_commit, write_commit},
        reading::{Mirror, RemoteSight, StoredMark},
        sending::Sending,
    },
};
use git_fence_core::{
    Code, Elsewhere, GateAnswer, GateSays, JobName, LeasePart, LeaseSnapshot, LeaseState, LeaseStore, MarkRecord,
    ObjectId, Record, Secret, SkipCause, Stamp, StoppedPush, StoredLease, Swap, SwapRefused, Swapped, TickSkip, Token,
    Version, may_be_in_remote,
};
use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How many ownerships are read back to find a push.
const LONGEST_HISTORY: usize = 1000;
/// How often a push is sent in the other form: a gate can be installed or removed at any time.
const MOST_FORMS: usize = 3;

/// What git prints when another push has locked a ref. That push may fail, too, so nothing need have moved.
const CROWDED: [&str; 5] =
    ["stale info", "lock", "transaction failed", "failed to update ref", "reference already exists"];
/// What git prints when one of the user's own refs is the cause.
const OF_USERS_REFS: [&str; 4] = ["(non-fast-forward)", "(fetch first)", "(atomic push failed)", "(already exists)"];

/// What git prints for a ref that the update hook or a setting of the remote declines.
const DECLINED: [&str; 2] = ["(hook declined)", "(deny updating a hidden ref)"];

/// The refs of one fence's lease.
#[derive(Debug)]
pub(crate) struct RemoteRefs<'a> {
    client: &'a Client,
    mirror: Mirror<'a>,
    /// The object directory for the records of this run.
    objects: PathBuf,
    /// Whether there is a gate, as last learned.
    gate: Cell<bool>,
    /// The push option that proves the holder of a lease in the older format.
    proof: Option<String>,
    /// The scheduled job for which the lease is wanted.
    job: Option<JobName>,
}

/// The result of a push that carried the lease.
pub(crate) struct Pushed<'a> {
    pub(crate) answer: Swapped<Failure>,
    /// The result for each ref, if an answer came.
    pub(crate) refs: Vec<RefAnswer>,
    /// The push, to read its refs back; none if the lease moved in a store, where it moves alone.
    pub(crate) sent: Option<Sending<'a>>,
}

impl<'a> RemoteRefs<'a> {
    /// The lease of the client's fence. Records are written to `objects`; `gate` is what is known about the gate.
    pub(crate) fn open(client: &'a Client, objects: PathBuf, gate: bool) -> Result<RemoteRefs<'a>, Failure> {
        let mirror = Mirror::open(&client.local, &client.remote, &client.fence)?;
        Ok(RemoteRefs { client, mirror, objects, gate: Cell::new(gate), proof: None, job: None })
    }

    /// The same for a holder that proves itself with a push option.
    pub(crate) fn proving(mut self, proof: Option<String>) -> RemoteRefs<'a> {
        self.proof = proof;
        self
    }

    /// The same for a run of a scheduled job.
    pub(crate) fn wanted_for(mut self, job: Option<JobName>) -> RemoteRefs<'a> {
        self.job = job;
        self
    }

    /// Whether there is a gate, as last learned.
    pub(crate) fn gate(&self) -> bool {
        self.gate.get()
    }

    /// How long this machine has seen the beat at the same version.
    pub(crate) fn watched(&self, seen: &LeaseSnapshot, now: &Stamp) -> Duration {
        self.mirror.watched(seen, now)
    }

    /// Reads lease and mark: one connection.
    pub(crate) fn look(&self) -> Result<RemoteSight, Failure> {
        self.mirror.look(&self.client.how(), 1)
    }

    /// The lease, with the newest `most` ownerships of its history.
    pub(crate) fn read_for_people(&self, most: usize) -> Result<(LeaseSnapshot, Vec<StoredLease>), Failure> {
        let how = self.client.how();
        let seen = self.client.lease_in_remote(self.mirror.look(&how, most)?)?;
        let history = self.mirror.history(seen.lease.as_ref(), most, &how, |_| false)?;
        Ok((seen, history))
    }

    /// Whether `mark`, or one that led to it, is the one at `version`, of a push with `token`.
    pub(crate) fn mark_follows(&self, mark: &StoredMark, version: &Version, token: Token) -> Result<bool, Failure> {
        // Marks only rise: older ones cannot be the push.
        let is_older = |record: &MarkRecord| record.token.get() < token.get();
        self.mirror.mark_follows(mark, version, &self.client.how(), is_older)
    }

    /// Prepares a mark to be pushed, after the one at `parent`.
    pub(crate) fn prepare_mark(
        &self,
        record: MarkRecord,
        parent: Option<&Version>,
        proof: Option<&Secret>,
    ) -> Result<StoredMark, Failure> {
        let before = parent.map(commit_of).transpose()?;
        let commit = self.write(&record.owner, before.as_ref(), &record.message(&self.client.fence, proof))?;
        Ok(StoredMark { at: Version::new(commit.as_str()), parent: parent.cloned(), record })
    }

    /// Pushes what `along` adds together with the lease: all or nothing. `for_gate` are push options for a gate only.
    pub(crate) fn push(
        &self,
        swaps: &[Swap],
        for_gate: &[String],
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Pushed<'_>, Failure> {
        let options: Vec<&String> = for_gate.iter().chain(&self.proof).collect();
        self.keep_parent(swaps)?;
        let mut forms_left = MOST_FORMS;
        loop {
            let mut sent = self.sending();
            for Swap { part, from, to } in swaps {
                let from = from.as_ref().map(commit_of).transpose()?;
                sent = sent.swap(*part, from.as_ref(), &commit_of(to)?);
            }
            if self.gate() {
                sent.options.extend(options.iter().map(|option| (*option).into()));
            }
            along(&mut sent);
            sent.remember_what_is_meant();
            let answer = sent.send()?;
            let is_wrong_form = self.learn(&answer, is_grant(swaps)) && !options.is_empty();
            if is_wrong_form && forms_left > 0 {
                forms_left -= 1;
                continue;
            }
            let (answer, refs) = match self.swapped(answer) {
                (Swapped::NotSent(failure), refs) if sent.how.aloud => {
                    (Swapped::NotSent(failure.already_shown()), refs)
                }
                swapped => swapped,
            };
            return Ok(Pushed { answer, refs, sent: Some(sent) });
        }
    }

    /// Asks the gate with a push that cannot move anything.
    fn ask(&self, owner: &str, message: &str, options: &[String]) -> Result<PushAnswer, Failure> {
        let question = self.write(owner, None, message)?;
        let mut sending = self.sending();
        sending.options.extend(options.iter().map(Into::into));
        sending.ask(&question)
    }

    /// Reports a push to the gate that git refused before the gate saw it, so that the gate records it.
    pub(crate) fn tell_gate(&self, owner: &str, push: &StoppedPush, options: &[String]) -> Result<(), Failure> {
        self.ask(owner, &push.message(&self.client.fence, &random::nonce()), options).map(drop)
    }

    /// Tells the gate that a scheduled run starts nothing, so that the skip is on its record.
    pub(crate) fn tell_of_skip(&self, owner: &str, skip: &TickSkip) -> Result<(), Failure> {
        self.answer_to(owner, &skip.message(&self.client.fence, &random::nonce())).map(drop)
    }

    /// The gate's answer to a question, if there is a gate.
    fn answer_to(&self, owner: &str, question: &str) -> Result<GateSays, Failure> {
        let client = self.client;
        let says = |verdict: GateAnswer, said: &[String]| match verdict {
            GateAnswer { holder: Some(by), .. } => Ok(GateSays::Held(by)),
            GateAnswer { halt: Some(halt), .. } => Ok(GateSays::Halted(halt)),
            GateAnswer { code: Some(Code::LeaseInvalid), fences: None, .. } => Ok(GateSays::Free),
            other => Err(client.refused_by(&other, said)),
        };
        let answer = self.ask(owner, question, &[])?;
        self.learn(&answer, false);
        match answer {
            PushAnswer::Landed { verdict: Some(verdict), .. } => says(verdict, &[]),
            PushAnswer::Refused { verdict: Some(verdict), said, .. } => says(verdict, &said),
            PushAnswer::Lost { why } => Err(client.unreachable(why)),
            PushAnswer::NotSent(why) => Err(client.not_sent(why)),
            PushAnswer::Landed { .. } | PushAnswer::Refused { .. } | PushAnswer::NoOptions | PushAnswer::NoAtomic => {
                // A gate answers every question.
                remember_gate(client, false);
                Ok(GateSays::NoGate)
            }
        }
    }

    /// The question whose turn it is, of a run that would skip if it is another's.
    fn question(&self) -> String {
        let (fence, nonce) = (&self.client.fence, random::nonce());
        match self.job.clone() {
            Some(job) => TickSkip { job, found: SkipCause::Held, tick: None }.message(fence, &nonce),
            None => format!("fence '{fence}': whose turn is it?\n\nFence-Nonce: {nonce}\n"),
        }
    }

    /// Learns from `answer` whether there is a gate. Returns whether this is new.
    ///
    /// A gate answers every refusal and every grant, and says nothing about a push that it admits at once.
    fn learn(&self, answer: &PushAnswer, is_grant: bool) -> bool {
        let gate = match answer {
            PushAnswer::Landed { verdict: None, .. } if is_grant => false,
            PushAnswer::Landed { verdict: Some(_), .. } | PushAnswer::Refused { verdict: Some(_), .. } => true,
            PushAnswer::NoOptions => false,
            _ => return false,
        };
        remember_gate(self.client, gate);
        self.gate.replace(gate) != gate
    }

    fn swapped(&self, answer: PushAnswer) -> (Swapped<Failure>, Vec<RefAnswer>) {
        let client = self.client;
        let answer = match answer {
            PushAnswer::Landed { refs, .. } => return (Swapped::Won, refs),
            PushAnswer::Refused { refs, verdict, said } => {
                return (Swapped::Refused(Box::new(refused(refs.clone(), verdict, said))), refs);
            }
            PushAnswer::Lost { why } => Swapped::Unknown { why },
            PushAnswer::NotSent(why) => Swapped::NotSent(client.not_sent(why)),
            PushAnswer::NoOptions => Swapped::NotSent(client.no_options()),
            PushAnswer::NoAtomic => Swapped::NotSent(client.no_atomic()),
        };
        (answer, Vec::new())
    }

    fn sending(&self) -> Sending<'_> {
        let client = self.client;
        // The mirror of an older version, which may hold the parents of its leases.
        let before = home(&client.local).join("mirror.git/objects");
        let mirror = self.mirror.objects();
        let objects: Vec<&Path> =
            [&*mirror, &*self.objects].into_iter().chain(before.is_dir().then_some(&*before)).collect();
        let mut push = Sending::to(&client.remote, &client.fence, &client.local.git, &objects);
        push.how = client.how();
        push
    }

    fn write(&self, owner: &str, parent: Option<&ObjectId>, message: &str) -> Result<ObjectId, Failure> {
        let now = self.client.clock.now().unix_ms;
        write_commit(&self.objects, self.client.local.hash, owner, parent, message, now)
    }

    /// Keeps the ownership that a grant replaces, which is the parent of the new lease: later fetches may not have it.
    fn keep_parent(&self, swaps: &[Swap]) -> Result<(), Failure> {
        let replaced = swaps.iter().find(|swap| swap.part == LeasePart::Lease && is_grant(swaps));
        let Some(parent) = replaced.and_then(|swap| swap.from.as_ref()) else { return Ok(()) };
        copy_commit(&self.mirror.objects(), &self.objects, self.client.local.hash, &commit_of(parent)?)
    }
}

impl LeaseStore for RemoteRefs<'_> {
    type Error = Failure;

    /// One connection.
    fn read(&self) -> Result<LeaseSnapshot, Failure> {
        self.client.lease_in_remote(self.look()?)
    }

    fn prepare(&self, record: &Record<'_>) -> Result<Version, Failure> {
        let fence = &self.client.fence;
        let commit = match *record {
            Record::Lease { lease, parent, proof } => {
                let parent = parent.map(commit_of).transpose()?;
                self.write(&lease.owner, parent.as_ref(), &lease.message(fence, proof))?
            }
            Record::Beat { beat, owner, proof } => self.write(owner, None, &beat.message(fence, proof))?,
        };
        Ok(Version::new(commit.as_str()))
    }

    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<Failure>, Failure> {
        Ok(self.push(swaps, &[], &mut |_| {})?.answer)
    }

    /// A remote that does not answer has not said that the lease is free, or held.
    fn ask_gate(&self, owner: &str) -> Result<GateSays, Failure> {
        self.answer_to(owner, &self.question())
    }

    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, Failure> {
        let is_older = |then: &StoredLease| then.lease.token < token;
        self.mirror.history(tip, LONGEST_HISTORY, &self.client.how(), is_older)
    }
}

impl Client {
    /// The lease in `sight`, if it is kept in the remote.
    pub(crate) fn lease_in_remote(&self, sight: RemoteSight) -> Result<LeaseSnapshot, Failure> {
        match may_be_in_remote(sight.lease_state(), sight.mark.as_ref().map(|mark| &mark.record)) {
            // A gate knows which kind of tokens the fence takes now.
            Err(Elsewhere::OwnTokens) if remembered_gate(self) == Some(true) => Ok(sight.snapshot),
            Err(at) => Err(self.elsewhere(at)),
            Ok(()) => Ok(sight.snapshot),
        }
    }

    /// The lease is kept elsewhere.
    pub(crate) fn elsewhere(&self, at: Elsewhere) -> Failure {
        Failure::Elsewhere { remote: self.remote.name.clone(), fence: self.fence.clone(), at }
    }
}

impl RemoteSight {
    /// The state of the lease in the remote.
    pub(crate) fn lease_state(&self) -> Option<LeaseState> {
        self.snapshot.lease.as_ref().map(|stored| stored.lease.state)
    }
}

/// Whether this clone has last seen a gate on the remote; `None` if it has seen nothing yet.
pub(crate) fn remembered_gate(client: &Client) -> Option<bool> {
    fs::read(gate_file(client)).ok().map(|known| known == b"yes")
}

/// Only `status` needs it, so a file that cannot be written does no harm.
fn remember_gate(client: &Client, gate: bool) {
    if remembered_gate(client) != Some(gate) {
        let _ = write_whole(&gate_file(client), if gate { b"yes" } else { b"no" });
    }
}

fn gate_file(client: &Client) -> PathBuf {
    home(&client.local).join(format!("gate-{}", name_of_url(&client.remote.url)))
}

/// Whether a new ownership begins: lease and beat move together.
fn is_grant(swaps: &[Swap]) -> bool {
    [LeasePart::Lease, LeasePart::Beat].iter().all(|part| swaps.iter().any(|swap| swap.part == *part))
}

/// Classifies a refusal by git or by the gate.
pub(crate) fn refused(refs: Vec<RefAnswer>, gate: Option<GateAnswer>, said: Vec<String>) -> SwapRefused {
    let says = |why: &str, words: &[&str]| words.iter().any(|words| why.contains(words));
    let any = |is_it: &dyn Fn(&str) -> bool| refs.iter().any(|answer| answer.refused.as_deref().is_some_and(is_it));
    let lease_may_have_moved = any(&|why| !says(why, &OF_USERS_REFS));
    let crowded = any(&|why| says(why, &CROWDED));
    // What the gate has granted, something behind it has refused.
    let gate = gate.filter(GateAnswer::is_refusal);
    let is_theirs = |line: &String| line.starts_with("remote: ") && is_denied(line);
    let has_moved = |answer: &&RefAnswer| answer.refused.is_none() && !answer.up_to_date;
    let moved = refs.iter().filter(has_moved).map(|answer| answer.name.clone()).collect();
    let denied = gate.is_none() && (declines_leases(&refs) || any(&|why| is_denied(why)) || said.iter().any(is_theirs));
    SwapRefused { gate, why: reasons(refs), crowded, lease_may_have_moved, denied, said, moved }
}

/// Whether the remote does not let us write the refs of leases: its update hook or a setting declines one of them, or its
/// pre-receive hook declines a push of nothing else.
fn declines_leases(refs: &[RefAnswer]) -> bool {
    let is_lease = |answer: &RefAnswer| answer.name.starts_with("refs/fence/");
    let only_leases = refs.iter().all(is_lease);
    let declines =
        |why: &str| DECLINED.iter().any(|words| why.contains(words)) || only_leases && why.contains("hook declined)");
    refs.iter().any(|answer| is_lease(answer) && answer.refused.as_deref().is_some_and(declines))
}
