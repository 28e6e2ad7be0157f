//! Every environment variable that git-fence reads or sets: its name, who sets it, who reads it, what it is for.
//!
//! [`Environment`](crate::Environment) is asked by [`Variable`], not by name, so only variables that are listed here can be
//! read. To add one, add an entry; `docs/environment.md` is generated from this table, and a test compares the two.
//!
//! Another Unix: the same.

/// An environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name; `<n>` stands for a number if there are several.
    pub name: &'static str,
    /// Who sets it, or removes it.
    pub set_by: &'static str,
    /// Who reads it.
    pub read_by: &'static str,
    /// What it is for.
    pub about: &'static str,
}

impl Variable {
    /// The name of the variable with this number, if there are several.
    pub fn nth(&self, n: usize) -> String {
        self.name.replace("<n>", &n.to_string())
    }
}

macro_rules! variables {
    ($(#[$doc:meta])* $group:ident: $($id:ident = $name:literal, $set:literal, $read:literal, $about:literal;)+) => {
        $(
            #[doc = $about]
            pub const $id: Variable = Variable { name: $name, set_by: $set, read_by: $read, about: $about };
        )+
        $(#[$doc])*
        pub const $group: &[Variable] = &[$($id),+];
    };
}

variables! {
    /// Who is pushing, according to the host, most specific first. To support another host, add a line.
    PUSHER:
    GIT_FENCE_PUSHER = "GIT_FENCE_PUSHER", "`git-fence-hook as`, which removes the others", "the gate", "who is pushing: the name of the ssh key";
    GL_USERNAME = "GL_USERNAME", "GitLab", "the gate", "who is pushing";
    GL_USER = "GL_USER", "gitolite", "the gate", "who is pushing";
    GITEA_PUSHER_NAME = "GITEA_PUSHER_NAME", "Gitea, Forgejo", "the gate", "who is pushing";
    SOFT_SERVE_USERNAME = "SOFT_SERVE_USERNAME", "Soft Serve", "the gate", "who is pushing";
    REMOTE_USER = "REMOTE_USER", "a web server", "the gate", "who is pushing, after logging in";
}

variables! {
    /// The address of the pusher.
    ADDRESS:
    SSH_CONNECTION = "SSH_CONNECTION", "sshd", "the gate", "the address of the pusher, for the log: its first word";
    REMOTE_ADDR = "REMOTE_ADDR", "a web server", "the gate", "the address of the pusher, for the log";
}

variables! {
    /// What sshd and its client tell `git-fence-hook as`.
    LOGIN:
    SSH_ORIGINAL_COMMAND = "SSH_ORIGINAL_COMMAND", "sshd", "`git-fence-hook as`", "the command that the client asks for";
    GIT_PROTOCOL = "GIT_PROTOCOL", "the git client, if sshd accepts it", "git", "the version of git's protocol; all other `GIT_*` variables are removed by `git-fence-hook as`";
}

variables! {
    /// What git tells a hook about the push.
    PUSH:
    GIT_DIR = "GIT_DIR", "git; `git fence` for its own repository", "the gate, git", "the repository";
    GIT_NAMESPACE = "GIT_NAMESPACE", "git", "the gate", "if it is set, the push is refused: refs have other names there";
    GIT_PUSH_OPTION_COUNT = "GIT_PUSH_OPTION_COUNT", "git", "the gate", "the number of push options";
    GIT_PUSH_OPTION = "GIT_PUSH_OPTION_<n>", "git", "the gate", "the push options; only those below the count are read";
    GIT_OBJECT_DIRECTORY = "GIT_OBJECT_DIRECTORY", "git; removed by `git fence` for its own repository", "the gate", "where the objects of the push are until it is accepted";
    GIT_ALTERNATE_OBJECT_DIRECTORIES = "GIT_ALTERNATE_OBJECT_DIRECTORIES", "git; `git fence` for its own objects", "the gate, git", "further object directories";
}

variables! {
    /// Where settings come from.
    CONFIGURATION:
    HOME = "HOME", "the system; the gate, when root works for a repository's owner", "the gate, git", "where the user's `.gitconfig` is";
    XDG_CONFIG_HOME = "XDG_CONFIG_HOME", "the user; removed by the gate, when root works for another user", "the gate, git", "where the user's `git/config` is";
    GIT_CONFIG_GLOBAL = "GIT_CONFIG_GLOBAL", "the user", "the gate, git", "a file that replaces the user's own";
    GIT_CONFIG_SYSTEM = "GIT_CONFIG_SYSTEM", "the user", "the gate, git", "a file that replaces the system's; ignored for pushes of users other than the owner";
    GIT_CONFIG_NOSYSTEM = "GIT_CONFIG_NOSYSTEM", "the user", "the gate, git", "ignores the system's file; itself ignored for pushes of users other than the owner";
    GIT_CONFIG_PARAMETERS = "GIT_CONFIG_PARAMETERS", "git, for `git -c`; `git fence`, for the git that pushes", "the gate, git", "settings that override all others";
    GIT_CONFIG_COUNT = "GIT_CONFIG_COUNT", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "the number of settings in the environment";
    GIT_CONFIG_KEY = "GIT_CONFIG_KEY_<n>", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "the key of a setting";
    GIT_CONFIG_VALUE = "GIT_CONFIG_VALUE_<n>", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "the value of a setting";
}

variables! {
    /// The variables of a command that runs under a lease.
    RUN:
    GIT_FENCE = "GIT_FENCE", "`git fence run`", "`git fence`, the command", "the fence whose lease the command runs under";
    GIT_FENCE_TOKEN = "GIT_FENCE_TOKEN", "`git fence run`", "the command", "the token at the start";
    GIT_FENCE_OWNER = "GIT_FENCE_OWNER", "`git fence run`", "the command", "the owner of the lease";
    GIT_FENCE_REMOTE = "GIT_FENCE_REMOTE", "`git fence run`", "`git fence`, the command", "the remote";
    GIT_FENCE_LEASE = "GIT_FENCE_LEASE", "`git fence run`", "`git fence`, the command", "the id of this ownership";
    GIT_FENCE_TICK = "GIT_FENCE_TICK", "`git fence run --every` and `--cron`", "the command", "the tick that the command runs for: RFC 3339, UTC";
    GIT_FENCE_TICKS_DROPPED = "GIT_FENCE_TICKS_DROPPED", "`git fence run --every` and `--cron`", "the command", "how many missed ticks were dropped before this one";
    GIT_FENCE_DIR = "GIT_FENCE_DIR", "`git fence run`", "`git fence`, the command", "the directory of the lease, which only the user can read";
    GIT_FENCE_RUNS = "GIT_FENCE_RUNS", "`git fence run`", "`git fence`", "the directories of all runs around the command, outermost first";
    GIT_ALLOW_PROTOCOL = "GIT_ALLOW_PROTOCOL", "the user; `git fence run` adds to it", "git", "the protocols that git may use; `fence` is added";
    PATH = "PATH", "the system; `git fence run` adds to it", "`git fence`, git", "where `git-remote-fence` is; also used to find out whether git has started this program";
}

variables! {
    /// The variables that the client sets for git, and others that it reads.
    CLIENT:
    LC_ALL = "LC_ALL", "the gate and `git fence`, to `C`", "git", "messages in English, so that they can be parsed";
    GIT_PREFIX = "GIT_PREFIX", "git; removed by `git fence`", "git", "the user's directory within the work tree";
    GIT_WORK_TREE = "GIT_WORK_TREE", "the user; removed by `git fence` for its own repository", "git", "the work tree";
    GIT_COMMON_DIR = "GIT_COMMON_DIR", "the user; removed by `git fence` for its own repository", "git", "the directory that worktrees share";
    GIT_INDEX_FILE = "GIT_INDEX_FILE", "the user; removed by `git fence` for its own repository", "git", "the index";
    GIT_SHALLOW_FILE = "GIT_SHALLOW_FILE", "`git fence`, for a push from a shallow clone", "git", "the boundary of a shallow history";
    GIT_TERMINAL_PROMPT = "GIT_TERMINAL_PROMPT", "`git fence run`, to 0 for its own connections", "git", "whether git asks for passwords on the terminal";
    GIT_ASKPASS = "GIT_ASKPASS", "the user; if it is not set, `git fence run` sets it to nothing for its own connections", "git", "a program that answers with a password; set and empty, git asks no program at all";
    GCM_INTERACTIVE = "GCM_INTERACTIVE", "`git fence run`, to `never` for its own connections", "Git Credential Manager", "whether it opens a window";
    SSH_ASKPASS = "SSH_ASKPASS", "`git fence run`, for its own connections", "git, ssh", "a program that asks for a password";
    SSH_ASKPASS_REQUIRE = "SSH_ASKPASS_REQUIRE", "the same", "ssh", "whether ssh asks that program instead of the terminal";
    GIT_SSH_COMMAND = "GIT_SSH_COMMAND", "the user; `git fence run` adds `-o BatchMode=yes` for its own connections", "`git fence`, git", "the command for ssh";
    GIT_SSH = "GIT_SSH", "the user", "`git fence`, git", "the program for ssh";
    GIT_SSH_VARIANT = "GIT_SSH_VARIANT", "the user", "`git fence`, git", "which kind of ssh that is";
    GIT_AUTHOR_NAME = "GIT_AUTHOR_NAME", "`git fence push`, for a commit that it stamps; the gate, for a lease that it revokes", "git", "a commit's author";
    GIT_AUTHOR_EMAIL = "GIT_AUTHOR_EMAIL", "the same", "git", "the same";
    GIT_AUTHOR_DATE = "GIT_AUTHOR_DATE", "`git fence push`, for a commit that it stamps", "git", "the same";
    GIT_COMMITTER_NAME = "GIT_COMMITTER_NAME", "the gate, for a lease that it revokes", "git", "a commit's committer";
    GIT_COMMITTER_EMAIL = "GIT_COMMITTER_EMAIL", "the same", "git", "the same";
    GIT_EXEC_PATH = "GIT_EXEC_PATH", "the user", "`git fence`", "where git's own programs are; used to find out whether git has started this program";
    GIT_FENCE_CLOCK_OFFSET = "GIT_FENCE_CLOCK_OFFSET", "tests", "`git fence`", "seconds to add to the wall clock, to test a wrong clock";
}

variables! {
    /// The variables of the engines that can keep leases.
    STORE:
    GIT_FENCE_STORE = "GIT_FENCE_STORE", "the user", "`git fence`", "the URL of the store in which leases are kept; `remote` for the remote itself. `--store` overrides it, and it overrides `fence.store`";
    GIT_FENCE_STORE_TOKEN = "GIT_FENCE_STORE_TOKEN", "the user", "`git-fence-store`", "a bearer token for Firestore, an HTTP service or etcd";
    GIT_FENCE_STORE_TOKEN_COMMAND = "GIT_FENCE_STORE_TOKEN_COMMAND", "the user", "`git-fence-store`", "a command that prints such a token; it is run again when the token is no longer accepted";
    ETCDCTL_USER = "ETCDCTL_USER", "the user", "`git-fence-store`", "user and password for etcd, with a colon in between";
    ETCDCTL_CACERT = "ETCDCTL_CACERT", "the user", "`git-fence-store`", "the certificates of those who may sign etcd's";
    ETCDCTL_CERT = "ETCDCTL_CERT", "the user", "`git-fence-store`", "our certificate for etcd";
    ETCDCTL_KEY = "ETCDCTL_KEY", "the user", "`git-fence-store`", "its key";
    PGUSER = "PGUSER", "the user", "`git-fence-store`", "the user for PostgreSQL, if the URL names none";
    PGPASSWORD = "PGPASSWORD", "the user", "`git-fence-store`", "the password for PostgreSQL";
    PGPASSFILE = "PGPASSFILE", "the user", "`git-fence-store`", "a file with passwords for PostgreSQL, else `~/.pgpass`";
    PGSSLMODE = "PGSSLMODE", "the user", "`git-fence-store`", "whether PostgreSQL is used with TLS";
    PGSSLROOTCERT = "PGSSLROOTCERT", "the user", "`git-fence-store`", "the certificates of those who may sign PostgreSQL's";
    PGSSLCERT = "PGSSLCERT", "the user", "`git-fence-store`", "our certificate for PostgreSQL";
    PGSSLKEY = "PGSSLKEY", "the user", "`git-fence-store`", "its key";
    REDISCLI_AUTH = "REDISCLI_AUTH", "the user", "`git-fence-store`", "the password for Redis";
    FIRESTORE_EMULATOR_HOST = "FIRESTORE_EMULATOR_HOST", "the user", "`git-fence-store`", "host and port of Firestore's emulator, which is then used instead of Google's servers";
}

variables! {
    /// The variables of the terminal and the machine.
    MACHINE:
    NO_COLOR = "NO_COLOR", "the user", "`git fence`, `git-fence-hook`", "no colours, whatever its value";
    CLICOLOR_FORCE = "CLICOLOR_FORCE", "the user", "`git fence`, `git-fence-hook`", "colours also where there is no terminal, unless it is 0";
    TERM = "TERM", "the terminal", "`git fence`, `git-fence-hook`", "no colours if it is `dumb`";
    TMPDIR = "TMPDIR", "the user", "`git fence demo`, git", "where temporary files go";
    CARGO = "CARGO", "`cargo run`", "`git fence demo`", "cargo, to build the programs that `cargo run` leaves out";
    CARGO_MANIFEST_DIR = "CARGO_MANIFEST_DIR", "`cargo run`", "`git fence demo`", "the sources, for the same";
}

/// All variables, in groups.
pub const ALL: &[(&str, &[Variable])] = &[
    ("Under a lease", RUN),
    ("Who is pushing", PUSHER),
    ("From where", ADDRESS),
    ("Over ssh, with a name for each key", LOGIN),
    ("The push", PUSH),
    ("Settings", CONFIGURATION),
    ("Git, as git-fence starts it", CLIENT),
    ("Stores of leases", STORE),
    ("Terminal and machine", MACHINE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fmt::Write as _,
        fs,
        path::{Path, PathBuf},
    };

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The content of `docs/environment.md`.
    fn page() -> String {
        let mut page = "# Environment variables\n\n\
            Every variable that git-fence reads or sets, generated from `system/src/env.rs`. The gate is \
            `git-fence-hook`. An empty variable counts as unset.\n\n\
            The pusher is the first variable of its group that is set, or else the user that the hook runs as.\n"
            .to_owned();
        for (title, variables) in ALL {
            let _ = write!(page, "\n## {title}\n\n| variable | set by | read by | what it is |\n|---|---|---|---|\n");
            for Variable { name, set_by, read_by, about } in *variables {
                let _ = writeln!(page, "| `{name}` | {set_by} | {read_by} | {about} |");
            }
        }
        page
    }

    /// The variable that makes the test write the page.
    const WRITE: &str = "GIT_FENCE_WRITE_DOCS";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "used by a test")]
    fn page_matches_the_table() {
        let path = root().join("docs/environment.md");
        if fs::read_to_string(&path).is_ok_and(|text| text == page()) {
            return;
        }
        let command = format!("{WRITE}=1 cargo test -p git-fence-system --lib env");
        let writes = std::env::var_os(WRITE).is_some();
        assert!(writes, "docs/environment.md differs from the table. To update it:\n\n    {command}\n");
        fs::write(&path, page()).unwrap();
    }

    /// Reading from [`Environment`](crate::Environment) needs a [`Variable`], but code that starts a program could use a name.
    #[test]
    fn names_are_only_in_the_table() {
        let mut dirs = vec![root().join("hook/src"), root().join("gate-client/src"), root().join("src")];
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                // What cargo sets for the compiler is not read by the program.
                let code = code.replace("env!(\"", "env!(");
                for word in [".env(\"", ".env_remove(\""] {
                    assert!(!code.contains(word), "{}: {word} uses a literal name", path.display());
                }
                for Variable { name, .. } in ALL.iter().flat_map(|(_, group)| *group) {
                    let literal = format!("\"{}", name.trim_end_matches("<n>"));
                    let is_there =
                        code.contains(&(literal.clone() + "\"")) || name.ends_with("<n>") && code.contains(&literal);
                    assert!(!is_there, "{}: {literal}\" is defined in system/src/env.rs", path.display());
                }
            }
        }
    }

    #[test]
    fn no_variable_is_listed_twice() {
        let mut names: Vec<&str> = ALL.iter().flat_map(|(_, group)| *group).map(|variable| variable.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
