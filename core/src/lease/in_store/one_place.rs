//! One place per fence: its lease is in the remote, or in one store, or it has tokens of its own.
//!
//! Two places side by side would each hand out the right to write. So whoever comes second is refused, by what the remote
//! shows: the fence's lease and its mark.

use crate::{LeaseState, MarkRecord, MarkState, StorePlace};

/// Where the lease of a fence is kept instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elsewhere {
    /// In the remote.
    InRemote,
    /// In this store.
    InStore(StorePlace),
    /// Nowhere: the fence takes tokens of its pushers' own.
    OwnTokens,
    /// It cannot be told: there was a mark, and it is gone.
    MarkGone,
}

/// Whether the remote knows already where a fence's lease is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// It is kept here.
    Already,
    /// Nobody has said so: the first mark must be made.
    NotYet,
}

/// Whether the lease may be kept in the store `ours`. `lease` is the state of the lease in the remote, and `was_marked`
/// whether the store knows that there was a mark.
pub fn may_be_in_store(
    lease: Option<LeaseState>,
    mark: Option<&MarkRecord>,
    ours: &StorePlace,
    was_marked: bool,
) -> Result<Claimed, Elsewhere> {
    match (mark.filter(|mark| mark.state == MarkState::Current).map(|mark| &mark.place), lease) {
        (Some(Some(place)), _) if place == ours => Ok(Claimed::Already),
        (Some(Some(other)), _) => Err(Elsewhere::InStore(other.clone())),
        (Some(None), _) => Err(Elsewhere::OwnTokens),
        (None, _) if mark.is_some() => Err(Elsewhere::InRemote),
        (None, Some(LeaseState::Held | LeaseState::Released | LeaseState::Halted)) => Err(Elsewhere::InRemote),
        (None, Some(LeaseState::Moved)) => Err(Elsewhere::MarkGone),
        (None, None) if was_marked => Err(Elsewhere::MarkGone),
        (None, None) => Ok(Claimed::NotYet),
    }
}

/// Whether the lease may be kept in the remote.
pub fn may_be_in_remote(lease: Option<LeaseState>, mark: Option<&MarkRecord>) -> Result<(), Elsewhere> {
    match (mark, lease) {
        (Some(MarkRecord { state: MarkState::Current, place: Some(place), .. }), _) => {
            Err(Elsewhere::InStore(place.clone()))
        }
        (Some(MarkRecord { state: MarkState::Current, place: None, .. }), _) => Err(Elsewhere::OwnTokens),
        (None, Some(LeaseState::Moved)) => Err(Elsewhere::MarkGone),
        _ => Ok(()),
    }
}

/// Whether tokens of one's own may be used.
pub fn may_be_own(lease: Option<LeaseState>, mark: Option<&MarkRecord>) -> Result<Claimed, Elsewhere> {
    match (mark, lease) {
        (Some(MarkRecord { state: MarkState::Current, place: None, .. }), _) => Ok(Claimed::Already),
        (Some(MarkRecord { state: MarkState::Current, place: Some(place), .. }), _) => {
            Err(Elsewhere::InStore(place.clone()))
        }
        (_, Some(LeaseState::Held | LeaseState::Released | LeaseState::Halted)) => Err(Elsewhere::InRemote),
        (None, Some(LeaseState::Moved)) => Err(Elsewhere::MarkGone),
        (_, _) => Ok(Claimed::NotYet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mark, nonce_of};

    fn place(store: &str) -> StorePlace {
        StorePlace::new(store, "host/app").unwrap()
    }

    fn mark(place: Option<StorePlace>, state: MarkState) -> MarkRecord {
        MarkRecord { state, ..MarkRecord::begins(Mark::default(), place, "a", nonce_of([1; 16])) }
    }

    #[test]
    fn whoever_comes_second_is_refused() {
        use Claimed::{Already, NotYet};
        use LeaseState::{Held, Moved, Released};
        let (ours, theirs) = (place("etcd://a"), place("redis://b"));
        let other_name = StorePlace { resource: "host/other".to_owned(), ..ours.clone() };
        let here = mark(Some(ours.clone()), MarkState::Current);
        let there = mark(Some(theirs.clone()), MarkState::Current);
        let renamed = mark(Some(other_name.clone()), MarkState::Current);
        let own = mark(None, MarkState::Current);
        let back = mark(Some(ours.clone()), MarkState::Moved);
        let in_store = |place: &StorePlace| Elsewhere::InStore(place.clone());
        for (lease, mark, store, remote, own_tokens) in [
            (None, None, Ok(NotYet), Ok(()), Ok(NotYet)),
            (Some(Held), None, Err(Elsewhere::InRemote), Ok(()), Err(Elsewhere::InRemote)),
            (Some(Released), None, Err(Elsewhere::InRemote), Ok(()), Err(Elsewhere::InRemote)),
            (Some(Moved), None, Err(Elsewhere::MarkGone), Err(Elsewhere::MarkGone), Err(Elsewhere::MarkGone)),
            (Some(Moved), Some(&here), Ok(Already), Err(in_store(&ours)), Err(in_store(&ours))),
            (None, Some(&here), Ok(Already), Err(in_store(&ours)), Err(in_store(&ours))),
            (Some(Moved), Some(&there), Err(in_store(&theirs)), Err(in_store(&theirs)), Err(in_store(&theirs))),
            (None, Some(&renamed), Err(in_store(&other_name)), Err(in_store(&other_name)), Err(in_store(&other_name))),
            (None, Some(&own), Err(Elsewhere::OwnTokens), Err(Elsewhere::OwnTokens), Ok(Already)),
            (Some(Held), Some(&back), Err(Elsewhere::InRemote), Ok(()), Err(Elsewhere::InRemote)),
            (Some(Released), Some(&back), Err(Elsewhere::InRemote), Ok(()), Err(Elsewhere::InRemote)),
        ] {
            assert_eq!(may_be_in_store(lease, mark, &ours, false), store, "{lease:?} {mark:?}");
            assert_eq!(may_be_in_remote(lease, mark), remote, "{lease:?} {mark:?}");
            assert_eq!(may_be_own(lease, mark), own_tokens, "{lease:?} {mark:?}");
        }
        assert_eq!(may_be_in_store(None, None, &ours, true), Err(Elsewhere::MarkGone));
        assert_eq!(may_be_in_store(None, Some(&here), &ours, true), Ok(Already));
    }
}
