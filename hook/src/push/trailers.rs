//! Tokens from trailers: for clients that cannot send push options.

use crate::{
    host::surroundings::Environment,
    push::plan::Guarded,
    repository::{
        Repository,
        objects::{self, ObjectError, Objects},
    },
};
use git_fence_core::{
    CountedTrailers, FenceName, ObjectId, Offer, PlannedRef, Reject, Settings, TRAILER, read_trailer,
};
use gix::objs::{Kind, commit::MessageRef};

/// What the trailers of a push contain.
pub(crate) struct Stamps {
    /// The tokens.
    pub(crate) offer: Offer,
    /// Refs whose new value carries no token, including deletions.
    pub(crate) unstamped: Vec<PlannedRef>,
}

/// Reads the token of each guarded ref from the object that it moves to.
pub(crate) fn read(
    guarded: &Guarded,
    repository: &Repository,
    environment: &Environment,
    settings: &Settings,
    pusher: &[u8],
) -> Result<Stamps, Reject> {
    let objects = Objects::open(repository, environment).map_err(unreadable)?;
    let counts =
        |fence: &FenceName| settings.rules(fence).map_or(CountedTrailers::All, |rules| rules.trailers_of(pusher));
    let some_are_old = settings.fences.iter().any(|rules| counts(&rules.fence) == CountedTrailers::New);
    let there_before = some_are_old.then(|| Objects::open(repository, &Environment::default()));
    let there_before = there_before.transpose().map_err(unreadable)?;
    let mut stamps = Stamps { offer: Offer::default(), unstamped: Vec::new() };
    for planned in guarded.guarded_refs() {
        let is_old = |id: &gix::ObjectId| match counts(&planned.fence) {
            CountedTrailers::All => false,
            CountedTrailers::New => there_before.as_ref().is_some_and(|objects| objects.has(id)),
            CountedTrailers::None => true,
        };
        let is_stamped = match &planned.new {
            Some(id) => objects.tokens_in(id, &planned.fence, settings, &is_old, &mut stamps.offer)?,
            None => false,
        };
        if !is_stamped {
            stamps.unstamped.push(planned.clone());
        }
    }
    // A trailer for this fence in a commit of another fence's ref was not set by the pusher either.
    stamps.offer.withdraw(|fence| counts(fence) == CountedTrailers::None);
    Ok(stamps)
}

impl Objects {
    /// Adds the tokens of `id` to `offer`: for an annotated tag its own, or else those of its commit. Returns whether
    /// one of them is for `fence`. Stops at objects that are `is_old`: their tokens do not count.
    fn tokens_in(
        &self,
        id: &ObjectId,
        fence: &FenceName,
        settings: &Settings,
        is_old: &dyn Fn(&gix::ObjectId) -> bool,
        offer: &mut Offer,
    ) -> Result<bool, Reject> {
        let broken = |e: &dyn std::fmt::Display| unreadable(ObjectError::of(&id.as_str(), e));
        let mut next = objects::parse(id).map_err(unreadable)?;
        loop {
            if is_old(&next) {
                return Ok(false);
            }
            let mut buffer = Vec::new();
            let (message, target) = match self.find(&next, u64::MAX, &mut buffer).map_err(unreadable)? {
                (Kind::Commit, Some(data)) => {
                    let commit = gix::objs::CommitRef::from_bytes(data, self.hash);
                    (commit.map_err(|e| broken(&e))?.message, None)
                }
                (Kind::Tag, Some(data)) => {
                    let tag = gix::objs::TagRef::from_bytes(data, self.hash);
                    let tag = tag.map_err(|e| broken(&e))?;
                    (tag.message, Some(tag.target()))
                }
                _ => return Ok(false),
            };
            let mut found = false;
            for value in token_trailers(message) {
                let (named, token) = read_trailer(&value, &next.to_hex_with_len(12).to_string(), settings)?;
                found |= named == *fence;
                offer.add(named, token)?;
            }
            match target {
                Some(target) if !found => next = target,
                _ => return Ok(found),
            }
        }
    }
}

/// The values of the trailers that carry tokens. Like git, ignores the case of keys.
pub(crate) fn token_trailers(message: &[u8]) -> Vec<Vec<u8>> {
    let Some(body) = MessageRef::from_bytes(message).body() else { return Vec::new() };
    let ours = body.trailers().filter(|trailer| trailer.token.eq_ignore_ascii_case(TRAILER.as_bytes()));
    ours.map(|trailer| trailer.value.to_vec()).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreadable(error: ObjectError) -> Reject {
    Reject::malformed(format!("cannot read '{}' for its {TRAILER} trailer: {}", error.object, error.why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(message: &str) -> Vec<String> {
        token_trailers(message.as_bytes()).into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
    }

    #[test]
    fn trailers_are_in_the_last_paragraph_and_never_in_the_subject() {
        assert_eq!(tokens("work\n\nFencing-Token: 5\n"), ["5"]);
        assert_eq!(tokens("work\n\nbody\n\nfencing-token: deploy:7\nSigned-off-by: a\n"), ["deploy:7"]);
        assert_eq!(tokens("work\n\nFencing-Token: 5\nFencing-Token: 6\n"), ["5", "6"]);
        assert_eq!(tokens("work\n\nFencing-Token: 4\n 2\n"), ["4 2"]);
        assert_eq!(tokens("Fencing-Token: 5\n"), [""; 0]);
        assert_eq!(tokens("work\n\nFencing-Token: 5\n\nmore\n"), [""; 0]);
        assert_eq!(tokens("work\n\nsee\nFencing-Token: 5\nand so on\n"), [""; 0]);
    }
}
