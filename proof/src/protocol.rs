//! The server, its gate and a scenario, as a model: the initial state, the possible steps, and the promises.

use crate::{
    log::Log,
    numbers::{BEAT, LEASE, NAMES, NONE, Object, Ref, START, is_branch, made_by},
    promises,
    report::Latches,
    scenarios::{Kind, Scenario, To},
    steps::ModelStep,
    world::{Answer, ModelPush, Phase, World},
};
use git_fence_core::{FenceName, Holder, LeasePart, ObjectId, RefName, Rules, Secret, Ttl, nonce_of};
use stateright::{Model, Property};
use std::sync::Arc;

/// The server, its gate and a scenario.
pub struct Protocol {
    /// The pushes, and what may go wrong.
    pub scenario: Scenario,
    /// The rules of the fences.
    pub fences: [Rules; 2],
    pub(crate) names: Vec<RefName>,
    pub(crate) objects: Vec<Option<ObjectId>>,
    /// The proof that the next move after each object must show, by ownership: of leases, and of beats.
    pub(crate) proofs: [Vec<Vec<(Secret, Holder)>>; 2],
    pub(crate) owners: Vec<String>,
    pub(crate) boots: Vec<String>,
    pub(crate) ttl: Ttl,
    pub(crate) latches: Latches,
}

impl Protocol {
    /// The server with this scenario.
    pub fn of(scenario: Scenario) -> Protocol {
        let deploy = Rules {
            fence: FenceName::parse(b"deploy").expect("a name"),
            refs: vec!["refs/heads/deploy/*".to_owned()],
            ..Rules::for_repo()
        };
        let count = u8::try_from(scenario.pushes.len()).unwrap_or(u8::MAX);
        let object = |n: u8| ObjectId::parse(format!("{n:040x}").as_bytes()).expect("40 digits");
        let objects = 8 + 4 * count;
        let proofs = [LeasePart::Lease, LeasePart::Beat].map(|part| {
            let proof = |master: u8, object: u8| {
                let proof = Secret::of([master; 32]).of_record(part, &nonce_of([object; 16]));
                (proof.clone(), proof.holder())
            };
            (0..count).map(|master| (0..objects).map(|object| proof(master, object)).collect()).collect()
        });
        Protocol {
            fences: [Rules::for_repo(), deploy],
            names: NAMES.iter().map(|name| RefName::new(*name)).collect(),
            objects: (0..objects).map(object).collect(),
            proofs,
            owners: (0..count).map(|n| format!("run-{n}")).collect(),
            boots: (0..=scenario.crashes).map(|n| format!("boot-{n}")).collect(),
            ttl: Ttl::of_seconds(1).expect("a TTL"),
            latches: Latches::default(),
            scenario,
        }
    }

    /// The refs of push `p`, and their new values.
    pub fn commands(&self, world: &World, p: usize) -> Vec<(Ref, Object)> {
        let script = &self.scenario.pushes[p];
        let own = |on| (on, made_by(p, on, world.pushes[p].again));
        let mut commands = match script.kind {
            Kind::Plain => Vec::new(),
            Kind::Acquire => vec![own(LEASE), own(BEAT)],
            Kind::Fenced | Kind::Release | Kind::Settle => vec![own(LEASE)],
            Kind::Beat => vec![own(BEAT)],
        };
        commands.extend(script.commands.iter().map(|command| match command.to {
            To::Own => own(command.on),
            To::Nothing => (command.on, NONE),
            To::Start => (command.on, START),
        }));
        commands
    }
}

impl Model for Protocol {
    type State = World;
    type Action = ModelStep;

    fn init_states(&self) -> Vec<World> {
        let count = self.scenario.pushes.len();
        vec![World {
            refs: [START, START, START, NONE, NONE],
            log: vec![Arc::new(Log::begin(count, self.scenario.raised))],
            pushes: vec![ModelPush::idle(); count],
            held: vec![None; count],
            moves: [Vec::new(), Vec::new()],
            has_lost_moves: false,
            resets: 0,
            reset_pushes: 0,
            excused: false,
            crashes: 0,
            declines: 0,
            lost: 0,
            boots: 0,
            ticks: 0,
            booted_at: 0,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<ModelStep>) {
        let may_crash = world.crashes < self.scenario.crashes;
        // A hook that is about to sync holds the lock.
        let is_locked = world.pushes.iter().any(|push| matches!(push.phase, Phase::Written | Phase::OrphanWritten));
        for (p, push) in world.pushes.iter().enumerate() {
            match push.phase {
                Phase::Idle if self.may_connect(world, p) => steps.push(ModelStep::Connect(p)),
                Phase::Hook | Phase::Orphan if !is_locked => {
                    steps.push(ModelStep::Judge(p));
                    if self.scenario.gives_up {
                        steps.push(ModelStep::GiveUp(p));
                    }
                }
                Phase::Written | Phase::OrphanWritten => steps.push(ModelStep::Sync(p)),
                Phase::Update(_) => {
                    steps.push(ModelStep::Update(p));
                    if world.declines < self.scenario.declines {
                        steps.push(ModelStep::Decline(p));
                    }
                    if may_crash && self.scenario.pushes[p].atomic && self.git_allows_all(world, p) {
                        steps.extend((1..push.claimed.len()).map(|renamed| ModelStep::Tear(p, renamed)));
                    }
                }
                Phase::Report | Phase::Refused => steps.push(ModelStep::Exit(p)),
                Phase::Post | Phase::OrphanPost if !is_locked => steps.push(ModelStep::Companion(p)),
                _ => {}
            }
            if may_crash && push.phase.has_hook() {
                steps.push(ModelStep::KillHook(p));
            }
            if may_crash && push.phase.has_receive_pack() {
                steps.push(ModelStep::KillReceivePack(p));
            }
            let is_unanswered = push.answer == Answer::None && push.phase.has_receive_pack();
            if is_unanswered && world.lost < self.scenario.lost {
                steps.push(ModelStep::Lose(p));
            }
        }
        if may_crash {
            let volatile = if self.scenario.volatile { world.moves.concat() } else { Vec::new() };
            let volatile = volatile.iter().fold(0u8, |bits, moved| bits | 1 << moved.on);
            let lost = (0..=volatile).filter(|bits| bits & !volatile == 0);
            steps.extend(lost.flat_map(|lost| (0..world.log.len()).map(move |kept| ModelStep::Restart(kept, lost))));
        }
        if world.resets < self.scenario.resets && !is_locked {
            let branches = (0..5).filter(|on| is_branch(*on) && self.resettable_move(world, *on).is_some());
            steps.extend(branches.map(ModelStep::Reset));
        }
        if world.ticks < self.scenario.ticks {
            steps.push(ModelStep::Tick);
        }
    }

    fn next_state(&self, before: &World, step: ModelStep) -> Option<World> {
        let mut world = before.clone();
        self.apply(&mut world, &step)?;
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        promises::of(&self.scenario)
    }
}
