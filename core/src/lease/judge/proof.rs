//! What a push must carry to prove that it comes from the holder.

use super::Judge;
use crate::{Beat, Format, Holder, Reject, Secret, Standing};

impl Judge<'_> {
    /// A holder in [`Format::OneSecret`] proves itself by a push option.
    pub(super) fn has_the_secret(&self, current: &Standing) -> Result<(), Reject> {
        match &self.asked.secret {
            Some(secret) if secret.holder() == current.lease.holder => Ok(()),
            Some(_) => Err(self.invalid("the push carries a wrong holder's secret")),
            None => Err(self.unproven("the push carries no holder's secret (fence-holder)")),
        }
    }

    /// The record carries the proof that the previous record asked for, and asks for another one next.
    pub(super) fn shows(&self, proof: Option<&Secret>, expected: Option<&Holder>, next: &Holder) -> Result<(), Reject> {
        let shown = proof.ok_or_else(|| self.unproven("the record carries no proof (Fence-Proof)"))?.holder();
        if expected != Some(&shown) {
            return Err(self.invalid("the record carries a wrong proof"));
        }
        if *next == shown {
            return Err(self.invalid("the record asks for its own proof again, and a proof can be used only once"));
        }
        Ok(())
    }

    pub(super) fn is_of_its_format(&self, beat: &Beat, current: &Standing) -> Result<(), Reject> {
        match (current.lease.format, &beat.holder) {
            (Format::OneUse, Some(_)) | (Format::OneSecret, None) => Ok(()),
            _ => Err(self.invalid("lease and beat have different formats")),
        }
    }
}
