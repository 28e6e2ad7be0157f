//! Ticks of schedules: two machines whose clocks differ fire whenever they like, are killed, stall, and lose answers.
//!
//! What is due, which jobs a new record has and what a gate lets through are the functions of `git-fence-core`. A machine that
//! finds the lease held may take it at any time, as if it had expired: that wastes work, but must never start a tick twice.

use crate::report::Latches;
use git_fence_core::{Due, Job, JobName, Jobs, LostTick, Schedule, Scheduled, Stamp, TickState, Token};
use stateright::{Model, Property};
use std::time::Duration;

/// A tick that has not failed and is not on record as lost is started once.
pub const ONCE: &str = "each tick is started once, and again only after it was recorded as lost";
/// The memory does not go back.
pub const FORWARD: &str = "the last tick on record never goes back";
/// Nothing is forgotten.
pub const REMEMBERED: &str = "no tick is started that the record does not know of";
/// What was lost is on record.
pub const LOSSES: &str = "a tick whose run was lost is on record as lost when the next one starts";

/// The seconds from one tick to the next.
const INTERVAL: u64 = 60;
const MACHINES: usize = 2;
/// How many ticks there are.
const TICKS: u64 = 3;

/// Which safety steps there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickRules {
    /// The swap that takes the lease expects the record in which the tick was found due.
    pub compares: bool,
    /// A gate judges what a record does to the jobs; an older client that drops them tries to take the lease, too.
    pub judges: Option<bool>,
    /// A new owner records what was running as lost.
    pub records_losses: bool,
    /// Lost ticks are started again.
    pub retries: bool,
    /// How often each machine fires: with all of the above, three times make too many states.
    pub fires: u8,
}

impl TickRules {
    /// As git-fence does, on a remote without a gate.
    pub const WHOLE: TickRules =
        TickRules { compares: true, judges: None, records_losses: true, retries: false, fires: 3 };

    /// What must keep all promises.
    pub const KEPT: [(&'static str, TickRules); 3] = [
        ("without a gate", TickRules::WHOLE),
        ("lost ticks are run again", TickRules { retries: true, fires: 2, ..TickRules::WHOLE }),
        ("a gate, and a client that drops jobs", TickRules { judges: Some(true), fires: 2, ..TickRules::WHOLE }),
    ];

    /// Omissions, and their names.
    pub const HOLES: [(&'static str, TickRules); 3] = [
        ("without the compare-and-swap on the tick", TickRules { compares: false, ..TickRules::WHOLE }),
        (
            "a client that drops jobs, and a gate that does not judge",
            TickRules { judges: Some(false), ..TickRules::WHOLE },
        ),
        ("without a record of losses", TickRules { records_losses: false, ..TickRules::WHOLE }),
    ];
}

/// Two machines and one lease.
#[derive(Debug)]
pub struct Ticks {
    pub(crate) rules: TickRules,
    pub(crate) latches: Latches,
    job: Scheduled,
}

/// The lease's record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TickRecord {
    version: u8,
    token: u64,
    jobs: Jobs,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TickPhase {
    Idle,
    /// It has read the record of this version and found a tick due.
    Read {
        expected: u8,
        next: TickRecord,
    },
    /// Its swap is on its way.
    Sent {
        expected: u8,
        next: TickRecord,
        lost: bool,
    },
    /// It has the lease, as this version of the record, for this tick.
    Holds(u8, u64),
    /// Its command runs.
    Runs(u8),
}

/// The whole state at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TickWorld {
    /// The true time, in ticks.
    time: u64,
    record: TickRecord,
    versions: u8,
    machines: [TickPhase; MACHINES],
    fires: [u8; MACHINES],
    /// An older client may still drop the jobs.
    may_drop: bool,
    /// The ticks whose command was started, in order.
    started: Vec<u64>,
    /// The ticks that records have shown as lost, in order.
    losses: Vec<u64>,
    /// Whether a record was replaced by one with an earlier tick, or by one that hides a loss.
    went_back: bool,
    hid_a_loss: bool,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickStep {
    /// The time of the next tick comes.
    Tick,
    /// A machine fires, reads the record, and finds a tick due; otherwise nothing happens.
    Fire(usize),
    /// It sends its swap.
    Send(usize),
    /// The swap arrives.
    Land(usize),
    /// The answer is lost: it sends the same swap again.
    Lose(usize),
    /// Its command starts.
    Start(usize),
    /// Its command ends, and the lease is released.
    End(usize),
    /// It is killed.
    Kill(usize),
    /// An older client takes the lease, without the jobs.
    Drop,
}

impl Ticks {
    /// A model with these rules.
    pub fn new(rules: TickRules) -> Ticks {
        let job = Scheduled {
            job: JobName::parse("nightly").expect("a name"),
            schedule: Schedule::every(Duration::from_secs(INTERVAL)).expect("an interval"),
            catch_up: 1,
            start_within: None,
            jitter: 0,
            jitter_part: 0,
            retry_failed: false,
            retry_lost: rules.retries,
            until: None,
            upto: None,
        };
        Ticks { rules, latches: Latches::default(), job }
    }

    /// The clock of a machine: that of the second is three quarters of an interval ahead.
    fn clock(world: &TickWorld, machine: usize) -> u64 {
        let ahead = if machine == 1 { INTERVAL * 3 / 4 } else { 0 };
        (world.time * INTERVAL + INTERVAL / 3 + ahead) * 1000
    }

    fn job_of<'a>(&self, jobs: &'a Jobs) -> Option<&'a Job> {
        jobs.get(&self.job.job)
    }

    /// The record in which the tick is started.
    fn started(&self, seen: &TickRecord, machine: usize, world: &TickWorld) -> Option<TickRecord> {
        let now = Ticks::clock(world, machine);
        let Ok(Due::Start(start)) = self.job.due(self.job_of(&seen.jobs), now, Duration::from_secs(INTERVAL)) else {
            return None;
        };
        let before = if self.rules.records_losses { seen.jobs.carried() } else { seen.jobs.clone() };
        let token = Token::try_from(seen.token + 1).ok()?;
        let owner = format!("machine-{machine}");
        let jobs = before.started(&self.job.job, &start, self.job.schedule.text(), token, &owner).ok()?;
        Some(TickRecord { version: 0, token: token.get(), jobs })
    }

    /// Whether a gate lets a grant with this record through.
    fn lets_through(&self, before: &TickRecord, next: &TickRecord, owner: &str, world: &TickWorld) -> bool {
        let now = Stamp { boot: String::new(), uptime_ms: 0, unix_ms: Ticks::clock(world, 0) };
        let token = Token::try_from(next.token).expect("a token");
        self.rules.judges != Some(true) || before.jobs.granted(&next.jobs, token, owner, &now).is_ok()
    }

    /// Replaces the record, and notes what that does to the memory.
    fn replace(&self, world: &mut TickWorld, next: TickRecord) {
        if let Some(before) = self.job_of(&world.record.jobs) {
            let after = self.job_of(&next.jobs);
            world.went_back |= after.is_none_or(|after| after.tick < before.tick);
            let is_lost = before.state == TickState::Running && after.is_some_and(|after| after.token != before.token);
            let as_lost = LostTick { tick: before.tick, token: before.token };
            if is_lost {
                world.hid_a_loss |= after.is_none_or(|after| after.lost != Some(as_lost));
                world.losses.push(before.tick.seconds() / INTERVAL);
            }
        }
        world.record = next;
    }

    fn land(&self, world: &mut TickWorld, machine: usize) {
        let TickPhase::Sent { expected, next, .. } = world.machines[machine].clone() else { return };
        let tick = self.job_of(&next.jobs).map_or(0, |job| job.tick.seconds() / INTERVAL);
        if world.record.version == next.version {
            // It has landed before, and the answer was lost.
            world.machines[machine] = TickPhase::Holds(next.version, tick);
            return;
        }
        let is_expected = !self.rules.compares || world.record.version == expected;
        let owner = format!("machine-{machine}");
        if is_expected && self.lets_through(&world.record.clone(), &next, &owner, world) {
            let version = next.version;
            self.replace(world, next);
            world.machines[machine] = TickPhase::Holds(version, tick);
        } else {
            world.machines[machine] = TickPhase::Idle;
        }
    }
}

impl Model for Ticks {
    type State = TickWorld;
    type Action = TickStep;

    fn init_states(&self) -> Vec<TickWorld> {
        vec![TickWorld {
            time: 1,
            record: TickRecord { version: 0, token: 0, jobs: Jobs::default() },
            versions: 0,
            machines: [TickPhase::Idle, TickPhase::Idle],
            fires: [0; MACHINES],
            may_drop: self.rules.judges.is_some(),
            started: Vec::new(),
            losses: Vec::new(),
            went_back: false,
            hid_a_loss: false,
        }]
    }

    fn actions(&self, world: &TickWorld, steps: &mut Vec<TickStep>) {
        if world.time < TICKS {
            steps.push(TickStep::Tick);
        }
        if world.may_drop {
            steps.push(TickStep::Drop);
        }
        for (machine, phase) in world.machines.iter().enumerate() {
            match phase {
                TickPhase::Idle if world.fires[machine] < self.rules.fires => steps.push(TickStep::Fire(machine)),
                TickPhase::Idle => {}
                TickPhase::Read { .. } => steps.push(TickStep::Send(machine)),
                TickPhase::Sent { lost, .. } => {
                    steps.push(TickStep::Land(machine));
                    if !lost {
                        steps.push(TickStep::Lose(machine));
                    }
                }
                TickPhase::Holds(..) => steps.push(TickStep::Start(machine)),
                TickPhase::Runs(_) => steps.push(TickStep::End(machine)),
            }
            if *phase != TickPhase::Idle {
                steps.push(TickStep::Kill(machine));
            }
        }
    }

    fn next_state(&self, before: &TickWorld, step: TickStep) -> Option<TickWorld> {
        let mut world = before.clone();
        match step {
            TickStep::Tick => world.time += 1,
            TickStep::Drop => {
                let next =
                    TickRecord { version: world.versions + 1, token: world.record.token + 1, jobs: Jobs::default() };
                world.may_drop = false;
                if self.lets_through(&world.record, &next, "older", before) {
                    world.versions += 1;
                    world.record = next;
                }
            }
            TickStep::Fire(machine) => {
                world.fires[machine] += 1;
                let next = self.started(&world.record, machine, before)?;
                world.machines[machine] = TickPhase::Read { expected: world.record.version, next };
            }
            TickStep::Send(machine) => {
                let TickPhase::Read { expected, next } = world.machines[machine].clone() else { return None };
                world.versions += 1;
                let next = TickRecord { version: world.versions, ..next };
                world.machines[machine] = TickPhase::Sent { expected, next, lost: false };
            }
            TickStep::Land(machine) => self.land(&mut world, machine),
            TickStep::Lose(machine) => {
                self.land(&mut world, machine);
                let TickPhase::Sent { expected, next, .. } = before.machines[machine].clone() else { return None };
                world.machines[machine] = TickPhase::Sent { expected, next, lost: true };
            }
            TickStep::Start(machine) => {
                let TickPhase::Holds(version, tick) = world.machines[machine] else { return None };
                world.machines[machine] = TickPhase::Runs(version);
                world.started.push(tick);
            }
            TickStep::End(machine) => {
                let TickPhase::Runs(version) = world.machines[machine] else { return None };
                if world.record.version == version {
                    world.versions += 1;
                    let jobs = world.record.jobs.ended(Some(TickState::Done));
                    world.record = TickRecord { version: world.versions, jobs, ..world.record.clone() };
                }
                world.machines[machine] = TickPhase::Idle;
            }
            TickStep::Kill(machine) => world.machines[machine] = TickPhase::Idle,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Ticks>> {
        vec![
            Property::always(ONCE, |model: &Ticks, world: &TickWorld| {
                let retries = model.rules.retries;
                let may = |tick: u64| 1 + if retries { count_of(&world.losses, tick) } else { 0 };
                model.latches.first(0, || (0..=TICKS + 1).all(|tick| count_of(&world.started, tick) <= may(tick)))
            }),
            Property::always(FORWARD, |model: &Ticks, world: &TickWorld| model.latches.first(1, || !world.went_back)),
            Property::always(REMEMBERED, |model: &Ticks, world: &TickWorld| {
                let last = model.job_of(&world.record.jobs).map_or(0, |job| job.tick.seconds() / INTERVAL);
                model.latches.first(2, || world.started.iter().all(|tick| *tick <= last))
            }),
            Property::always(LOSSES, |model: &Ticks, world: &TickWorld| model.latches.first(3, || !world.hid_a_loss)),
            Property::sometimes("two ticks are run by two machines", |_: &Ticks, world: &TickWorld| {
                world.started.len() > 1
            }),
            Property::sometimes("a tick is lost", |_: &Ticks, world: &TickWorld| !world.losses.is_empty()),
            Property::sometimes("a tick is done", |model: &Ticks, world: &TickWorld| {
                model.job_of(&world.record.jobs).is_some_and(|job| job.state == TickState::Done)
            }),
        ]
    }
}

fn count_of(all: &[u64], tick: u64) -> usize {
    all.iter().filter(|other| **other == tick).count()
}

/// A step in words.
pub fn line(step: TickStep) -> String {
    match step {
        TickStep::Tick => "the time of the next tick comes".to_owned(),
        TickStep::Fire(machine) => format!("machine {machine} fires, and finds a tick due"),
        TickStep::Send(machine) => format!("machine {machine} sends its swap"),
        TickStep::Land(machine) => format!("machine {machine}: its swap arrives, and the answer comes"),
        TickStep::Lose(machine) => format!("machine {machine}: its swap arrives, and the answer is lost"),
        TickStep::Start(machine) => format!("machine {machine} starts its command"),
        TickStep::End(machine) => format!("machine {machine}: its command ends, and the lease is released"),
        TickStep::Kill(machine) => format!("machine {machine}: its run is killed"),
        TickStep::Drop => "an older client takes the lease, without the jobs".to_owned(),
    }
}
