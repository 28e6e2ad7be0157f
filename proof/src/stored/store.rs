//! The store: what is swapped into it, by the functions of the core, and what it forgets.

use super::{
    Stored,
    world::{Kept, StoreRecord, StoredWorld},
};
use git_fence_core::{
    FenceEntry, Format, Holder, HolderMove, Lease, LeaseId, LeasePart, LeaseState, Mark, Ownership, PreparedPart,
    Purpose, Secret, StoredLease, Token, Ttl, Version, nonce_of,
};

/// The proof that the holder shows who has made record number `record` for ownership `owner`.
pub(super) fn proof_of(owner: usize, record: usize) -> Secret {
    Secret::of([byte(owner); 32]).of_record(LeasePart::Lease, &nonce_of([byte(record); 16]))
}

/// A number as a byte.
pub(super) fn byte(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

impl Stored {
    /// The holder of the record that comes next.
    fn next_holder(&self, world: &StoredWorld, owner: usize) -> Holder {
        // Without a gate nobody looks at it.
        let record = if self.rules.gate.is_some() { world.records.len() } else { 0 };
        self.holders[owner.min(self.holders.len() - 1)][record.min(self.holders[0].len() - 1)].clone()
    }

    /// A new ownership in the place of the lease that was read at `record`, when the mark was `mark`. `None` if that lease is
    /// no longer there.
    pub(super) fn swap_owner(
        &self,
        world: &mut StoredWorld,
        record: Option<usize>,
        mark: Mark,
        purpose: Purpose,
    ) -> Option<usize> {
        let none = empty();
        let before = record.map_or(&none, |record| world.entry(record));
        let mark = if self.rules.reads_mark { mark } else { Mark::default() };
        let last = before.lease.as_ref().map(|stored| &stored.lease);
        let token = purpose.token(last, before.counter().max(mark))?;
        let (reason, state) = purpose.begins(before.lease.as_ref().map(|stored| &stored.lease));
        let owner = world.owners.len();
        let lease = Lease {
            format: Format::OneUse,
            id: LeaseId::of([byte(owner); 16]),
            token,
            owner: "run".to_owned(),
            state,
            ttl: Ttl::of_seconds(1)?,
            reason,
            words: None,
            since: None,
            jobs: git_fence_core::Jobs::default(),
            holder: self.next_holder(world, owner),
            nonce: nonce_of([byte(world.records.len()); 16]),
        };
        let entry = with_lease(world, before, lease)?;
        Some(append(world, entry, owner))
    }

    /// The holder's next step from the lease that it has put there last, with `record`. `None` if that is no longer there.
    pub(super) fn swap_on(&self, world: &mut StoredWorld, record: usize, by: HolderMove) -> Option<usize> {
        let before = world.entry(record);
        let owner = world.records[record].owner;
        let nonce = nonce_of([byte(world.records.len()); 16]);
        let lease = by.next(&before.lease.as_ref()?.lease, nonce, self.next_holder(world, owner))?;
        let entry = with_lease(world, before, lease)?;
        Some(append(world, entry, owner))
    }

    /// Makes the barrier in the store due from here on, or no longer due, if the lease there is that of `owner`.
    pub(super) fn set_barrier(world: &mut StoredWorld, owner: usize, due: Option<Mark>) {
        let Some(now) = world.now else { return };
        let entry = world.entry(now);
        // One that is due already is kept.
        if world.records[now].owner == owner && entry.barrier.is_some() != due.is_some() {
            let nonce = nonce_of([byte(world.records.len()); 16]);
            let entry = FenceEntry { barrier: due, nonce, ..entry.clone() };
            append(world, entry, owner);
        }
    }

    /// The store shows an earlier record again, or none.
    pub(super) fn roll_back(world: &mut StoredWorld, to: Option<usize>) {
        let was = world.now.map(|now| world.records[now].owner);
        world.now = to;
        world.rollbacks += 1;
        let Some(to) = to else { return };
        let (owner, lease) = (world.records[to].owner, world.entry(to).lease.as_ref());
        if was != Some(owner) && lease.is_some_and(|stored| stored.lease.state == LeaseState::Held) {
            world.owners[owner].is_revived = true;
        }
    }
}

fn empty() -> FenceEntry {
    FenceEntry::new("app/repo".to_owned(), String::new())
}

/// What the store shows, with `lease` in the place of the one in `before`. Everything else in it may have changed since.
fn with_lease(world: &StoredWorld, before: &FenceEntry, lease: Lease) -> Option<FenceEntry> {
    let from = before.lease.as_ref().map(|stored| stored.at.clone());
    let (at, time, nonce) = (Version::new(&*lease.nonce), String::new(), lease.nonce.clone());
    let none = empty();
    let shown = world.now.map_or(&none, |now| world.entry(now));
    shown.with(&[(from, PreparedPart::Lease(StoredLease { at, parent: None, lease, time }))], nonce)
}

fn append(world: &mut StoredWorld, entry: FenceEntry, owner: usize) -> usize {
    let key = entry.body();
    world.records.push(StoreRecord { entry: Kept::new(entry, key), owner });
    world.now = Some(world.records.len() - 1);
    world.records.len() - 1
}

/// The ownership in an entry, as marks name it.
pub(super) fn ownership_in(entry: &FenceEntry) -> Option<Ownership> {
    Some(Ownership { lease: entry.lease.as_ref()?.lease.id.clone(), first: entry.first? })
}

/// The token in an entry.
pub(super) fn token_in(entry: &FenceEntry) -> Option<Token> {
    Some(entry.lease.as_ref()?.lease.token)
}
