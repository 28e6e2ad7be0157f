//! Hosts that let some people in: a web server with `git http-backend` behind it, and sshd with several keys.

use super::{World, agents::Agent, fixture, sh, sshd::Sshd, wait_until, write_script};
use std::{
    fs,
    process::{Child, Command, Stdio},
};

/// A server that is ended by its pid when the test is over.
pub(crate) struct Host {
    child: Child,
    pub(crate) url: String,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    /// Python's web server; `rule` is one of those in `fixtures/http-backend.py`.
    pub(crate) fn web(&self, rule: &str) -> Host {
        self.configure("http.receivepack", "true");
        let port_file = self.path(&format!("port-{rule}"));
        let mut python = Command::new("python3");
        self.hermetic(&mut python);
        // A python from a version manager looks for itself in the real home.
        python.env("HOME", std::env::var_os("HOME").unwrap()).env_remove("GL_USERNAME");
        python.arg(fixture("http-backend.py")).arg(self.path(".")).arg(&port_file).arg(rule);
        let mut child = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the web server listens", || {
            assert!(child.try_wait().unwrap().is_none(), "the web server has ended");
            port_file.exists()
        });
        let port = fs::read_to_string(port_file).unwrap();
        Host { child, url: format!("http://127.0.0.1:{port}/server.git") }
    }
}

/// As gitolite does it: who may read is let through, and who may not write is told so in two lines.
const FORCED: &str = "case $SSH_ORIGINAL_COMMAND in\n\
    git-receive-pack*)\n\
    echo 'FATAL: W any app reader DENIED by fallthru' >&2\n\
    echo '(or you mis-spelled the reponame)' >&2\n\
    exit 1;;\n\
    esac\n\
    exec sh -c \"$SSH_ORIGINAL_COMMAND\"";

/// The keys of a host that lets people in by ssh.
pub(crate) struct Keys {
    sshd: Sshd,
    open: String,
    reader: String,
}

impl Keys {
    /// `open` may do everything, and `reader` goes through a forced command as gitolite's.
    pub(crate) fn new(world: &World) -> Keys {
        let sshd = Sshd::new(world, &[]);
        let forced = world.path("sshd/forced");
        write_script(&forced, FORCED);
        let open = sshd.key("open", "restrict");
        let reader = sshd.key("reader", &format!("command=\"{}\",restrict", forced.display()));
        Keys { sshd, open, reader }
    }

    /// Also `locked`, which may do everything and has a passphrase, and `stranger`, which is not known.
    pub(crate) fn ssh(&self, world: &World, name: &str) -> String {
        match name {
            "open" => self.open.clone(),
            "reader" => self.reader.clone(),
            other => {
                let key = world.path("sshd").join(other);
                if !key.exists() {
                    let passphrase = if other == "locked" { "secret" } else { "" };
                    let mut keygen = Command::new("ssh-keygen");
                    world.ok(keygen.args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(&key));
                }
                if other == "locked" {
                    let keys = world.path("sshd/authorized_keys");
                    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
                    fs::write(&keys, fs::read_to_string(&keys).unwrap() + &public).unwrap();
                }
                self.open.replace(&sh(world.path("sshd/open")), &sh(key))
            }
        }
    }

    pub(crate) fn url(&self, world: &World) -> String {
        self.sshd.url(world)
    }
}

impl Agent<'_> {
    /// Makes `url` the remote of this clone.
    pub(crate) fn moves_to(&self, url: &str) {
        self.world.ok(self.git().args(["remote", "set-url", "origin", url]));
    }

    /// Makes its git use this ssh command, which may ask for a passphrase.
    pub(crate) fn uses_ssh(&self, command: &str) {
        let asking = command.replace(" -o BatchMode=yes", "");
        self.world.ok(self.git().args(["config", "core.sshCommand", &asking]));
    }
}
