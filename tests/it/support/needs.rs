//! Requirements that not every machine meets: programs, root, and features that only some systems allow.
//!
//! A test calls [`lacks`] first, and returns if something is missing. The first such test says so, in one line for
//! the whole run. `GIT_FENCE_TESTS_NEED` turns a skip into a failure: `programs` if a program is not installed, which
//! `./check` sets after installing them all, and `all` for every requirement, which CI sets.

use super::{World, any_git, sshd};
use std::{
    io::Write as _,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{LazyLock, Once},
};

/// A requirement of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// To trace programs, and to kill them at a system call.
    Strace,
    GitLfs,
    /// For the Python programs in `fixtures/`.
    Python,
    Terminal,
    /// To log in with ssh as this user.
    Sshd,
    /// To run the built programs as another user, and to change the owner of files.
    AnotherUser,
    /// To mount file systems.
    Mount,
    /// To make this machine look like another one with the same machine id, or like itself after a reboot.
    OtherBoot,
    PidNamespace,
    TimeNamespace,
    /// To render manual pages.
    Man,
    /// Git's own completion for bash.
    GitCompletion,
    Fish,
    Zsh,
    /// To make and unpack Debian packages.
    Deb,
    /// To run programs with another directory as their root.
    Chroot,
    /// What `packaging/static.sh` makes: too slow for every check.
    StaticBuild,
    Etcd,
    /// To start PostgreSQL, as another user if this one is root.
    Postgres,
    Redis,
}

use Need::{
    AnotherUser, Chroot, Deb, Etcd, Fish, GitCompletion, GitLfs, Man, Mount, OtherBoot, PidNamespace, Postgres, Python,
    Redis, Sshd, StaticBuild, Strace, Terminal, TimeNamespace, Zsh,
};

/// The name of a requirement, the programs it needs, and a check that they work here.
struct Row {
    need: Need,
    name: &'static str,
    programs: &'static [&'static str],
    works: fn() -> bool,
}

static TABLE: [Row; 20] = [
    Row { need: Strace, name: "permission to trace", programs: &["strace"], works: traces },
    Row { need: GitLfs, name: "git-lfs", programs: &["git-lfs"], works: || true },
    Row { need: Python, name: "python3", programs: &["python3"], works: || true },
    Row { need: Terminal, name: "a terminal", programs: &["script"], works: || true },
    Row { need: Sshd, name: "a login by ssh", programs: &["sshd", "ssh"], works: logs_in },
    Row { need: AnotherUser, name: "another user", programs: &["setpriv", "flock"], works: becomes_another_user },
    Row { need: Mount, name: "permission to mount", programs: &["mount", "unshare"], works: mounts },
    Row {
        need: OtherBoot,
        name: "a machine id with another boot id",
        programs: &["mount", "unshare"],
        works: hides_the_boot_id,
    },
    Row { need: PidNamespace, name: "a pid namespace", programs: &["unshare"], works: makes_a_pid_namespace },
    Row { need: TimeNamespace, name: "a time namespace", programs: &["unshare"], works: makes_a_time_namespace },
    // A stub says how to get the real one.
    Row { need: Man, name: "man", programs: &["man"], works: || succeeds(Command::new("man").arg("--version")) },
    Row {
        need: GitCompletion,
        name: "git's completion for bash",
        programs: &["bash"],
        works: || git_completion().is_some(),
    },
    Row { need: Fish, name: "fish", programs: &["fish"], works: || true },
    Row { need: Zsh, name: "zsh", programs: &["zsh"], works: || true },
    Row { need: Deb, name: "dpkg-deb", programs: &["dpkg-deb"], works: || true },
    Row {
        need: Chroot,
        name: "a root directory of its own",
        programs: &["unshare", "mount", "ldd"],
        works: changes_root,
    },
    Row { need: StaticBuild, name: "packaging/static.sh to have been run", programs: &[], works: is_built_statically },
    Row { need: Etcd, name: "etcd", programs: &["etcd", "setpriv"], works: || true },
    Row {
        need: Postgres,
        name: "PostgreSQL",
        programs: &["pg_ctlcluster", "setpriv"],
        works: || program_of_postgres("initdb").is_some(),
    },
    Row { need: Redis, name: "Redis", programs: &["redis-server", "setpriv"], works: || true },
];

/// Whether one of them is missing. Then the test prints that and returns, or fails if nothing may be skipped.
#[must_use = "a test that lacks something returns"]
#[track_caller]
pub(crate) fn lacks(needs: &[Need]) -> bool {
    static SAY: Once = Once::new();
    let here = Missing::of(|need| needs.contains(&need));
    if here.is_none() {
        return false;
    }
    let strict = std::env::var("GIT_FENCE_TESTS_NEED").unwrap_or_default();
    let may_skip = match strict.as_str() {
        "" => true,
        "programs" => here.programs.is_empty(),
        "all" => false,
        other => panic!("GIT_FENCE_TESTS_NEED is 'programs' or 'all', not '{other}'"),
    };
    assert!(may_skip, "GIT_FENCE_TESTS_NEED={strict}, and this test needs {}", here.words());
    // Bypasses the capture of the output of passing tests.
    let all = Missing::of(|_| true);
    SAY.call_once(|| _ = writeln!(std::io::stderr(), "note: skipped tests that need {}", all.words()));
    true
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap();
    // Not in everybody's PATH, but everybody may run what is there.
    let sbin = std::iter::once("/usr/sbin".into());
    std::env::split_paths(&path).chain(sbin).any(|dir: PathBuf| dir.join(program).is_file())
}

/// A program of the newest PostgreSQL: Debian keeps those of the server out of the PATH.
pub(crate) fn program_of_postgres(program: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let all = versions.map(|version| version.path().join("bin").join(program)).filter(|path| path.is_file());
    all.max()
}

/// What this machine does not have.
struct Missing {
    programs: Vec<&'static str>,
    others: Vec<&'static str>,
}

impl Missing {
    fn of(is_asked_for: impl Fn(Need) -> bool) -> Missing {
        static DO_NOT_WORK: LazyLock<Vec<Need>> = LazyLock::new(|| {
            let fails = |row: &&Row| row.programs.iter().all(|program| is_installed(program)) && !(row.works)();
            TABLE.iter().filter(fails).map(|row| row.need).collect()
        });
        let rows = || TABLE.iter().filter(|row| is_asked_for(row.need));
        let mut programs: Vec<_> = rows().flat_map(|row| row.programs).copied().collect();
        programs.retain(|program| !is_installed(program));
        programs.sort_unstable();
        programs.dedup();
        let others = rows().filter(|row| DO_NOT_WORK.contains(&row.need)).map(|row| row.name).collect();
        Missing { programs, others }
    }

    fn is_none(&self) -> bool {
        self.programs.is_empty() && self.others.is_empty()
    }

    fn words(&self) -> String {
        let mut packages: Vec<_> = self.programs.iter().flat_map(|program| packages_of(program)).collect();
        packages.sort_unstable();
        packages.dedup();
        let install = |programs: String| {
            format!("{programs} (not installed: run ./check, or apt-get install {})", packages.join(" "))
        };
        let programs = (!self.programs.is_empty()).then(|| install(self.programs.join(", ")));
        let others = (!self.others.is_empty()).then(|| format!("{} (not available here)", self.others.join(", ")));
        [programs, others].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The Debian packages that contain a program, from the table that `./check` installs from.
fn packages_of(program: &str) -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../../programs.txt").lines().filter(|line| !line.starts_with('#'));
    let mut rows = lines.map(|line| line.split_whitespace());
    let row = rows.find_map(|mut words| (words.next() == Some(program)).then(|| words.next()));
    row.flatten().unwrap_or_else(|| panic!("{program} is not in tests/programs.txt")).split(',')
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|ran| ran.status.success())
}

/// Git's completion, which Debian's git package brings.
pub(crate) fn git_completion() -> Option<&'static str> {
    let places = ["/usr/share/bash-completion/completions/git", "/etc/bash_completion.d/git"];
    places.into_iter().find(|place| Path::new(place).exists())
}

/// Some containers forbid it.
fn traces() -> bool {
    succeeds(Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]))
}

/// An account may be locked, or have no shell.
fn logs_in() -> bool {
    let world = World::bare(&any_git(), &[]);
    let ssh = sshd::Sshd::new(&world, &[]).key("key", "restrict");
    succeeds(Command::new("sh").args(["-c", &format!("{ssh} server true")]))
}

/// Also missing if the build directory is below a directory that other users may not enter.
fn becomes_another_user() -> bool {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut gate = Command::new(env!("CARGO_BIN_EXE_git-fence-hook"));
    chown(dir.path(), Some(65534), Some(65534)).is_ok()
        && succeeds(gate.arg("--help").uid(65534).gid(65534).current_dir(dir.path()))
}

fn mounts() -> bool {
    let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && umount \"$0\"";
    let dir = tempfile::tempdir().unwrap();
    succeeds(Command::new("sh").args(["-c", script]).arg(dir.path()))
        && succeeds(Command::new("unshare").args(["--mount", "true"]))
}

fn changes_root() -> bool {
    let script = "mount --rbind /proc \"$0\" && chroot / true";
    let dir = tempfile::tempdir().unwrap();
    Path::new("/usr/bin/git").exists()
        && succeeds(Command::new("unshare").args(["--map-root-user", "--mount", "sh", "-c", script]).arg(dir.path()))
}

fn is_built_statically() -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/static/git-fence").exists()
}

fn hides_the_boot_id() -> bool {
    let script = "mount --bind /dev/null /proc/sys/kernel/random/boot_id";
    Path::new("/etc/machine-id").exists()
        && succeeds(Command::new("unshare").args(["--map-root-user", "--mount", "sh", "-c", script]))
}

fn makes_a_pid_namespace() -> bool {
    succeeds(Command::new("unshare").args(["--map-root-user", "--pid", "--fork", "--mount-proc", "true"]))
}

fn makes_a_time_namespace() -> bool {
    succeeds(Command::new("unshare").args(["--time", "--boottime", "86400", "--fork", "true"]))
}

/// `./check` installs every program that a test may require.
#[test]
fn every_program_has_its_package() {
    let programs = TABLE.iter().flat_map(|row| row.programs);
    programs.for_each(|program| assert!(packages_of(program).count() > 0));
}
