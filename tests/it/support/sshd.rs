//! A real sshd for one test, without a port: ssh starts it as its proxy command, and both end with the connection.

use super::{World, is_root, sh, text};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The configuration of an sshd that lets this user in by key. Everything is in a directory of the test's world.
pub(crate) struct Sshd {
    dir: PathBuf,
}

impl Sshd {
    /// An sshd whose configuration ends with `lines`. The first value that sshd reads counts.
    pub(crate) fn new(world: &World, lines: &[&str]) -> Sshd {
        let sshd = Sshd { dir: world.path("sshd") };
        fs::create_dir(&sshd.dir).unwrap();
        if is_root() {
            // What Debian's service creates, and sshd wants.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        sshd.generate_key("host");
        fs::write(sshd.file("authorized_keys"), "").unwrap();
        let (host_key, keys) = (sshd.file("host"), sshd.file("authorized_keys"));
        // Sessions use the git under test and its configuration, as every other command of this test does.
        let path = format!("{}:/usr/bin:/bin", world.git.program.parent().unwrap().display());
        let home = world.path("home");
        let own = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nSetEnv PATH={path} HOME={}\n",
            host_key.display(),
            keys.display(),
            home.display(),
        );
        fs::write(sshd.file("config"), own + &lines.join("\n") + "\n").unwrap();
        sshd
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn generate_key(&self, name: &str) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(self.file(name));
        assert!(command.status().unwrap().success());
    }

    /// Adds a key with these options of `authorized_keys`, and returns the ssh command that logs in with it.
    pub(crate) fn key(&self, name: &str, options: &str) -> String {
        self.generate_key(name);
        let public = fs::read_to_string(self.dir.join(name).with_extension("pub")).unwrap();
        let mut keys = fs::read_to_string(self.file("authorized_keys")).unwrap();
        keys += format!("{options} {public}").trim_start();
        fs::write(self.file("authorized_keys"), keys).unwrap();
        self.ssh(&self.file(name))
    }

    fn ssh(&self, key: &Path) -> String {
        // sshd wants its own absolute path; what it prints is for the server's administrator.
        let proxy =
            format!("$(PATH=$PATH:/usr/sbin command -v sshd) -i -f {} -E {}", sh(self.file("config")), sh(self.log()));
        format!(
            "ssh -F none -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ProxyCommand={} -l {}",
            sh(key),
            sh(proxy),
            own_name(),
        )
    }

    /// What sshd logged.
    pub(crate) fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// The address of the repository `server.git` for git, with any host name.
    pub(crate) fn url(&self, world: &World) -> String {
        format!("ssh://server{}", world.server().display())
    }
}

fn own_name() -> String {
    text(&Command::new("id").arg("-un").output().unwrap().stdout).trim().to_owned()
}
