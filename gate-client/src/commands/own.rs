//! The leases of this clone: which one is ours, what an interrupted command has left, and taking one anew.

use crate::{
    client::Client,
    commands::context::{Context, Target},
    failure::Failure,
    lease::{
        held::{CurrentLease, LeaseDir, TakenBy},
        taking::{LeaseRequest, Taken},
    },
    run::{acquiring::take_when_free, watch::note},
};
use git_fence_core::{FenceName, HeldBy, LeaseId, text};
use std::time::Duration;

/// The hint after a signal that left nothing behind.
pub(crate) const GO_ON: &str = "run it again when you want to go on";

/// Whose a lease is, seen from this clone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Whose {
    Theirs,
    /// Ours, of `git fence acquire` or of the enclosing run.
    Held,
    /// Ours, of a command that still runs.
    InUse,
    /// Ours, of a command that was killed or could not give it back.
    LeftBehind(LeaseDir),
}

impl Context {
    /// Whose the lease `id` is.
    pub(crate) fn whose(&self, client: &Client, id: &LeaseId) -> Whose {
        let fence = Some(client.fence.to_string());
        if self.holds(&Target { fence, remote: Some(client.remote.name.clone()), ..Target::default() }, id) {
            return Whose::Held;
        }
        match LeaseDir::of(&self.local, id) {
            Some(dir) if dir.is_in_use() => Whose::InUse,
            Some(dir) => Whose::LeftBehind(dir),
            None => Whose::Theirs,
        }
    }

    /// Takes the lease. One that an interrupted command of this clone has left is given back first.
    pub(crate) fn take(&self, client: &Client, request: &LeaseRequest) -> Result<LeaseDir, Failure> {
        let by = match client.acquire(request)? {
            Taken::Ours(dir) => return Ok(dir),
            Taken::Theirs(by, _) => by,
            Taken::NothingDue(_) => return Err(client.busy("no tick is due")),
        };
        let left = match self.whose(client, &by.lease) {
            Whose::LeftBehind(dir) if taken_by(&dir) != Some(TakenBy::Run) => dir,
            whose => return Err(held(client, by, &whose)),
        };
        note(&format!("this clone held the lease of fence '{}' {}: giving it back first", client.fence, from(&left)));
        match client.release(&left) {
            // Others may have found it, too, or it was lost meanwhile.
            Ok(()) | Err(Failure::Lost { .. } | Failure::Usage { .. }) => {}
            Err(other) => return Err(other),
        }
        match client.acquire(request)? {
            Taken::Ours(dir) => Ok(dir),
            Taken::Theirs(by, _) => Err(held(client, by.clone(), &self.whose(client, &by.lease))),
            Taken::NothingDue(_) => Err(client.busy("no tick is due")),
        }
    }

    /// Takes the lease, and waits up to `wait` for one that another command holds.
    pub(crate) fn take_within(
        &self,
        client: &Client,
        request: &LeaseRequest,
        wait: Option<Duration>,
    ) -> Result<LeaseDir, Failure> {
        match (self.take(client, request), wait) {
            (Err(Failure::Held { .. } | Failure::InUse { .. }), Some(wait)) => {
                take_when_free(client, request, wait, &self.interrupt.events())
            }
            (taken, _) => taken,
        }
    }

    /// The leases of this fence that commands of this clone have left, and whether one is still in use.
    pub(crate) fn left_behind(&self, client: &Client) -> (Vec<LeaseDir>, bool) {
        let current = CurrentLease::of(&self.local, &client.fence, &client.remote.url).find();
        let is_of_fence =
            |dir: &LeaseDir| dir.held().is_ok_and(|held| held.fence == client.fence && held.url == client.remote.url);
        let all = LeaseDir::all(&self.local).into_iter().filter(|dir| Some(dir) != current.as_ref());
        let (in_use, left): (Vec<_>, Vec<_>) = all.filter(is_of_fence).partition(LeaseDir::is_in_use);
        (left, !in_use.is_empty())
    }

    /// From now on a signal makes the command give back what it takes; `client` then hurries.
    pub(crate) fn gives_back(&self, client: &Client) -> Client {
        Client { hurry: Some(self.interrupt.defer(still_held(&client.fence))), ..client.clone() }
    }

    /// `result`, or what a signal made of it. The lease in `taken` is given back.
    pub(crate) fn unless_interrupted<T>(
        &self,
        client: &Client,
        taken: Option<&LeaseDir>,
        result: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(signal) = self.interrupt.signal() else { return result };
        let before = match result {
            Ok(_) => "nothing was pushed".to_owned(),
            Err(Failure::Interrupted { what, .. }) => what,
            // The signal is the reason; the git that was stopped has none.
            Err(Failure::DidNotLand { .. }) => "the push did not land".to_owned(),
            Err(failure) => failure.in_one_line(),
        };
        let released = taken.map(|dir| client.release(dir));
        let (lease, hint) = match released {
            Some(Ok(())) => ("; the lease was given back".to_owned(), GO_ON),
            None | Some(Err(Failure::Lost { .. })) => (String::new(), GO_ON),
            Some(Err(failure)) => (
                format!("; {} ({})", still_held(&client.fence), failure.in_one_line()),
                "the lease expires by itself. To give it back before:  git fence release",
            ),
        };
        Err(Failure::Interrupted { signal, what: format!("{before}{lease}"), hint: hint.to_owned() })
    }
}

/// The failure of a command that wanted a lease and did not get it.
pub(crate) fn held(client: &Client, by: HeldBy, whose: &Whose) -> Failure {
    let (fence, by) = (client.fence.clone(), Box::new(by));
    match whose {
        Whose::Theirs => Failure::Held { fence, by },
        Whose::Held => Failure::HeldHere { fence, by },
        Whose::InUse => Failure::InUse { fence, by },
        Whose::LeftBehind(dir) => Failure::LeftBehind { fence, by, from: from(dir) },
    }
}

/// The command that a lease was left by, in words.
pub(crate) fn from(dir: &LeaseDir) -> &'static str {
    match taken_by(dir) {
        Some(TakenBy::Push) => "from an interrupted push",
        Some(TakenBy::Run) => "from a run that was killed",
        Some(TakenBy::Acquire | TakenBy::Revoke | TakenBy::Ticks) | None => "from an interrupted command",
    }
}

/// What is said of a lease that could not be given back.
pub(crate) fn still_held(fence: &FenceName) -> String {
    format!(
        "this clone still holds the lease of fence '{fence}', until it expires or  git fence release  gives it back"
    )
}

/// A lease that is held, and how this clone comes into it.
pub(crate) fn held_by(owner: &str, whose: &Whose) -> String {
    let owner = text::in_quotes(owner);
    match whose {
        Whose::Theirs => owner,
        Whose::Held => format!("{owner} (this clone)"),
        Whose::InUse => format!("{owner} (this clone), by a command that still runs"),
        Whose::LeftBehind(dir) => format!("{owner} (this clone), {}", from(dir)),
    }
}

fn taken_by(dir: &LeaseDir) -> Option<TakenBy> {
    dir.held().ok()?.taken_by
}
