//! Why a lease is taken, and what the new record then says.

use crate::{Lease, LeaseState, MOST_TRIES, Mark, Reason, Token, next_token};

/// How often a halt is tried.
const MOST_TRIES_OF_A_HALT: u8 = 30;

/// Why a lease is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// To hold it.
    Hold,
    /// To revoke it.
    Revoke,
    /// To halt it: nobody gets it until it is resumed.
    Halt,
    /// To resume it.
    Resume,
}

impl Purpose {
    /// The reason and the state of a new record in the place of `before`.
    pub fn begins(self, before: Option<&Lease>) -> (Reason, LeaseState) {
        let reason = match (before, self) {
            (None, _) => Reason::First,
            (Some(_), Purpose::Resume) => Reason::Revoked,
            (Some(before), _) if before.state != LeaseState::Held => Reason::Released,
            (Some(_), Purpose::Hold) => Reason::Expired,
            (Some(_), Purpose::Revoke | Purpose::Halt) => Reason::Revoked,
        };
        let state = match self {
            Purpose::Hold => LeaseState::Held,
            Purpose::Revoke | Purpose::Resume => LeaseState::Released,
            Purpose::Halt => LeaseState::Halted,
        };
        (reason, state)
    }

    /// What is done, as a command.
    pub fn verb(self) -> &'static str {
        match self {
            Purpose::Hold => "acquire",
            Purpose::Revoke => "revoke",
            Purpose::Halt => "halt",
            Purpose::Resume => "resume",
        }
    }

    /// The token of a new record in the place of `before`, which is above every token up to `mark`. Nobody has worked under
    /// the token of a halt, so that it also ends the halt. None if the fence has no tokens left.
    pub fn token(self, before: Option<&Lease>, mark: Mark) -> Option<Token> {
        let last = before.map(|before| before.token);
        if self == Purpose::Resume { last } else { next_token(last, mark) }
    }

    /// How often to try. A halt must get through although a whole fleet is changing the record.
    pub(super) fn tries(self) -> u8 {
        match self {
            Purpose::Hold | Purpose::Revoke | Purpose::Resume => MOST_TRIES,
            Purpose::Halt => MOST_TRIES_OF_A_HALT,
        }
    }
}
