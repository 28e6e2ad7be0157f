//! What a move must show to count as its holder's.

use super::Judge;
use crate::{Beat, Format, Holder, Reject, Secret, Standing};

impl Judge<'_> {
    /// A holder of before proves itself by the push option.
    pub(super) fn has_the_secret(&self, current: &Standing) -> Result<(), Reject> {
        match &self.asked.secret {
            Some(secret) if secret.holder() == current.lease.holder => Ok(()),
            Some(_) => Err(self.invalid("the push does not carry its holder's secret, but another")),
            None => Err(self.unproven("the push carries no holder's secret (fence-holder)")),
        }
    }

    /// The move shows what the record before it asked for, and asks for something else from the next.
    pub(super) fn shows(&self, proof: Option<&Secret>, expected: Option<&Holder>, next: &Holder) -> Result<(), Reject> {
        let shown = proof.ok_or_else(|| self.unproven("its record shows no proof (Fence-Proof)"))?.holder();
        if expected != Some(&shown) {
            return Err(self.invalid("its record does not show the holder's proof, but another"));
        }
        if *next == shown {
            return Err(self.invalid("a proof is of one use: its record asks the next move for the one that it shows"));
        }
        Ok(())
    }

    pub(super) fn is_of_its_format(&self, beat: &Beat, current: &Standing) -> Result<(), Reject> {
        match (current.lease.format, &beat.holder) {
            (Format::OneUse, Some(_)) | (Format::OneSecret, None) => Ok(()),
            _ => Err(self.invalid("lease and beat are of different formats")),
        }
    }
}
