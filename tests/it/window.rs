//! The window between check and ref update: open with the naive hook, closed with git-fence.

use crate::support::{Door, Git, Running, World, gits, signal, story, wait_until};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// How a push stalls between its pre-receive hook and its ref update.
#[derive(Debug, Clone, Copy)]
enum Stall {
    /// The update hook is slow.
    SlowUpdateHook,
    /// Its receive-pack is stopped.
    StoppedReceivePack,
}

impl Stall {
    fn prepare(self, world: &World) {
        match self {
            Stall::SlowUpdateHook => world.stall_update_of("t5"),
            Stall::StoppedReceivePack => world.write_hook(
                "update",
                "case $1 in refs/heads/t5) echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID;; esac",
            ),
        }
    }

    fn end(self, world: &World) {
        match self {
            Stall::SlowUpdateHook => world.go(),
            Stall::StoppedReceivePack => signal(world.pid_in("stalled"), "CONT"),
        }
    }
}

/// Token 5 stalls after its hook, token 6 arrives for another branch, token 5 wakes up.
fn five_stalls_and_six_comes(git: &Git, door: Door, stall: Stall) -> (World, Vec<u64>) {
    let world = World::with(git, door, &[]);
    story::listen(&world);
    stall.prepare(&world);
    let five = world.start_push("t5", "5");
    world.pid_in("stalled");
    let mut six = world.start_push("t6", "6");
    // Six waits, or it has been admitted: in either case five wakes up after that.
    wait_until("six waits or has ended", || six.has_said("waiting") || six.has_ended());
    stall.end(&world);
    five.wait().assert_landed();
    six.wait().assert_landed();
    let moved = story::tokens_moved(&world);
    (world, moved)
}

#[test]
fn stalled_push_never_lands_after_a_newer_one() {
    for git in gits() {
        for stall in [Stall::SlowUpdateHook, Stall::StoppedReceivePack] {
            for door in [Door::Fence, Door::FenceBehindDispatcher] {
                let (world, moved) = five_stalls_and_six_comes(&git, door, stall);
                assert_eq!(moved, [5, 6], "{git:?} {stall:?} {door:?}");
                assert_eq!(world.mark(), 6);
                world.assert_log_is_whole();
            }
        }
    }
}

#[test]
fn naive_hook_lets_the_stalled_push_land_after_the_newer_one() {
    for git in gits() {
        for stall in [Stall::SlowUpdateHook, Stall::StoppedReceivePack] {
            for door in [Door::Naive, Door::NaiveBehindDispatcher] {
                let (_, moved) = five_stalls_and_six_comes(&git, door, stall);
                assert_eq!(moved, [6, 5], "the test does not detect the window: {git:?} {stall:?} {door:?}");
            }
        }
    }
}

#[test]
fn newer_push_is_busy_and_retryable_when_its_wait_times_out() {
    for git in gits() {
        for stall in [Stall::SlowUpdateHook, Stall::StoppedReceivePack] {
            let world = World::new(&git);
            world.configure("fence.wait", "200ms");
            story::listen(&world);
            stall.prepare(&world);
            let five = world.start_push("t5", "5");
            world.pid_in("stalled");
            let six = world.push_token("t6", "6");
            six.assert_refused("FENCE-BUSY");
            assert!(six.text.contains(r#""retryable":true"#), "{}", six.text);
            assert_eq!(world.mark(), 0, "nothing has moved yet");
            stall.end(&world);
            five.wait().assert_landed();
            world.push_token("t6", "6").assert_landed();
            assert_eq!(story::tokens_moved(&world), [5, 6]);
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn stale_token_is_refused_without_waiting_for_the_stalled_push() {
    let world = World::new(&gits()[0]);
    world.configure("fence.wait", "10m");
    world.push_token("t4", "4").assert_landed();
    world.stall_update_of("t5");
    let five = world.start_push("t5", "5");
    world.pid_in("stalled");
    world.push_token("t3", "3").assert_refused("FENCE-STALE");
    world.push_token("other", "4").assert_refused("FENCE-STALE");
    world.push(&["HEAD:refs/heads/none"], &[]).assert_refused("FENCE-MISSING");
    world.go();
    five.wait().assert_landed();
}

/// Pushes the tokens of `queue` with eight pushers, each to its own branch.
fn push_with_eight_pushers(world: &World, queue: Vec<u64>) -> Vec<(u64, bool)> {
    let commits: Vec<(u64, String)> =
        queue.into_iter().map(|token| (token, world.commit(&format!("token {token}")))).collect();
    let queue = Arc::new(Mutex::new(VecDeque::from(commits)));
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let Some((token, commit)) = queue.lock().unwrap().pop_front() else { break };
                    let refspec = format!("{commit}:refs/heads/t{token}");
                    let options = [format!("fence-token={token}")];
                    let pushed = Running::start(&mut world.push_command(&[&refspec], &[&options[0]])).wait();
                    verdicts.lock().unwrap().push((token, pushed.ok));
                }
            });
        }
    });
    verdicts.into_inner().unwrap()
}

/// The numbers from 1 to 64, shuffled in groups of eight. (If all were shuffled, the first to arrive
/// would fence off all below it, and hardly more than four could land.)
fn shuffled(seed: u64) -> Vec<u64> {
    let mut tokens: Vec<u64> = (1..=64).collect();
    let mut state = seed;
    for eight in tokens.chunks_mut(8) {
        for at in (1..eight.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            eight.swap(at, (state >> 33) as usize % (at + 1));
        }
    }
    tokens
}

#[test]
fn refs_move_in_token_order_and_every_verdict_is_true_for_64_shuffled_pushes() {
    let (mut landed_in_all, mut runs) = (0, 0);
    for git in gits() {
        for seed in 1..=2 {
            let world = World::new(&git);
            story::listen(&world);
            let verdicts = push_with_eight_pushers(&world, shuffled(seed));
            let moved = story::tokens_moved(&world);
            println!("seed {seed}, git {:?}: {} landed", git.version, moved.len());
            assert!(!story::has_gone_back(&moved), "seed {seed}: {moved:?}");
            landed_in_all += moved.len();
            runs += 1;
            assert_eq!(verdicts.len(), 64);
            // Read independently of git.
            let server = git2::Repository::open_bare(world.server()).unwrap();
            for (token, landed) in verdicts {
                let there = server.find_reference(&format!("refs/heads/t{token}")).is_ok();
                assert_eq!(landed, there, "token {token}");
                assert_eq!(moved.contains(&token), there, "token {token}");
            }
            assert_eq!(Some(world.mark()), moved.last().copied());
            let decided = world.events("push.accepted").len() + world.events("push.rejected").len();
            assert_eq!(decided, 64, "each decision is recorded once");
            world.assert_log_is_whole();
        }
    }
    assert!(landed_in_all > 12 * runs, "more than a dozen land: {landed_in_all} in {runs} runs");
}

#[test]
fn naive_hook_moves_refs_out_of_token_order_under_concurrency() {
    // Concurrency alone does it, but not in every run, so there are a few attempts.
    let git = &gits()[0];
    let gone_back = (0..20).any(|_| {
        let world = World::with(git, Door::Naive, &[]);
        story::listen(&world);
        push_with_eight_pushers(&world, (1..=64).collect());
        story::has_gone_back(&story::tokens_moved(&world))
    });
    assert!(gone_back, "the test does not detect refs that move out of token order");
}
