//! The values that the gate works on, converted from the model's numbers: what the hook reads from git, from a push and
//! from the clocks.

use crate::{
    numbers::{BEAT, LEASE, NONE, Object, Ref, fence_of, maker_of},
    protocol::Protocol,
    world::{Rec, World},
};
use git_fence_core::{
    Beat, Format, Holder, Lease, LeaseAsk, LeaseId, LeaseState, ObjectId, Place, PlannedRef, Proposal, Stamp, Token,
    Who, nonce_of,
};

impl Protocol {
    pub(crate) fn seen(&self, world: &World, plan: &[PlannedRef]) -> Vec<Option<ObjectId>> {
        let at = |planned: &PlannedRef| self.names.iter().position(|name| *name == planned.name);
        plan.iter().map(|planned| at(planned).and_then(|on| self.object(world.refs[on]))).collect()
    }

    pub(crate) fn planned(&self, world: &World, p: usize) -> Vec<PlannedRef> {
        let planned = |((on, new), claimed): ((Ref, Object), &Object)| PlannedRef {
            name: self.names[on].clone(),
            fence: self.fences[fence_of(on)].fence.clone(),
            old: self.object(world.refs[on]),
            new: self.object(new),
            claimed: (*claimed != world.refs[on])
                .then(|| self.object(*claimed).map_or("none".to_owned(), |claimed| claimed.to_string())),
            via: None,
        };
        self.commands(world, p).into_iter().zip(&world.pushes[p].claimed).map(planned).collect()
    }

    pub(crate) fn object(&self, object: Object) -> Option<ObjectId> {
        self.objects[usize::from(object)].clone()
    }

    pub(crate) fn here(&self, world: &World) -> Place {
        Place {
            boot: self.boots[usize::from(world.boots)].clone(),
            machine: Some("m".to_owned()),
            pid_ns: 1,
            uptime_ms: 0,
        }
    }

    pub(crate) fn now(&self, world: &World) -> Stamp {
        let ms = |ticks: u8| u64::from(ticks) * 1000;
        Stamp {
            boot: self.boots[usize::from(world.boots)].clone(),
            uptime_ms: ms(world.ticks - world.booted_at),
            unix_ms: ms(world.ticks),
        }
    }

    /// What a push requests for the lease of `repo`.
    pub(crate) fn ask_of(&self, world: &World, p: usize) -> Option<LeaseAsk> {
        let push = &world.pushes[p];
        let rec = push.rec?;
        let commands = self.commands(world, p);
        let moves =
            |part: Ref| commands.iter().position(|(on, _)| *on == part).map(|at| (commands[at].1, push.claimed[at]));
        let is_new = rec.grant == p;
        // Computed from what the client believes the current record is: the owner of the master secret can prove itself to all its records.
        let proof = |part: usize, claimed: Object| {
            (!is_new).then(|| self.proofs[part][rec.grant][usize::from(claimed)].0.clone())
        };
        let lease =
            moves(LEASE).map(|(new, claimed)| Proposal { proof: proof(0, claimed), ..self.proposal(world, new) });
        let beat = moves(BEAT).map(|(new, _)| beat_of(id_of_lease(rec), self.asked(1, rec.grant, new)));
        let beat_now = Some(world.refs[BEAT]).filter(|at| *at != NONE).and_then(|at| {
            let made = world.pushes[maker_of(at)].rec?;
            Some(beat_of(id_of_lease(made), self.asked(1, made.grant, at)))
        });
        let beat_proof = moves(BEAT).and_then(|(_, claimed)| proof(1, claimed));
        Some(LeaseAsk { lease, beat, beat_proof, beat_now, ..LeaseAsk::default() })
    }

    /// The proof that the record in this object requires of the next move, of a lease (0) or a beat (1).
    pub(crate) fn asked(&self, part: usize, grant: usize, object: Object) -> Holder {
        self.proofs[part][grant][usize::from(object)].1.clone()
    }

    pub(crate) fn proposal(&self, world: &World, commit: Object) -> Proposal {
        let rec = world.pushes[maker_of(commit)].rec.expect("the push that created a lease commit has a record");
        let lease = Lease {
            format: Format::OneUse,
            id: id_of_lease(rec),
            token: token(rec.token),
            owner: self.owners[rec.grant].clone(),
            state: if rec.released { LeaseState::Released } else { LeaseState::Held },
            ttl: self.ttl,
            reason: rec.reason.into(),
            words: None,
            since: None,
            jobs: git_fence_core::Jobs::default(),
            holder: self.asked(0, rec.grant, commit),
            nonce: nonce_of([commit; 16]),
        };
        let parents = self.object(rec.parent).into_iter().collect();
        let commit = self.object(commit).expect("a lease's commit is an object");
        Proposal { commit, parents, lease, proof: None }
    }
}

pub(crate) fn beat_of(lease: LeaseId, holder: Holder) -> Beat {
    let (deadline, nonce) = (String::new(), String::new());
    Beat { lease, deadline, progress: None, gate: true, holder: Some(holder), nonce }
}

pub(crate) fn id_of_lease(rec: Rec) -> LeaseId {
    LeaseId::of([u8::try_from(rec.grant).unwrap_or(u8::MAX); 16])
}

/// The token with this number.
pub(crate) fn token(n: u8) -> Token {
    Token::try_from(u64::from(n)).expect("tokens in a model start at 1")
}

pub(crate) fn who() -> Who {
    Who { owner: None, pusher: String::new(), address: None }
}
