//! The lines of the log.

use crate::{
    Code, Evidence, FenceName, Heir, Jobs, LeaseChange, LeaseId, LeaseMove, LeaseState, LineHash, Mark, MarkAt,
    MarkChange, Place, Plan, PushId, ReceivePack, Refused, Source, Stamp, Standing, State, TickChange, TickSkip, Token,
    TokenKind,
};
use serde::{Deserialize, Serialize};

/// One line: what happened, when, and the hash of the line before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Counted from 1, without gaps.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// The hash of the line before.
    pub prev: LineHash,
}

/// Who pushed, as far as the host tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Who {
    /// The owner that the pusher names. Not an authenticated identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The pusher's name, from the host.
    pub pusher: String,
    /// The pusher's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A push's token for one fence, and that fence's mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stake {
    /// The fence.
    pub fence: FenceName,
    /// The token.
    pub token: Option<Token>,
    /// The fence's mark at that moment; in a settlement, after it.
    pub mark: Mark,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Event {
    /// The log begins.
    #[serde(rename = "log.begun")]
    LogBegun {
        /// The version of this format.
        version: u32,
        /// Who created it.
        pusher: String,
    },
    /// The log was in a state that only an interrupted write explains, and was recovered.
    #[serde(rename = "log.recovered")]
    LogRecovered {
        /// What was found, and what was done.
        reason: String,
    },
    /// The lines before this one were moved to another file. Their state is kept here.
    #[serde(rename = "log.rotated")]
    LogRotated {
        /// The version of this format.
        version: u32,
        /// The file with the lines before.
        file: String,
        /// Their state.
        state: Box<State>,
        /// Who did this.
        pusher: String,
    },
    /// An operator accepted a damaged log as it is.
    #[serde(rename = "log.repaired")]
    LogRepaired {
        /// What was wrong, and what was done.
        found: String,
        /// Why.
        reason: String,
        /// Who did this.
        pusher: String,
    },
    /// An operator lowered a mark: tokens above it are valid again.
    #[serde(rename = "mark.lowered")]
    MarkLowered {
        /// The fence.
        fence: FenceName,
        /// The mark before.
        from: Mark,
        /// The mark now.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who did this.
        pusher: String,
    },
    /// The settings differ from those of the last push.
    #[serde(rename = "settings.changed")]
    SettingsChanged {
        /// The settings now in force.
        settings: serde_json::Value,
        /// The hash that identifies them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// The fences that took over refs of others and inherit their marks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        heirs: Vec<Heir>,
    },
    /// A push was admitted. Its refs have not moved yet.
    #[serde(rename = "push.accepted")]
    PushAccepted {
        /// Its id: the number of this line.
        push: PushId,
        /// The first fence it touches.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touches.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// How leases change when it lands.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        leases: Vec<LeaseChange>,
        /// How marks change when it lands.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<MarkChange>,
        /// In observe mode: the code that would have refused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
        /// In observe mode: why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Where the tokens were found.
        source: Source,
        /// Who pushed.
        #[serde(flatten)]
        who: Who,
        /// The refs it will move.
        #[serde(flatten)]
        plan: Plan,
        /// The process that will move the refs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receive_pack: Option<ReceivePack>,
        /// Where that process runs.
        place: Place,
        /// How long the decision took, including waiting.
        elapsed_us: u64,
    },
    /// A push was refused. In older logs also a request that was only about leases.
    #[serde(rename = "push.rejected")]
    PushRejected(Refused),
    /// A request that was only about leases was refused: the push would have moved no other ref.
    #[serde(rename = "lease.refused")]
    LeaseRefused(Refused),
    /// In observe mode: a push was admitted that could not be read, so nothing is known about what it moves.
    #[serde(rename = "push.observed")]
    PushObserved(Refused),
    /// An admitted push is over, and this is what it moved.
    #[serde(rename = "push.settled")]
    PushSettled {
        /// The push.
        push: PushId,
        /// The first fence it touched, with the mark after this.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touched.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// The fences with a ref that it moved: its token is spent there.
        spent: Vec<FenceName>,
        /// How many refs it moved.
        moved: usize,
        /// Of how many.
        count: usize,
        /// The fences whose mark in the repository it moved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<FenceName>,
        /// Why the push counts as over.
        evidence: Evidence,
    },
    /// Some refs of a push have moved and it is not over, or they moved after it had been settled.
    #[serde(rename = "push.landed")]
    PushLanded {
        /// The push.
        push: PushId,
        /// The first fence it touched, with the mark after this.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touched.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// The fences with a ref that it has moved so far: its token is spent there.
        spent: Vec<FenceName>,
        /// How many refs it has moved so far.
        moved: usize,
        /// Of how many.
        count: usize,
        /// If it had been settled too early: how many refs were known to have moved then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled_as: Option<usize>,
    },
    /// A fence's mark was raised without a push: tokens at or below it can no longer write.
    #[serde(rename = "mark.raised")]
    MarkRaised {
        /// The fence.
        fence: FenceName,
        /// The mark is at least this from now on.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who raised it.
        pusher: String,
    },
    /// Members of a family are forgotten: their refs are gone, and nobody has held them for long.
    #[serde(rename = "members.forgotten")]
    MembersForgotten {
        /// The family.
        fence: FenceName,
        /// Its members.
        members: Vec<FenceName>,
        /// The floor of the family from now on: new members begin there, and so do these if they come back.
        mark: Mark,
    },
    /// An operator changed the kind of tokens that a fence takes.
    #[serde(rename = "tokens.changed")]
    TokensChanged {
        /// The fence.
        fence: FenceName,
        /// The new kind.
        tokens: TokenKind,
        /// The kind before, if it was decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<TokenKind>,
        /// The mark is at least this from now on, so tokens granted before can no longer write.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who did this.
        pusher: String,
    },
    /// A lease was granted to a new owner.
    #[serde(rename = "lease.granted")]
    LeaseGranted(LeaseLine),
    /// A lease's owner advanced to the next token.
    #[serde(rename = "lease.advanced")]
    LeaseAdvanced(LeaseLine),
    /// A lease's owner released it.
    #[serde(rename = "lease.released")]
    LeaseReleased(LeaseLine),
    /// A lease was revoked.
    #[serde(rename = "lease.revoked")]
    LeaseRevoked(LeaseLine),
    /// A fence was halted: nobody gets its lease until it is resumed.
    #[serde(rename = "lease.halted")]
    LeaseHalted(LeaseLine),
    /// A halted fence was resumed.
    #[serde(rename = "lease.resumed")]
    LeaseResumed(LeaseLine),
    /// A lease differs from the log: it is older than the gate, or somebody wrote to its refs on the server.
    /// From here on it counts as it was found.
    #[serde(rename = "lease.found")]
    LeaseFound(LeaseLine),
    /// The mark in the repository is not where the log has it: it is older than the gate, or somebody wrote to its ref on the
    /// server. From here on it counts as it was found.
    #[serde(rename = "mark.found")]
    MarkFound(MarkLine),
    /// A scheduled run starts nothing, and says why.
    #[serde(rename = "tick.skipped")]
    TickSkipped {
        /// The fence.
        fence: FenceName,
        /// The job, and why.
        #[serde(flatten)]
        skip: TickSkip,
        /// Who asked.
        #[serde(flatten)]
        who: Who,
    },
    /// A lease's owner renewed it.
    #[serde(rename = "lease.renewed")]
    LeaseRenewed(Renewed),
    /// A newer push that waited asked the receive-pack of this one to end.
    #[serde(rename = "push.evicted")]
    PushEvicted {
        /// The push that was ended.
        push: PushId,
        /// Why.
        reason: String,
        /// Who asked.
        #[serde(flatten)]
        who: Who,
    },
}

/// The state of a lease from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLine {
    /// The fence.
    pub fence: FenceName,
    /// The push that changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushId>,
    /// The fence's mark is at least this from now on.
    pub mark: Mark,
    /// The lease.
    #[serde(flatten)]
    pub standing: Standing,
    /// What happened to ticks of scheduled jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<TickChange>,
    /// How long it was held, if an ownership ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// Who did this.
    pub pusher: String,
}

/// Where the mark's ref of a fence was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkLine {
    /// The fence.
    pub fence: FenceName,
    /// Its commit and record; `None` if the ref is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MarkAt>,
    /// The fence's mark is at least this from now on.
    pub mark: Mark,
    /// Whose push found it.
    pub pusher: String,
}

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// The fence.
    pub fence: FenceName,
    /// The id of the ownership.
    pub lease: LeaseId,
    /// Its token.
    pub token: Token,
    /// When it arrived.
    pub heard: Stamp,
    /// The owner's progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The hash of the proof that the next heartbeat must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<crate::Holder>,
    /// Who sent it.
    #[serde(flatten)]
    pub who: Who,
}

impl LeaseChange {
    /// What the change does to ticks, if the lease was `before`.
    fn ticks_after(&self, before: Option<&Standing>) -> Vec<TickChange> {
        let none = Jobs::default();
        before.map_or(&none, |before| &before.lease.jobs).changes_to(&self.standing.lease.jobs)
    }

    /// The line for this change after it has landed; `state` is the state before.
    pub fn on_record(&self, push: Option<PushId>, pusher: &str, state: &State) -> Event {
        let fence = state.fence(&self.fence);
        let before = fence.lease.filter(|lease| lease.is_held());
        let held = match self.change {
            // A lease that moves elsewhere may have been free.
            LeaseMove::Release if self.standing.lease.state == LeaseState::Moved => {
                before.map(|before| before.since.age_at(&before.heard))
            }
            LeaseMove::Release => Some(self.standing.since.age_at(&self.standing.heard)),
            LeaseMove::Revoke | LeaseMove::Halt => before.map(|before| before.since.age_at(&self.standing.heard)),
            // It expired at some time after its last heartbeat.
            LeaseMove::Grant => before.map(|before| before.since.age_at(&before.heard)),
            LeaseMove::Advance | LeaseMove::Renew | LeaseMove::Resume => None,
        };
        let line = LeaseLine {
            fence: self.fence.clone(),
            push,
            mark: fence.mark.max(self.raises_to),
            standing: self.standing.clone(),
            ticks: self.ticks_after(fence.lease),
            held_ms: held.map(|held| u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
            pusher: pusher.to_owned(),
        };
        match self.change {
            LeaseMove::Grant => Event::LeaseGranted(line),
            LeaseMove::Advance | LeaseMove::Renew => Event::LeaseAdvanced(line),
            LeaseMove::Release => Event::LeaseReleased(line),
            LeaseMove::Revoke => Event::LeaseRevoked(line),
            LeaseMove::Halt => Event::LeaseHalted(line),
            LeaseMove::Resume => Event::LeaseResumed(line),
        }
    }
}
