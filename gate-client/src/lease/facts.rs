//! What is known about a push while it is sent and settled, and what its end means.

use crate::{
    client::Client,
    failure::Failure,
    lease::pushing::Moved,
    store::{
        answer::RefAnswer,
        remote::Pushed,
        sending::{RefsNow, Sending},
    },
};
use git_fence_core::{Code, PushingAnswer, PushingEnd, SwapRefused, Swapped, Token};

/// What is known about a push.
#[derive(Default)]
pub(super) struct PushFacts<'a> {
    /// The push, once sent, and its refs as far as they are known.
    sent: Option<Sending<'a>>,
    pub(super) refs: Vec<RefAnswer>,
    undone: Vec<String>,
    refused: SwapRefused,
    /// Why the answer to the push was lost.
    lost_why: Option<String>,
    /// Why the settling swap failed, and the gate's refusal of it because another push is in the slot.
    why: String,
    busy: Option<Box<SwapRefused>>,
    failure: Option<Failure>,
    /// Whether nothing but what is carried was pushed.
    is_alone: bool,
    /// Whether nothing but what is carried was new, and it was refused for that.
    nothing_new: bool,
}

impl<'a> PushFacts<'a> {
    /// The answer to the push.
    pub(super) fn heard(&mut self, pushed: Pushed<'a>) -> PushingAnswer {
        self.is_alone = pushed.sent.is_none();
        (self.refs, self.sent) = (pushed.refs, pushed.sent);
        match pushed.answer {
            Swapped::Won => PushingAnswer::Landed,
            // A gate lets nobody raise a mark without moving a ref.
            Swapped::Refused(refused) if refused.gate.is_some() && is_nothing_new(&self.refs) => {
                self.nothing_new = true;
                PushingAnswer::NotSent
            }
            Swapped::Refused(refused) => {
                self.refused = *refused;
                PushingAnswer::from(&self.refused)
            }
            Swapped::Unknown { why } => {
                self.lost_why = Some(why);
                PushingAnswer::Unknown
            }
            Swapped::NotSent(failure) => {
                self.failure = Some(failure);
                PushingAnswer::NotSent
            }
        }
    }

    /// The answer to the swap that settles a lost push.
    pub(super) fn heard_of_settling(&mut self, answer: Swapped<Failure>) -> PushingAnswer {
        match answer {
            Swapped::Won => PushingAnswer::Landed,
            Swapped::Refused(refused) => {
                self.why = refused.why.join("; ");
                let code = refused.gate.as_ref().and_then(|gate| gate.code);
                let by_gate = refused.gate.is_some();
                self.busy = (code == Some(Code::Busy)).then_some(refused);
                PushingAnswer::Refused { may_be_lost: true, by_gate }
            }
            Swapped::Unknown { why } => {
                self.why = why;
                PushingAnswer::Unknown
            }
            Swapped::NotSent(failure) => {
                self.why = failure.in_one_line();
                self.failure = Some(failure);
                PushingAnswer::NotSent
            }
        }
    }

    /// Whether a gate has refused it because another has the lease, or has written since.
    pub(super) fn is_refused_as_late(&self) -> bool {
        let code = self.refused.gate.as_ref().and_then(|gate| gate.code);
        matches!(code, Some(Code::LeaseLost | Code::Stale | Code::LeaseRequired))
    }

    /// Reads whether the user's refs are where the push was to move them.
    pub(super) fn read_refs(&mut self) -> Result<PushingAnswer, Failure> {
        if self.is_alone {
            return Ok(PushingAnswer::AllThere(true));
        }
        // The refs of an earlier push are not known.
        let Some(sent) = &self.sent else { return Ok(PushingAnswer::Unknown) };
        match sent.read_refs() {
            Ok(RefsNow { there, undone }) => {
                (self.refs, self.undone) = (there, undone);
                Ok(PushingAnswer::AllThere(self.undone.is_empty()))
            }
            Err(Failure::Unreachable { why, .. }) => {
                self.lost_why = Some(why);
                Ok(PushingAnswer::Unknown)
            }
            Err(other) => Err(other),
        }
    }

    /// After a lost answer, an unreachable remote leaves the result unknown.
    pub(super) fn or_unknown(&self, failed: Failure) -> Failure {
        match &self.lost_why {
            Some(why) if failed.is_unreachable() => Failure::Unknown { why: why.clone() },
            _ => failed,
        }
    }

    /// What the end means for a push with `token`. `lost` says who has the lease instead.
    pub(super) fn end(
        self,
        client: &Client,
        end: PushingEnd,
        token: Token,
        lost: impl FnOnce(&PushFacts<'_>, bool) -> Failure,
    ) -> Result<Moved, Failure> {
        let why = || self.lost_why.clone().unwrap_or_else(|| self.refused.why.join("; "));
        match end {
            PushingEnd::Landed => Ok(Moved::Landed { token, refs: self.refs }),
            PushingEnd::Refused => Ok(Moved::Refused(Box::new(self.refused))),
            PushingEnd::ReleasedBefore => Err(Failure::lost(&client.fence, "it has been released")),
            PushingEnd::DidNotLand => Err(Failure::DidNotLand { why: why() }),
            PushingEnd::Outdated => {
                let why = "the lease has advanced without this push, and the local state was outdated";
                Err(Failure::DidNotLand { why: why.to_owned() })
            }
            PushingEnd::InPart => {
                Err(Failure::InPart { why: format!("the lease moved: {}", why()), refs: self.undone })
            }
            PushingEnd::MovedOn => {
                let (names, why) = (self.undone.join(", "), why());
                Err(Failure::Unknown {
                    why: format!("others have held the lease since, and {names} moved again: {why}"),
                })
            }
            PushingEnd::Unknown => Err(Failure::Unknown { why: why() }),
            PushingEnd::NotSent if self.nothing_new => Ok(Moved::NothingNew { refs: self.refs }),
            PushingEnd::NotSent | PushingEnd::EarlierUnknown => Err(match (self.busy, self.failure) {
                (Some(busy), _) if end == PushingEnd::EarlierUnknown => client.refused(&busy),
                (_, failure) => failure.unwrap_or_else(|| client.unreachable(self.why)),
            }),
            PushingEnd::Lost { gate_is_unaware } => Err(lost(&self, gate_is_unaware)),
            PushingEnd::LandedThenLost => Err(lost(&self, false).after("the push landed; since then")),
            PushingEnd::LostOnTheWay => Err(lost(&self, false)
                .after("the lease moved with the push, but its refs may not all have moved; since then")),
        }
    }
}

/// Whether all of the user's refs, of which there are some, were where the push wanted them.
fn is_nothing_new(refs: &[RefAnswer]) -> bool {
    let mut users = refs.iter().filter(|answer| !answer.name.starts_with("refs/fence/")).peekable();
    users.peek().is_some() && users.all(|answer| answer.up_to_date)
}
