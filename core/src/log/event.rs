//! The lines of the log.

use crate::{
    Code, Evidence, FenceName, Heir, LeaseChange, LeaseId, LeaseMove, LineHash, Mark, Place, Plan, PushId, ReceivePack,
    Source, Stamp, Standing, State, Token, TokenKind, text,
};
use serde::{Deserialize, Serialize};

/// One line: what happened, when, and which line came before.
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

/// Who pushed, as far as the host says so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Who {
    /// What the pusher calls itself. Not an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who the host says it is.
    pub pusher: String,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// What a push brings to one fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stake {
    /// The fence.
    pub fence: FenceName,
    /// Its token.
    pub token: Option<Token>,
    /// The fence's mark at that moment; in a settlement, afterwards.
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
        /// Who began it.
        pusher: String,
    },
    /// The log was found in a state that only an interruption explains, and was put right.
    #[serde(rename = "log.recovered")]
    LogRecovered {
        /// What was found and done.
        reason: String,
    },
    /// The lines before this one were moved to another file. What they add up to goes on here.
    #[serde(rename = "log.rotated")]
    LogRotated {
        /// The version of this format.
        version: u32,
        /// The file that holds the lines before.
        file: String,
        /// What they add up to.
        state: Box<State>,
        /// Who did it.
        pusher: String,
    },
    /// An operator has declared a damaged log to be the log.
    #[serde(rename = "log.repaired")]
    LogRepaired {
        /// What was wrong, and what was done.
        found: String,
        /// Why.
        reason: String,
        /// Who did it.
        pusher: String,
    },
    /// An operator has lowered a mark: tokens above it may be used again.
    #[serde(rename = "mark.lowered")]
    MarkLowered {
        /// The fence.
        fence: FenceName,
        /// Its mark before.
        from: Mark,
        /// Its mark now.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who did it.
        pusher: String,
    },
    /// The settings differ from those of the last push.
    #[serde(rename = "settings.changed")]
    SettingsChanged {
        /// The settings now in force.
        settings: serde_json::Value,
        /// What tells them from others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// The fences that were given refs of others, and inherit their marks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        heirs: Vec<Heir>,
    },
    /// A push was let through. Its refs are not moved yet.
    #[serde(rename = "push.accepted")]
    PushAccepted {
        /// Its id: this line's number.
        push: PushId,
        /// The first fence it touches.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touches.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// What becomes of leases when it lands.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        leases: Vec<LeaseChange>,
        /// In observe mode: the code with which it would have been refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
        /// In observe mode: why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Where the tokens stood.
        source: Source,
        /// Who pushed.
        #[serde(flatten)]
        who: Who,
        /// What it is to move.
        #[serde(flatten)]
        plan: Plan,
        /// The process that will move them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receive_pack: Option<ReceivePack>,
        /// Where that process runs.
        place: Place,
        /// How long the decision took, waiting included.
        elapsed_us: u64,
    },
    /// A push was refused.
    #[serde(rename = "push.rejected")]
    PushRejected(Refused),
    /// In observe mode: a push was let through that could not even be read, so that nothing is
    /// known of what it moves.
    #[serde(rename = "push.observed")]
    PushObserved(Refused),
    /// A push that was let through is over, and this is what became of it.
    #[serde(rename = "push.settled")]
    PushSettled {
        /// The push.
        push: PushId,
        /// The first fence it touched, with the mark as it is now.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touched.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// The fences of which it moved a ref: there its token is spent.
        spent: Vec<FenceName>,
        /// How many refs it moved.
        moved: usize,
        /// Of how many.
        count: usize,
        /// How it is known to be over.
        evidence: Evidence,
    },
    /// Some refs of a push have moved, and it is not over; or they moved after it was taken to be over.
    #[serde(rename = "push.landed")]
    PushLanded {
        /// The push.
        push: PushId,
        /// The first fence it touched, with the mark as it is now.
        #[serde(flatten)]
        stake: Stake,
        /// The other fences it touched.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Stake>,
        /// The fences of which it has moved a ref so far: there its token is spent.
        spent: Vec<FenceName>,
        /// How many refs it has moved so far.
        moved: usize,
        /// Of how many.
        count: usize,
        /// Where it had been settled before, and too early: how many were known to have moved then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled_as: Option<usize>,
    },
    /// A fence's mark was raised without a push: nothing at or below it may write any more.
    #[serde(rename = "mark.raised")]
    MarkRaised {
        /// The fence.
        fence: FenceName,
        /// Its mark is at least this from now on.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who raised it.
        pusher: String,
    },
    /// An operator has changed the kind of tokens that a fence takes.
    #[serde(rename = "tokens.changed")]
    TokensChanged {
        /// The fence.
        fence: FenceName,
        /// The kind that it takes from now on.
        tokens: TokenKind,
        /// The kind that it took before, where that was decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<TokenKind>,
        /// Its mark is at least this from now on: nothing that was granted before may write.
        mark: Mark,
        /// Why.
        reason: String,
        /// Who did it.
        pusher: String,
    },
    /// A lease went to a new owner.
    #[serde(rename = "lease.granted")]
    LeaseGranted(LeaseLine),
    /// A lease's owner went on to the next token.
    #[serde(rename = "lease.advanced")]
    LeaseAdvanced(LeaseLine),
    /// A lease's owner gave it back.
    #[serde(rename = "lease.released")]
    LeaseReleased(LeaseLine),
    /// A lease was taken away from its owner.
    #[serde(rename = "lease.revoked")]
    LeaseRevoked(LeaseLine),
    /// A lease is not as the log knows it: it was there before the gate, or somebody has written to
    /// the refs on the server. From here on it counts as it was found.
    #[serde(rename = "lease.found")]
    LeaseFound(LeaseLine),
    /// A lease's owner is alive.
    #[serde(rename = "lease.renewed")]
    LeaseRenewed(Renewed),
    /// A waiting newer push asked the receive-pack of this one to end.
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

/// A lease as it stands from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLine {
    /// The fence.
    pub fence: FenceName,
    /// The push that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushId>,
    /// The fence's mark is at least this from now on.
    pub mark: Mark,
    /// How it stands.
    #[serde(flatten)]
    pub standing: Standing,
    /// How long it was held, where an ownership ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// Who did it.
    pub pusher: String,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// The fence.
    pub fence: FenceName,
    /// The ownership.
    pub lease: LeaseId,
    /// Its token.
    pub token: Token,
    /// When it was heard.
    pub heard: Stamp,
    /// What the owner said of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The hash of what the next one must show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<crate::Holder>,
    /// Who sent it.
    #[serde(flatten)]
    pub who: Who,
}

impl LeaseChange {
    /// The line that says that this has landed; `state` is what was known before.
    pub fn on_record(&self, push: Option<PushId>, pusher: &str, state: &State) -> Event {
        let fence = state.fence(&self.fence);
        let before = fence.lease.filter(|lease| lease.is_held());
        let held = match self.change {
            LeaseMove::Release => Some(self.standing.since.age_at(&self.standing.heard)),
            LeaseMove::Revoke => before.map(|before| before.since.age_at(&self.standing.heard)),
            // It expired at some time after its owner was last heard of.
            LeaseMove::Grant => before.map(|before| before.since.age_at(&before.heard)),
            LeaseMove::Advance | LeaseMove::Renew => None,
        };
        let line = LeaseLine {
            fence: self.fence.clone(),
            push,
            mark: fence.mark.max(self.raises_to),
            standing: self.standing.clone(),
            held_ms: held.map(|held| u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
            pusher: pusher.to_owned(),
        };
        match self.change {
            LeaseMove::Grant => Event::LeaseGranted(line),
            LeaseMove::Advance | LeaseMove::Renew => Event::LeaseAdvanced(line),
            LeaseMove::Release => Event::LeaseReleased(line),
            LeaseMove::Revoke => Event::LeaseRevoked(line),
        }
    }
}

/// A refusal, or what would have been one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why, for programs.
    pub code: Code,
    /// Why, for people.
    pub reason: String,
    /// The fence that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceName>,
    /// The token for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Where the tokens stood, if it got that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Who pushed.
    #[serde(flatten)]
    pub who: Who,
    /// What it asked for; `old` is what the pusher said.
    pub refs: Vec<AskedRef>,
    /// How many refs it asked for.
    pub count: usize,
    /// How long the decision took, waiting included.
    pub elapsed_us: u64,
}

/// How much of a name that may be anything is put on record.
const LONGEST_NAME: usize = 300;

/// A ref of a refused push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRef {
    /// As the pusher named it, cut to a sane length: it need not be a name that git allows.
    pub name: String,
    /// What the pusher said it was at.
    pub old: Option<crate::ObjectId>,
    /// What it was to become.
    pub new: Option<crate::ObjectId>,
}

impl AskedRef {
    /// The first commands of a refused push, as many as a line holds.
    pub fn of(commands: &[crate::RefUpdate]) -> Vec<AskedRef> {
        let asked = |command: &crate::RefUpdate| AskedRef {
            name: text::one_line(command.name.to_string().as_bytes(), LONGEST_NAME),
            old: command.claimed.clone(),
            new: command.new.clone(),
        };
        commands.iter().take(Plan::IN_LINE).map(asked).collect()
    }
}
