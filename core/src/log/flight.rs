//! The record of an admitted push whose refs git is still updating.

use crate::{
    FenceName, LeaseAsk, LeaseChange, MarkChange, ObjectId, Place, ReceivePack, RefName, Stake, Stamp, Standing, Token,
    Who,
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sha2::{Digest, Sha256};
use std::fmt;

/// Identifies a push from acceptance to settlement: the number of the line that accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PushId(pub u64);

impl fmt::Display for PushId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One ref that a push is about to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRef {
    /// The ref that will change: if the pusher named a symbolic ref, its target.
    pub name: RefName,
    /// The fence it counts for.
    pub fence: FenceName,
    /// The value when the push was admitted, read under the lock.
    pub old: Option<ObjectId>,
    /// The new value.
    pub new: Option<ObjectId>,
    /// The old value that the pusher claimed, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<String>,
    /// The symbolic ref that the pusher named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<RefName>,
}

/// The refs that a push is about to move.
///
/// A line of the log contains a short plan whole. Of a long plan it contains the beginning and the digest of
/// the whole, which is kept beside the log until the push is settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The refs, or the first of them.
    pub refs: Vec<PlannedRef>,
    /// How many there are.
    pub count: usize,
    /// SHA-256 of [`Plan::write_out`] of all of them.
    pub digest: String,
}

impl Plan {
    /// The most refs that a line of the log contains.
    pub const IN_LINE: usize = 64;

    /// The plan of `refs`, cut to what fits in a line.
    pub fn of(mut refs: Vec<PlannedRef>) -> Plan {
        let digest = Plan::digest_of(&Plan::write_out(&refs));
        let count = refs.len();
        refs.truncate(Plan::IN_LINE);
        Plan { refs, count, digest }
    }

    /// Whether all refs are here.
    pub fn is_whole(&self) -> bool {
        self.refs.len() == self.count
    }

    /// Whether it moves nothing but refs of leases.
    pub fn is_only_about_leases(&self) -> bool {
        !self.refs.is_empty() && self.is_whole() && self.refs.iter().all(|planned| planned.name.is_lease())
    }

    /// All refs as JSON lines, to be kept beside the log.
    pub fn write_out(refs: &[PlannedRef]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for planned in refs {
            let written = serde_json::to_writer(&mut bytes, planned);
            debug_assert!(written.is_ok(), "a planned ref can be written as JSON");
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads what [`Plan::write_out`] wrote; `None` if the digest differs.
    pub fn read_back(&self, bytes: &[u8]) -> Option<Vec<PlannedRef>> {
        if Plan::digest_of(bytes) != self.digest {
            return None;
        }
        serde_json::Deserializer::from_slice(bytes).into_iter().collect::<Result<_, _>>().ok()
    }

    fn digest_of(bytes: &[u8]) -> String {
        crate::log::chain::hex(&Sha256::digest(bytes))
    }
}

/// A push in its slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Its id.
    pub push: PushId,
    /// When it was admitted.
    pub time: String,
    /// The fences it touches, with its tokens; at least one.
    #[serde(deserialize_with = "at_least_one")]
    pub stakes: Vec<Stake>,
    /// The refs it will move.
    pub plan: Plan,
    /// How leases change when it lands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseChange>,
    /// How marks change when it lands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkChange>,
    /// Who pushes.
    pub who: Who,
    /// Where it runs.
    pub place: Place,
    /// The process that moves the refs; `None` if the host starts hooks elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_pack: Option<ReceivePack>,
    /// What is known to have moved while the push is still in flight.
    #[serde(default, skip_serializing_if = "Landed::is_nothing")]
    pub landed: Landed,
}

/// What is known to have moved. It only grows: later changes of a ref do not affect it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Landed {
    /// The fences with a ref that moved.
    pub spent: Vec<FenceName>,
    /// How many refs moved.
    pub moved: usize,
}

impl Landed {
    /// Whether nothing is known to have moved.
    pub fn is_nothing(&self) -> bool {
        self.spent.is_empty() && self.moved == 0
    }
}

impl InFlight {
    /// Whether it occupies the slot of `fence`.
    pub fn touches(&self, fence: &FenceName) -> bool {
        self.stakes.iter().any(|stake| stake.fence == *fence)
    }

    /// The token it carries for `fence`.
    pub fn token_for(&self, fence: &FenceName) -> Option<Token> {
        self.stakes.iter().find(|stake| stake.fence == *fence)?.token
    }

    /// Whether this is a push of the holder in `standing`, whose lease has ended, and `asked` proposes another one; or
    /// halts the fence, which ends any lease.
    ///
    /// Tokens do not tell: the push carries the lease on to the very token that the successor asks for.
    pub fn is_succeeded(&self, standing: &Standing, asked: &LeaseAsk, now: &Stamp) -> bool {
        let holder = &standing.lease.id;
        let is_of_holder = self.leases.iter().any(|change| change.standing.lease.id == *holder);
        let is_of_another = asked.lease.as_ref().is_some_and(|proposal| proposal.lease.id != *holder);
        let halts = asked.may_revoke && asked.lease.as_ref().is_some_and(|proposal| proposal.lease.halt().is_some());
        is_of_holder && is_of_another && (halts || standing.left_at(now).is_none())
    }
}

/// A push that touches no fence is never in flight. Settling relies on that.
fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Stake>, D::Error> {
    let stakes = Vec::deserialize(deserializer)?;
    if stakes.is_empty() { Err(D::Error::custom("a push in flight must touch at least one fence")) } else { Ok(stakes) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn oid(fill: &str) -> Option<ObjectId> {
        ObjectId::parse(fill.repeat(40).as_bytes()).unwrap()
    }

    /// A push to `repo` whose refs move from one fill digit to the other ("0" is no object).
    pub(crate) fn in_flight(push: u64, token: Option<u64>, refs: &[(&str, &str, &str)]) -> InFlight {
        let refs = refs.iter().map(|(name, old, new)| PlannedRef {
            name: RefName::new(*name),
            fence: FenceName::repo(),
            old: oid(old),
            new: oid(new),
            claimed: None,
            via: None,
        });
        InFlight {
            push: PushId(push),
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            stakes: vec![Stake {
                fence: FenceName::repo(),
                token: token.map(|n| n.try_into().unwrap()),
                mark: crate::Mark::default(),
            }],
            plan: Plan::of(refs.collect()),
            leases: Vec::new(),
            marks: Vec::new(),
            who: Who { owner: None, pusher: "tester".to_owned(), address: None },
            place: Place { boot: "b".to_owned(), machine: None, pid_ns: 1, uptime_ms: 0 },
            receive_pack: None,
            landed: Landed::default(),
        }
    }

    #[test]
    fn push_that_touches_no_fence_cannot_be_in_flight() {
        let mut json = serde_json::to_value(in_flight(1, Some(5), &[])).unwrap();
        assert!(serde_json::from_value::<InFlight>(json.clone()).is_ok());
        json["stakes"] = serde_json::json!([]);
        assert!(serde_json::from_value::<InFlight>(json).is_err());
    }

    #[test]
    fn long_plan_is_cut_in_the_line_and_read_back_whole() {
        let names: Vec<String> = (0..Plan::IN_LINE + 1).map(|n| format!("refs/heads/{n}")).collect();
        let refs: Vec<_> = names.iter().map(|name| (name.as_str(), "0", "a")).collect();
        let whole = in_flight(1, None, &refs[..Plan::IN_LINE]).plan;
        assert!(whole.is_whole());

        let all: Vec<PlannedRef> = refs.chunks(10).flat_map(|some| in_flight(1, None, some).plan.refs).collect();
        let bytes = Plan::write_out(&all);
        let cut = Plan::of(all.clone());
        assert!(!cut.is_whole());
        assert_eq!(cut.count, Plan::IN_LINE + 1);
        assert_eq!(cut.read_back(&bytes), Some(all));
        assert_eq!(cut.read_back(&bytes[..bytes.len() - 1]), None);
    }
}
