//! The play, scene by scene.

use crate::{
    demo::{
        agent::{Ended, Frozen, wait_until},
        ending,
        stage::Stage,
        voice::{Ink, Voice},
    },
    failure::Failure,
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long the lease of the first agent lasts: short enough to watch it run out.
const LEASE: Duration = Duration::from_secs(4);
/// The same on a machine that is so busy that the first agent could not renew it.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// How often the second agent tries, where the lease has not run out yet.
const TRIES: u32 = 20;

/// How long a lease lasts, in whole seconds, where setting the stage took `set_up`: about as long as one push, if the
/// machine is quick.
fn lease_after(set_up: Duration) -> Duration {
    Duration::from_secs((8 * set_up).as_secs()).clamp(LEASE, LONGEST_LEASE)
}

/// What protects the remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// git-fence's gate.
    Fence,
    /// Nothing but git itself, and the client.
    Hookless,
    /// A hook that compares the token, stores it and exits.
    UsualHook,
}

impl Kind {
    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::Fence => "with the fence",
            Kind::Hookless => "on a remote that runs no hook",
            Kind::UsualHook => "with the usual hook",
        }
    }

    fn remote(self) -> &'static str {
        match self {
            Kind::Fence => "The remote has the fence: it refuses every token but the newest.",
            Kind::Hookless => {
                "The remote has no hook that checks anything. The leases are kept in it, in refs/fence/, and move in the same \
                 transaction as the branches."
            }
            Kind::UsualHook => {
                "A lock service hands out leases and tokens (this demo plays it). The remote has the hook that everybody \
                 writes first: compare the token with the last one, store it, exit."
            }
        }
    }

    /// What the first agent types.
    fn deploys(self, lease: Duration) -> String {
        match self {
            Kind::Fence | Kind::Hookless => {
                format!("git fence run --owner agent-1 --ttl {}s -- git push origin main:live", lease.as_secs())
            }
            Kind::UsualHook => "git push -o fence-token=1 origin main:live".to_owned(),
        }
    }

    /// What the second agent types. Without a gate the clocks of two machines may differ, and these two do not.
    fn undoes(self) -> &'static str {
        match self {
            Kind::Fence => "git fence run --owner agent-2 -- ./undo.sh",
            Kind::Hookless => "git fence run --owner agent-2 --skew 0s -- ./undo.sh",
            Kind::UsualHook => "./undo.sh -o fence-token=2",
        }
    }

    fn is_frozen_where(self) -> &'static str {
        match self {
            Kind::Fence | Kind::UsualHook => {
                "The remote has checked token 1: it is the newest, so the push may go on. Now git will move the branch ..."
            }
            Kind::Hookless => "The remote has taken the push with token 1. Now git will move the branch ...",
        }
    }

    /// Why the late push ended as it did.
    fn explains(self, is_refused: bool) -> &'static str {
        match (is_refused, self) {
            (true, Kind::Fence) => "Its turn is over, so the remote took nothing of it.",
            (true, Kind::Hookless) => "The lease had moved on, so git moved nothing at all: neither lease nor branch.",
            (true, Kind::UsualHook) => "It was refused.",
            (false, _) => "It landed. It had been checked long before, and nobody looks again.",
        }
    }

    /// How many processes of an agent are those of `git fence run`: git, and the program that it starts.
    fn processes_of_run(self) -> usize {
        if self == Kind::UsualHook { 0 } else { 2 }
    }
}

/// The play on its stage.
pub(super) struct Play<'a> {
    pub(super) kind: Kind,
    pub(super) stage: &'a Stage,
    pub(super) voice: &'a Voice,
    /// Whether `cargo run` has started it, so that `git fence` may not be installed.
    pub(super) by_cargo: bool,
}

impl Play<'_> {
    /// Returns whether the promise held.
    pub(super) fn perform(&self) -> Result<bool, Failure> {
        self.introduce();
        let (zombie, since) = self.first_agent_freezes()?;
        self.lease_runs_out(since)?;
        self.second_agent_takes_over()?;
        let late = self.first_agent_wakes_up(zombie)?;
        ending::tell(self, &late)
    }

    fn introduce(&self) {
        let voice = self.voice;
        voice.scene(&format!("git fence demo: a push that wakes up too late, {}", self.kind.title()));
        voice.lists(Ink::Dim, "Real git, real processes, a throw-away remote; nothing of yours is touched.");
        voice.gap();
        voice.say(
            "A shop has two branches: main is its source, live is what customers see. Two agents work on it, and a lease \
             says whose turn it is. With the lease comes a token: a number that only grows.",
        );
        voice.say(self.kind.remote());
    }

    /// Freezes the first agent between check and write.
    fn first_agent_freezes(&self) -> Result<(Frozen, Instant), Failure> {
        let (kind, voice) = (self.kind, self.voice);
        voice.scene("1. agent-1 has the lease, and token 1. It puts version 1 live.");
        let deploys = kind.deploys(self.lease());
        voice.types("agent-1", &deploys);
        let agent = self.stage.start("agent-1", &deploys)?;
        wait_until(|| self.stage.frozen_at().is_some() || agent.has_ended());
        let Some(at) = self.stage.frozen_at() else {
            let said = agent.finish().map_or_else(|e| e.to_string(), |ended| ended.lines.join("; "));
            return Err(not_played(&format!("agent-1 ended too early: {}", self.stage.shorten(&said))));
        };
        let frozen = agent.freeze(at)?;
        let since = Instant::now();
        voice.say(kind.is_frozen_where());
        voice.scene("2. ... and at this moment agent-1 freezes.");
        voice.say("A closed lid, a paused VM, a disk that hangs: nothing of it runs now, nor does its push (SIGSTOP).");
        Ok((frozen, since))
    }

    /// Waits until the lease of the frozen agent has run out. A second agent that comes before that is told to go.
    fn lease_runs_out(&self, since: Instant) -> Result<(), Failure> {
        if self.kind != Kind::UsualHook {
            self.voice.say("agent-2 wants to take version 1 back. It is not its turn yet:");
            self.voice.types("agent-2", self.kind.undoes());
            let told = self.undo()?;
            self.shows(&told, Ink::Plain);
        }
        let lease = self.lease();
        self.voice
            .say(&format!("agent-1 cannot renew its lease, which runs out after {} seconds ...", lease.as_secs()));
        thread::sleep(lease.saturating_sub(since.elapsed()));
        Ok(())
    }

    fn second_agent_takes_over(&self) -> Result<(), Failure> {
        let (kind, voice) = (self.kind, self.voice);
        voice.scene("3. agent-2 gets the lease, and token 2. Version 1 has a bug: it takes it back.");
        voice.types("agent-2", kind.undoes());
        for _ in 0..TRIES {
            // On a slow machine the lease had run out before, and the work is done.
            let ended = if self.has_undone()? { None } else { Some(self.undo()?) };
            if self.has_undone()? {
                ended.iter().for_each(|ended| self.shows(ended, Ink::Plain));
                voice.say(match kind {
                    Kind::Fence => {
                        "Before it let agent-2 in, the remote ended the frozen push: two never write at once."
                    }
                    Kind::Hookless => "The lease in refs/fence/ has moved on to agent-2.",
                    Kind::UsualHook => "The hook has stored token 2. It thinks that token 1 is done.",
                });
                return Ok(());
            }
            thread::sleep(self.lease() / TRIES);
        }
        Err(not_played("agent-2 did not get the lease"))
    }

    fn first_agent_wakes_up(&self, zombie: Frozen) -> Result<Ended, Failure> {
        self.voice.scene("4. agent-1 wakes up, and goes on as if no time had passed.");
        let ended = zombie.wake_up(self.kind.processes_of_run()).finish();
        let ended = ended.map_err(|e| not_played(&format!("agent-1 cannot be waited for: {e}")))?;
        let is_refused = ended.code != Some(0);
        self.shows(&ended, if is_refused { Ink::Good } else { Ink::Bad });
        if let Some(code) = ended.code {
            self.voice.prints(Ink::Dim, &format!("exit code {code}"));
        }
        self.voice.say(self.kind.explains(is_refused));
        Ok(ended)
    }

    fn lease(&self) -> Duration {
        lease_after(self.stage.set_up)
    }

    /// The second agent's work.
    fn undo(&self) -> Result<Ended, Failure> {
        let agent = self.stage.start("agent-2", self.kind.undoes())?;
        agent.finish().map_err(|e| not_played(&format!("agent-2 cannot be waited for: {e}")))
    }

    fn has_undone(&self) -> Result<bool, Failure> {
        Ok(self.stage.branch("main")? == ending::UNDONE)
    }

    /// What an agent has said, without what only programs read, and each thing once.
    fn shows(&self, ended: &Ended, ink: Ink) {
        let mut shown: Vec<String> = Vec::new();
        let is_rejected = ended.lines.iter().any(|line| line.contains("[remote rejected]"));
        for line in ended.lines.iter().map(|line| self.stage.shorten(line.trim_end())) {
            if !line.is_empty() && !is_noise(&line, is_rejected) && !shown.contains(&line) {
                self.voice.prints(ink, &line);
                shown.push(line);
            }
        }
        self.voice.rest(u32::try_from(shown.len()).unwrap_or(1));
    }
}

/// Lines for programs, remarks about a connection that has ended, and, where git says what was rejected and why, the same
/// once more.
fn is_noise(line: &str, is_rejected: bool) -> bool {
    let noise = [
        "Terminated",
        "error: failed to push some refs",
        "fatal: the remote end hung up",
        "fence: {",
        "remote: fence: {",
        "note: the run ends with exit code",
        "send-pack: unexpected disconnect",
    ];
    let said_again = ["error: lost the lease", "hint: "];
    noise.iter().any(|noise| line.starts_with(noise))
        || is_rejected && said_again.iter().any(|again| line.starts_with(again))
}

fn not_played(why: &str) -> Failure {
    Failure::broken(format!("the demo could not be played: {why}"), "try again, when the machine is less busy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_longer_on_a_slow_machine() {
        assert_eq!(lease_after(Duration::from_millis(150)), LEASE);
        assert_eq!(lease_after(Duration::from_millis(1300)), Duration::from_secs(10));
        assert_eq!(lease_after(Duration::from_secs(3600)), LONGEST_LEASE);
    }
}
