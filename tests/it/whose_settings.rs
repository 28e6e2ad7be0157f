//! Whose settings count: those of the repository, of the machine, and of the repository's owner. Not the pusher's.

use crate::support::{
    Git, Pushed, World, any_git, gits,
    needs::{Need, lacks},
    text,
};
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

const NOBODY: u32 = 65534;

/// A server that others may write to, and another user with a home on the same machine.
struct Shared {
    world: World,
    home: PathBuf,
}

impl Shared {
    fn with(git: &Git) -> Shared {
        let world = World::new(git);
        world.push_token("main", "5").assert_landed();
        let home = world.path("theirs");
        fs::create_dir_all(home.join(".config/git")).unwrap();
        world.ok(Command::new("chmod").args(["-R", "a+rwX"]).arg(world.path(".")));
        chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        Shared { world, home }
    }

    /// A file of that user.
    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::write(&path, content).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    fn as_nobody(&self, command: &Command) -> Command {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        setpriv.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => setpriv.env(name, value),
                None => setpriv.env_remove(name),
            };
        }
        setpriv.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
        setpriv.env("HOME", &self.home).env_remove("GIT_CONFIG_GLOBAL");
        setpriv
    }

    /// A push without a token, by a user who does not own the repository.
    fn push(&self, with: impl FnOnce(&mut Command)) -> Pushed {
        let mut push = self.as_nobody(&self.world.push_command(&["HEAD:refs/heads/unfenced"], &[]));
        with(&mut push);
        Pushed::from(&push.output().unwrap())
    }
}

const TRUSTING: &str = "[safe]\n\tdirectory = *\n";

#[test]
fn pushers_own_configuration_does_not_open_the_gate() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    for git in gits() {
        let shared = Shared::with(&git);
        for line in ["mode = off", "mode = observe", "tokenless = allow", "exempt = tester", "refs = refs/none/*"] {
            let section = format!("[fence]\n\t{line}\n[fence \"repo\"]\n\t{line}\n");
            let both = format!("{TRUSTING}{section}");
            let refused = |name: &str, with: &dyn Fn(&mut Command)| {
                let pushed = shared.push(with);
                assert_eq!(pushed.code().as_deref(), Some("FENCE-MISSING"), "{name}, {line}: {}", pushed.text);
            };
            let elsewhere = shared.write("elsewhere", &both);
            shared.write(".gitconfig", &both);
            refused(".gitconfig", &|_| {});
            shared.write(".gitconfig", &format!("{TRUSTING}[include]\n\tpath = included\n"));
            shared.write("included", &section);
            refused("included", &|_| {});
            shared.write(".gitconfig", TRUSTING);
            shared.write(".config/git/config", &section);
            refused("XDG", &|_| {});
            shared.write(".config/git/config", "");
            refused("GIT_CONFIG_GLOBAL", &|push| _ = push.env("GIT_CONFIG_GLOBAL", &elsewhere));
            refused("GIT_CONFIG_SYSTEM", &|push| {
                push.env_remove("GIT_CONFIG_NOSYSTEM").env("GIT_CONFIG_SYSTEM", &elsewhere);
            });
            let (key, value) = line.split_once(" = ").unwrap();
            let receive_pack = format!("git -c fence.{key}={value} receive-pack");
            refused("-c", &|push| _ = push.arg(format!("--receive-pack={receive_pack}")));
            let variables = format!("GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=fence.{key} GIT_CONFIG_VALUE_0={value}");
            refused("GIT_CONFIG_COUNT", &|push| {
                _ = push.arg(format!("--receive-pack=env {variables} git-receive-pack"));
            });
            // The repository's configuration may include a file from the pusher's home.
            shared.world.configure("include.path", "~/included");
            refused("~/", &|_| {});
            let condition = "includeIf.hasconfig:remote.*.url:https://example.com/**.path";
            shared.world.configure("remote.up.url", "https://example.com/up.git");
            shared.world.configure(condition, "~/included");
            refused("~/, asked of git", &|_| {});
            shared.write(".gitconfig", &both);
            refused(".gitconfig, asked of git", &|_| {});
            for key in ["include.path", "remote.up.url", condition] {
                shared.world.ok(shared.world.git("server.git").args(["config", "--unset-all", key]));
            }
        }
        assert_eq!(shared.world.server_ref("refs/heads/unfenced"), None);
    }
}

/// As `sudo -u git` may leave it: the user is the owner, but HOME belongs to the caller.
#[test]
fn global_file_of_another_user_does_not_count_for_the_owner() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let shared = Shared::with(&any_git());
    let world = &shared.world;
    let theirs = shared.write("gitconfig", "[fence]\n\ttokenless = allow\n");
    let push = |global: &Path| {
        let mut push = world.push_command(&["HEAD:refs/heads/unfenced"], &[]);
        Pushed::from(&push.env("GIT_CONFIG_GLOBAL", global).output().unwrap())
    };
    push(&theirs).assert_refused("FENCE-MISSING");
    let own = world.path("own");
    fs::copy(&theirs, &own).unwrap();
    push(&own).assert_landed();
}

/// Commands show the settings that apply to pushes and list those that do not count, no matter who runs them.
#[test]
fn commands_show_the_settings_that_apply_to_pushes() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let shared = Shared::with(&any_git());
    let world = &shared.world;
    shared.write(".gitconfig", &format!("{TRUSTING}[fence]\n\tmode = off\n"));
    let by_nobody = |args: &[&str]| {
        let mut command = world.hook_program();
        text(&shared.as_nobody(command.args(args).arg(world.server())).output().unwrap().stdout)
    };
    let status: serde_json::Value = serde_json::from_str(&by_nobody(&["status", "--json"])).unwrap();
    assert_eq!(status["fences"][0]["mode"], "enforce", "{status:#}");
    assert_eq!(status["settings"], serde_json::json!([]));
    assert_eq!((&status["ignored"][0]["key"], &status["ignored"][0]["value"]), (&"fence.mode".into(), &"off".into()));
    let shown = by_nobody(&["status"]);
    assert!(shown.contains("ignored fence.mode = off") && shown.contains("theirs/.gitconfig"), "{shown}");
    let doctor = by_nobody(&["doctor"]);
    assert!(doctor.contains("note: setting-ignored: fence.mode = off"), "{doctor}");

    // The operator's own environment does not apply to pushes either.
    let mut command = world.hook_program();
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "fence.mode").env("GIT_CONFIG_VALUE_0", "off");
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(command.args(["status", "--json"]).arg(world.server()))).unwrap();
    assert_eq!((&status["fences"][0]["mode"], &status["ignored"][0]["value"]), (&"enforce".into(), &"off".into()));
}

/// Root inspects a repository of another user, whose global file applies to its pushes.
#[test]
fn root_sees_the_settings_of_the_owner() {
    if lacks(&[Need::AnotherUser, Need::Mount]) {
        return;
    }
    let shared = Shared::with(&any_git());
    let world = &shared.world;
    let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(world.server()).status().unwrap();
    assert!(owned.success());
    shared.write(".gitconfig", &format!("{TRUSTING}[fence]\n\tmode = observe\n"));
    let roots = world.path("roots");
    fs::write(&roots, format!("{TRUSTING}[fence]\n\tmode = off\n")).unwrap();
    let passwd = world.path("passwd");
    fs::write(&passwd, format!("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::{}:/bin/sh\n", shared.home.display()))
        .unwrap();
    let mut command = Command::new("unshare");
    world.hermetic(&mut command);
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/passwd && exec \"$@\""]).arg(&passwd);
    command.arg(env!("CARGO_BIN_EXE_git-fence-hook")).args(["status", "--json"]).arg(world.server());
    let ran = command.env("GIT_CONFIG_GLOBAL", &roots).output().unwrap();
    let status: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", text(&ran.stderr)));
    assert_eq!(status["fences"][0]["mode"], "observe", "{status:#}");
    assert_eq!(status["ignored"][0]["value"], "off", "{status:#}");
    // And so are the pushes of the owner.
    let pushed = shared.push(|_| {});
    assert!(pushed.ok && pushed.text.contains("warning: FENCE-MISSING"), "{}", pushed.text);
}
