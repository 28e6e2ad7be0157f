//! Two machines, clocks a minute apart, both fire each tick: a hundred ticks on each kind of remote, compressed into a test's
//! clock, with kills and stalls. Each tick is started once, or once and on record as lost; with `--retry-lost` again.

use super::{INTERVAL, in_the_log, long_ago, on_record, run_at, tick};
use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git,
    runs::{Background, Frozen},
    signal, text, wait_until,
};
use std::fs;

const TICKS: i64 = 100;

/// What happens to whoever starts a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// It is killed.
    Kill,
    /// It is frozen until the other has run the next tick.
    Stall,
    /// It is killed, and lost ticks are run again.
    KillAndRetry,
}

impl Fault {
    fn of(round: i64) -> Fault {
        match round % 20 {
            3 => Fault::Kill,
            9 => Fault::Stall,
            15 => Fault::KillAndRetry,
            _ => Fault::None,
        }
    }
}

struct Machines<'w> {
    world: &'w World,
    agents: [Agent<'w>; 2],
}

impl<'w> Machines<'w> {
    fn of(world: &'w World) -> Machines<'w> {
        Machines { world, agents: [world.agent("a"), world.agent("b")] }
    }

    /// Both machines, or one of them, fire the tick at `due`. Their clocks are a minute apart.
    fn fire(&self, due: i64, fault: Fault, which: &[usize]) -> Vec<(usize, Background)> {
        let [starts, hold, holding] = ["starts", "hold", "holding"].map(|name| self.world.path(name));
        let script = format!(
            "echo \"$GIT_FENCE_TICK $GIT_FENCE_OWNER\" >>{}; \
             if [ -e {1} ]; then echo $GIT_FENCE_OWNER >{2}.new; mv {2}.new {2}; sleep 600; fi",
            starts.display(),
            hold.display(),
            holding.display()
        );
        let mut options = vec!["--ttl", "2s", "--if-held", "wait", "--wait", "2m"];
        if fault == Fault::KillAndRetry {
            options.push("--retry-lost");
        }
        let run = |machine: &usize| {
            let time = due + if *machine == 0 { 120 } else { 60 };
            (*machine, Background::start(&mut run_at(&self.agents[*machine], time, &options, &script)))
        };
        which.iter().map(run).collect()
    }

    /// The machine that has started a tick and does not end.
    fn holder(&self) -> usize {
        let holding = self.world.path("holding");
        wait_until("the tick is started", || holding.exists());
        fs::remove_file(self.world.path("hold")).unwrap();
        let name = fs::read_to_string(&holding).unwrap();
        fs::remove_file(holding).unwrap();
        usize::from(name.trim() == "b")
    }

    /// How often each tick was started.
    fn started(&self, due: i64) -> usize {
        let starts = fs::read_to_string(self.world.path("starts")).unwrap_or_default();
        let tick = tick(due);
        starts.lines().filter(|line| line.starts_with(&tick)).count()
    }

    fn assert_lost(&self, due: i64) {
        assert_eq!(on_record(&self.agents[0])["lost"]["tick"], tick(due));
    }
}

fn end(run: Background) -> i32 {
    let ended = run.end();
    let code = ended.status.code().unwrap_or(-1);
    assert!([0, 75].contains(&code), "{code}: {}", text(&ended.stderr));
    code
}

fn ticks_on(remote: Remote) {
    let world = remote.world(&any_git());
    let machines = Machines::of(&world);
    let first = long_ago();
    let mut stalled: Option<(usize, Frozen, Background)> = None;
    let mut lost = None;
    for round in 0..TICKS {
        let (due, fault) = (first + round * INTERVAL, Fault::of(round));
        if fault != Fault::None {
            fs::write(world.path("hold"), "").unwrap();
        }
        let both: &[usize] = match &stalled {
            Some((frozen, ..)) => &[1 - *frozen],
            None => &[0, 1],
        };
        let mut runs = machines.fire(due, fault, both);
        if fault != Fault::None {
            let holder = machines.holder();
            let at = runs.iter().position(|(machine, _)| *machine == holder).unwrap();
            let (_, run) = runs.remove(at);
            if fault == Fault::Stall {
                stalled = Some((holder, run.freeze(), run));
            } else {
                signal(run.pid(), "KILL");
                drop(run);
            }
        }
        runs.into_iter().for_each(|(_, run)| assert_eq!(end(run), 0, "{round} {fault:?}"));
        let expected = if fault == Fault::KillAndRetry { 2 } else { 1 };
        assert_eq!(machines.started(due), expected, "{remote:?} {round} {fault:?}");
        if let Some(before) = lost.take() {
            machines.assert_lost(before);
        }
        match fault {
            Fault::Kill | Fault::Stall => lost = Some(due),
            Fault::KillAndRetry => machines.assert_lost(due),
            Fault::None => {
                if let Some((_, frozen, run)) = stalled.take() {
                    frozen.thaw();
                    assert_eq!(end(run), 75);
                }
            }
        }
    }
    if remote == Remote::Gate {
        let log = in_the_log(&world);
        for round in 0..TICKS {
            let (due, fault) = (tick(first + round * INTERVAL), Fault::of(round));
            let count = |became: &str| log.get(&(due.clone(), became.to_owned())).copied().unwrap_or(0);
            let expected = match fault {
                Fault::None => (1, 1, 0),
                Fault::Kill | Fault::Stall => (1, 0, 1),
                Fault::KillAndRetry => (2, 1, 1),
            };
            assert_eq!((count("running"), count("done"), count("lost")), expected, "{round} {fault:?}");
        }
        world.assert_log_is_whole();
    }
}

#[test]
fn each_tick_is_started_once_on_two_machines_with_a_gate() {
    ticks_on(Remote::Gate);
}

#[test]
fn each_tick_is_started_once_on_two_machines_without_a_gate() {
    ticks_on(Remote::Bare);
}
