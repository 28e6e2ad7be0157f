//! What came of a command, for programs: one flat object on one line, with the same names for every command.
//!
//! `docs/git-fence.schema.json` is its schema and `docs/json.md` explains it. A command makes its report, `cli` adds who
//! ran it and the exit code, and prints it. Nothing here decides anything.

pub(crate) mod outcome;

use crate::{
    client::Client,
    commands::ticks::JobEntry,
    failure::{Failure, of_file},
    files::write_whole,
    lease::held::HeldLease,
};
use git_fence_core::{
    Code, FenceName, Halt, HeldBy, Job, JobName, LastHolder, Lease, LeaseId, Reason, StoreCheckStep, StoreClock,
    StorePlace, Tick, Token,
};
use outcome::Outcome;
use serde::Serialize;
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

/// What came of a command. A field that is not known, or has no meaning for the command, is left out.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    /// Why something was refused, held or lost, by the fence's rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<Code>,
    /// The exit code; none in the status file of a run that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<FenceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    /// My token: of a push, the one it carried; of a run, the one at its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Token>,
    /// The token at the end of a run; the difference is the number of tokens spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_token: Option<Token>,
    /// My lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<LeaseId>,
    /// Me, who ran the command; never the holder of somebody else's lease.
    pub(crate) owner: String,
    /// Who holds the lease now, if anybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<CurrentHolder>,
    /// Who held it last, if nobody holds it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<LastHolder>,
    /// Who halted the fence, if it is halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) halt: Option<Halt>,
    /// How long my lease is still good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_ms: Option<u64>,
    /// Whether the same command may succeed later.
    pub(crate) retryable: bool,
    /// For people, in one line.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Why the lease came to its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// What was given with `--reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<String>,
    /// Whether the remote has a gate, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gate: Option<bool>,
    /// The progress that was noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<String>,
    /// The refs that a push moved, and those that were where it wanted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) up_to_date: Option<Vec<String>>,
    /// How long a run held the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
    /// The job of a scheduled run, and the tick that it ran for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<JobName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tick: Option<Tick>,
    /// How many ticks were dropped before that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ticks_dropped: Option<u64>,
    /// When the next tick comes, if nothing was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_tick: Option<Tick>,
    /// The scheduled jobs of the fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jobs: Option<Vec<JobEntry>>,
    /// The store in which the lease is kept, without user and password, and the repository's name in it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<StorePlace>,
    /// What was tried of a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checks: Option<Vec<StoreCheckStep>>,
    /// The clocks of a store's endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clocks: Option<Vec<StoreClock>>,
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CurrentHolder {
    #[serde(flatten)]
    by: HeldBy,
    /// Whether it is this clone.
    mine: bool,
}

impl Report {
    pub(crate) fn new(outcome: Outcome, message: impl Into<String>) -> Report {
        Report {
            outcome,
            code: None,
            exit_code: None,
            fence: None,
            remote: None,
            token: None,
            last_token: None,
            lease: None,
            owner: String::new(),
            holder: None,
            last: None,
            halt: None,
            expires_in_ms: None,
            retryable: false,
            message: message.into(),
            hint: None,
            reason: None,
            words: None,
            gate: None,
            progress: None,
            moved: None,
            up_to_date: None,
            held_ms: None,
            job: None,
            tick: None,
            ticks_dropped: None,
            next_tick: None,
            jobs: None,
            place: None,
            checks: None,
            clocks: None,
        }
    }

    /// Of a command that failed.
    pub(crate) fn of(failure: &Failure) -> Report {
        let mut report = Report::new(failure.outcome(), "");
        report.fail(failure);
        report
    }

    /// Of a failure. What is known besides it stays.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.outcome = failure.outcome();
        self.code = failure.code();
        self.exit_code = Some(failure.exit_code());
        self.fence = failure.fence().cloned().or(self.fence.take());
        self.holder = failure.holder().or(self.holder.take());
        self.halt = failure.halt().or(self.halt.take());
        self.retryable = failure.is_retryable();
        self.message = failure.in_one_line();
        self.hint = Some(failure.hint());
    }

    /// About this fence of this remote.
    pub(crate) fn about(mut self, client: &Client) -> Report {
        self.fence = Some(client.fence.clone());
        self.remote = Some(client.remote.name.clone());
        self
    }

    /// Under this lease of mine, which is good for another `left`.
    pub(crate) fn under(mut self, held: &HeldLease, left: Option<Duration>) -> Report {
        let Lease { id, token, owner, reason, words, .. } = held.lease.clone();
        self.fence = Some(held.fence.clone());
        self.remote = Some(held.remote.clone());
        (self.token, self.lease, self.owner) = (Some(token), Some(id), owner);
        (self.reason, self.words) = (Some(reason), words);
        self.expires_in_ms = left.map(in_ms);
        self
    }

    /// For this tick of a job.
    pub(crate) fn for_tick(mut self, started: Option<(JobName, &Job)>) -> Report {
        if let Some((name, job)) = started {
            (self.job, self.tick, self.ticks_dropped) = (Some(name), Some(job.tick), Some(job.dropped));
        }
        self
    }

    /// About a lease in this store.
    pub(crate) fn kept_in(mut self, place: Option<StorePlace>) -> Report {
        self.place = place;
        self
    }

    /// Of a command that `me` ran, unless it used a lease of another name.
    pub(crate) fn by(&mut self, me: &str) {
        if self.owner.is_empty() {
            me.clone_into(&mut self.owner);
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Writes the status file atomically. It contains no secret.
    pub(crate) fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = path else { return Ok(()) };
        let written = write_whole(path, format!("{}\n", self.json()).as_bytes())
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)));
        written.map_err(|e| of_file(path, e))
    }

    /// The same after the output of a command, which may have left a line without its end. Nobody can know, so the report
    /// always begins a new one.
    pub(crate) fn print_after(&self, is_after_output: bool) {
        if is_after_output {
            let _ = writeln!(io::stdout());
        }
        self.print();
    }

    /// Prints it to standard output. A closed pipe is ignored.
    pub(crate) fn print(&self) {
        let _ = writeln!(io::stdout(), "{}", self.json());
    }
}

impl CurrentHolder {
    pub(crate) fn of(by: HeldBy, mine: bool) -> CurrentHolder {
        CurrentHolder { by, mine }
    }
}

pub(crate) fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
