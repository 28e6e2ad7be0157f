//! Lease records written out by hand: the tests must not rely on the code they test.

use super::{Pushed, World, text};
use sha2::{Digest, Sha256};
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

/// An agent that takes leases: its name, the id of its ownership, and the secret that all its proofs derive from.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) ttl: String,
}

impl Agent {
    pub(crate) fn new(name: &str) -> Agent {
        let fresh = fresh();
        Agent {
            name: name.to_owned(),
            id: format!("{fresh:032x}"),
            secret: hex(&Sha256::digest(format!("{name} {fresh}"))),
            ttl: "600s".to_owned(),
        }
    }

    /// An agent whose leases expire almost at once.
    pub(crate) fn brief(name: &str) -> Agent {
        Agent { ttl: "1s".to_owned(), ..Agent::new(name) }
    }

    /// The same agent with a new ownership.
    pub(crate) fn again(&self) -> Agent {
        Agent { id: format!("{:032x}", fresh()), ..self.clone() }
    }

    /// The proof for the agent's move after the record with this nonce.
    pub(crate) fn proof(&self, part: &str, nonce: &str) -> String {
        hex(&Sha256::digest(format!("{}\n{part}\n{nonce}", self.secret)))
    }

    fn holder(&self, part: &str, nonce: &str) -> String {
        hex(&Sha256::digest(self.proof(part, nonce)))
    }

    pub(crate) fn lease(&self, token: u64, state: &str, reason: &str) -> String {
        let Agent { name, id, ttl, .. } = self;
        let nonce = format!("{:032x}", fresh());
        format!(
            "a lease of {name}\n\nFence-Format: 2\nFence-Lease: {id}\nFence-Token: {token}\nFence-Owner: {name}\n\
             Fence-State: {state}\nFence-TTL: {ttl}\nFence-Reason: {reason}\nFence-Holder: {}\nFence-Nonce: {nonce}\n",
            self.holder("lease", &nonce)
        )
    }

    pub(crate) fn beat(&self, more: &str) -> String {
        let nonce = format!("{:032x}", fresh());
        format!(
            "alive\n\nFence-Format: 2\nFence-Lease: {}\nFence-Deadline: 2001-01-01T00:00:00Z\n{more}\
             Fence-Holder: {}\nFence-Nonce: {nonce}\n",
            self.id,
            self.holder("beat", &nonce)
        )
    }

    /// The hash of its single secret, as in leases of the previous format.
    pub(crate) fn holder_of_before(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// The push option by which a holder of the previous format proves itself.
    pub(crate) fn option_of_before(&self, fence: &str) -> String {
        format!("fence-holder={fence}:{}", self.secret)
    }

    /// The record as the previous version would write it.
    pub(crate) fn as_before(&self, message: &str) -> String {
        let line = |line: &str| match line.split_once(": ") {
            Some(("Fence-Format", _)) => "Fence-Format: 1\n".to_owned(),
            Some(("Fence-Holder", _)) if message.contains("Fence-Deadline") => String::new(),
            Some(("Fence-Holder", _)) => format!("Fence-Holder: {}\n", self.holder_of_before()),
            _ => format!("{line}\n"),
        };
        message.lines().map(line).collect()
    }
}

/// The lease of one fence of a server.
#[derive(Clone, Copy)]
pub(crate) struct LeaseOf<'w> {
    pub(crate) world: &'w World,
    pub(crate) fence: &'w str,
}

impl<'w> LeaseOf<'w> {
    pub(crate) fn repo(world: &'w World) -> LeaseOf<'w> {
        LeaseOf { world, fence: "repo" }
    }

    pub(crate) fn name(&self, part: &str) -> String {
        format!("refs/fence/{}/{part}", self.fence)
    }

    pub(crate) fn at(&self) -> Option<String> {
        self.world.server_ref(&self.name("lease"))
    }

    pub(crate) fn parents_of(&self, commit: &str) -> Vec<String> {
        let parents = self.world.ok(self.world.git("work").args(["log", "-1", "--format=%P", commit]));
        parents.split_whitespace().map(str::to_owned).collect()
    }

    /// The nonce of the record that `part` points to now.
    fn nonce(&self, part: &str) -> String {
        let format = "--format=%(contents)";
        let message = self.world.ok(self.world.git("server.git").args(["for-each-ref", format, &self.name(part)]));
        let nonce = message.lines().find_map(|line| line.strip_prefix("Fence-Nonce: ")).unwrap_or_default();
        nonce.to_owned()
    }

    /// The record with the proof of `agent` for its next move.
    pub(crate) fn proven(&self, agent: &Agent, part: &str, message: &str) -> String {
        format!("{message}Fence-Proof: {}\n", agent.proof(part, &self.nonce(part)))
    }

    /// The parent that the next ownership must have.
    pub(crate) fn before(&self) -> Vec<String> {
        self.at().into_iter().collect()
    }

    /// The parent that the next step of this ownership must have.
    fn same(&self) -> Vec<String> {
        self.at().map(|at| self.parents_of(&at)).unwrap_or_default()
    }

    /// Pushes `refspecs` to the server atomically and with force.
    pub(crate) fn push_command(&self, refspecs: &[String], options: &[String]) -> Command {
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut command = self.world.push_command(&refspecs, &options);
        command.args(["--atomic", "--force"]);
        command
    }

    pub(crate) fn push(&self, refspecs: &[String], options: &[String]) -> Pushed {
        Pushed::from(&self.push_command(refspecs, options).output().unwrap())
    }

    /// The refspec that makes `message` the record in `part`.
    pub(crate) fn record(&self, part: &str, message: &str, parents: &[String]) -> String {
        format!("{}:{}", commit(self.world, message, parents), self.name(part))
    }

    fn taking(&self, agent: &Agent, lease: &str) -> [String; 2] {
        [self.record("lease", lease, &self.before()), self.record("beat", &agent.beat(""), &[])]
    }

    pub(crate) fn take_command(&self, agent: &Agent, token: u64, reason: &str) -> Command {
        self.push_command(&self.taking(agent, &agent.lease(token, "held", reason)), &[])
    }

    /// Acquires the lease, as `git fence acquire` does.
    pub(crate) fn take(&self, agent: &Agent, token: u64, reason: &str) -> Pushed {
        Pushed::from(&self.take_command(agent, token, reason).output().unwrap())
    }

    /// Revokes the lease, as `git fence revoke` does.
    pub(crate) fn take_away(&self, agent: &Agent, token: u64) -> Pushed {
        self.push(&self.taking(agent, &agent.lease(token, "released", "revoked: it hangs")), &[])
    }

    /// Halts the fence, as `git fence halt` does.
    pub(crate) fn halt(&self, agent: &Agent, token: u64, reason: &str) -> Pushed {
        self.push(&self.taking(agent, &agent.lease(token, "halted", &format!("{reason}: stop it all"))), &[])
    }

    /// Resumes it, as `git fence resume` does.
    pub(crate) fn resume(&self, agent: &Agent, token: u64) -> Pushed {
        self.push(&self.taking(agent, &agent.lease(token, "released", "revoked: go on")), &[])
    }

    pub(crate) fn advance(&self, agent: &Agent, to: u64, reason: &str) -> Pushed {
        self.push(&[self.advanced(agent, to, reason)], &[])
    }

    pub(crate) fn release(&self, agent: &Agent, token: u64, reason: &str) -> Pushed {
        self.push(&[self.released(agent, token, reason)], &[])
    }

    pub(crate) fn advanced(&self, agent: &Agent, to: u64, reason: &str) -> String {
        self.record("lease", &self.proven(agent, "lease", &agent.lease(to, "held", reason)), &self.same())
    }

    pub(crate) fn released(&self, agent: &Agent, token: u64, reason: &str) -> String {
        self.record("lease", &self.proven(agent, "lease", &agent.lease(token, "released", reason)), &self.same())
    }

    pub(crate) fn beat_command(&self, agent: &Agent, more: &str) -> Command {
        self.push_command(&[self.beating(agent, more)], &[])
    }

    /// The refspec of a heartbeat.
    pub(crate) fn beating(&self, agent: &Agent, more: &str) -> String {
        self.record("beat", &self.proven(agent, "beat", &agent.beat(more)), &[])
    }

    /// A heartbeat.
    pub(crate) fn beat(&self, agent: &Agent) -> Pushed {
        Pushed::from(&self.beat_command(agent, "").output().unwrap())
    }

    /// Asks whether the lease is free: a push that changes nothing.
    pub(crate) fn ask(&self) -> Pushed {
        self.push(&[format!("HEAD:{}", self.name("lease/ask"))], &[])
    }

    /// A fenced push: a branch with the token, and the lease's next step.
    pub(crate) fn write_command(&self, agent: &Agent, branch: &str, token: u64, lease: &str) -> Command {
        let work = self.world.commit(&format!("{}: work {}", agent.name, fresh()));
        let refspecs = [format!("{work}:refs/heads/{branch}"), lease.to_owned()];
        self.push_command(&refspecs, &[format!("fence-token={}:{token}", self.fence)])
    }

    pub(crate) fn write(&self, agent: &Agent, branch: &str, token: u64, reason: &str) -> Pushed {
        let lease = self.advanced(agent, token + 1, reason);
        Pushed::from(&self.write_command(agent, branch, token, &lease).output().unwrap())
    }

    /// The lease as the gate reports it.
    pub(crate) fn status(&self) -> serde_json::Value {
        let status = self.world.status();
        let fence = status["fences"].as_array().unwrap().iter().find(|fence| fence["fence"] == self.fence);
        fence.unwrap()["lease"].clone()
    }

    pub(crate) fn mark(&self) -> u64 {
        let status = self.world.status();
        let fence = status["fences"].as_array().unwrap().iter().find(|fence| fence["fence"] == self.fence);
        fence.unwrap()["mark"].as_u64().unwrap()
    }
}

/// A commit with the empty tree.
pub(crate) fn commit(world: &World, message: &str, parents: &[String]) -> String {
    let tree = world.ok(world.git("work").args(["hash-object", "-w", "-t", "tree", "--stdin"]));
    let mut command = world.git("work");
    command.args(["commit-tree", &tree, "-F", "-"]).args(parents.iter().flat_map(|parent| ["-p", parent]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    let made = child.wait_with_output().unwrap();
    assert!(made.status.success());
    text(&made.stdout).trim().to_owned()
}

fn fresh() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// The SHA-256 of a text, as records spell it.
pub(crate) fn hash_of(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
