//! Every environment variable that git-fence reads or sets, once: its name, who sets it, who reads it, what it is for.
//!
//! [`Environment`](crate::Environment) takes a [`Variable`] and no text, so a variable that is not here cannot be asked
//! for. A new one is one entry; `docs/environment.md` is made of this table, and a test compares the two.
//!
//! Another Unix: the same.

/// An environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// What it is called; `<n>` stands for a number where there are many.
    pub name: &'static str,
    /// Who sets it, or takes it away.
    pub set_by: &'static str,
    /// Who reads it.
    pub read_by: &'static str,
    /// What it is for.
    pub about: &'static str,
}

impl Variable {
    /// The name of the one with this number, of those that there are many of.
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
    /// Who is pushing, as hosts say it, the most specific first. A new host is one line here.
    PUSHER:
    GL_USERNAME = "GL_USERNAME", "GitLab", "the gate", "who is pushing";
    GL_USER = "GL_USER", "gitolite", "the gate", "who is pushing";
    GITEA_PUSHER_NAME = "GITEA_PUSHER_NAME", "Gitea, Forgejo", "the gate", "who is pushing";
    SOFT_SERVE_USERNAME = "SOFT_SERVE_USERNAME", "Soft Serve", "the gate", "who is pushing";
    REMOTE_USER = "REMOTE_USER", "a web server", "the gate", "who is pushing, as it has logged in";
}

variables! {
    /// From where somebody pushes.
    ADDRESS:
    SSH_CONNECTION = "SSH_CONNECTION", "sshd", "the gate", "the address of the pusher, for the log: its first word";
    REMOTE_ADDR = "REMOTE_ADDR", "a web server", "the gate", "the address of the pusher, for the log";
}

variables! {
    /// What git tells a hook of the push.
    PUSH:
    GIT_DIR = "GIT_DIR", "git; `git fence` for a repository of its own", "the gate, git", "the repository";
    GIT_NAMESPACE = "GIT_NAMESPACE", "git", "the gate", "refuses the push where it is set: refs have other names there";
    GIT_PUSH_OPTION_COUNT = "GIT_PUSH_OPTION_COUNT", "git", "the gate", "how many push options there are";
    GIT_PUSH_OPTION = "GIT_PUSH_OPTION_<n>", "git", "the gate", "the push options; those at the count and above are not read";
    GIT_OBJECT_DIRECTORY = "GIT_OBJECT_DIRECTORY", "git; taken away by `git fence` for a repository of its own", "the gate", "where the objects of the push are until it is accepted";
    GIT_ALTERNATE_OBJECT_DIRECTORIES = "GIT_ALTERNATE_OBJECT_DIRECTORIES", "git; `git fence` for objects of its own", "the gate, git", "where else objects are";
}

variables! {
    /// Where settings come from.
    CONFIGURATION:
    HOME = "HOME", "the system; the gate, when root works for a repository's owner", "the gate, git", "where the user's `.gitconfig` is";
    XDG_CONFIG_HOME = "XDG_CONFIG_HOME", "the user; taken away by the gate, when root works for somebody else", "the gate, git", "where the user's `git/config` is";
    GIT_CONFIG_GLOBAL = "GIT_CONFIG_GLOBAL", "the user", "the gate, git", "a file instead of the user's own";
    GIT_CONFIG_SYSTEM = "GIT_CONFIG_SYSTEM", "the user", "the gate, git", "a file instead of the machine's; not for a push of somebody else than the owner";
    GIT_CONFIG_NOSYSTEM = "GIT_CONFIG_NOSYSTEM", "the user", "the gate, git", "leaves the machine's file out; not for a push of somebody else than the owner";
    GIT_CONFIG_PARAMETERS = "GIT_CONFIG_PARAMETERS", "git, for `git -c`; `git fence`, for the git that pushes", "the gate, git", "settings that come after all others";
    GIT_CONFIG_COUNT = "GIT_CONFIG_COUNT", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "how many settings there are in the environment";
    GIT_CONFIG_KEY = "GIT_CONFIG_KEY_<n>", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "the key of one";
    GIT_CONFIG_VALUE = "GIT_CONFIG_VALUE_<n>", "the user; `git fence run`, for the command", "the gate, `git fence`, git", "its value";
}

variables! {
    /// What a command finds that runs under a lease.
    RUN:
    GIT_FENCE = "GIT_FENCE", "`git fence run`", "`git fence`, the command", "the fence whose lease the command runs under";
    GIT_FENCE_TOKEN = "GIT_FENCE_TOKEN", "`git fence run`", "the command", "the token at the start";
    GIT_FENCE_OWNER = "GIT_FENCE_OWNER", "`git fence run`", "the command", "what the holder calls itself";
    GIT_FENCE_REMOTE = "GIT_FENCE_REMOTE", "`git fence run`", "`git fence`, the command", "the remote";
    GIT_FENCE_LEASE = "GIT_FENCE_LEASE", "`git fence run`", "`git fence`, the command", "the id of this ownership";
    GIT_FENCE_DIR = "GIT_FENCE_DIR", "`git fence run`", "`git fence`, the command", "the directory of the lease, which only the user can read";
    GIT_FENCE_RUNS = "GIT_FENCE_RUNS", "`git fence run`", "`git fence`", "the directories of all runs that the command is in, the outermost first";
    GIT_ALLOW_PROTOCOL = "GIT_ALLOW_PROTOCOL", "the user; `git fence run` adds to it", "git", "the ways that git may go: `fence` is one more";
    PATH = "PATH", "the system; `git fence run` adds to it", "`git fence`, git", "where `git-remote-fence` is; and whether git has started this program";
}

variables! {
    /// What the client tells the git that it starts, and what it looks at.
    CLIENT:
    LC_ALL = "LC_ALL", "the gate and `git fence`, to `C`", "git", "messages in the language that is read here";
    GIT_PREFIX = "GIT_PREFIX", "git; taken away by `git fence`", "git", "where in the work tree the user is";
    GIT_WORK_TREE = "GIT_WORK_TREE", "the user; taken away by `git fence` for a repository of its own", "git", "the work tree";
    GIT_COMMON_DIR = "GIT_COMMON_DIR", "the user; taken away by `git fence` for a repository of its own", "git", "what worktrees share";
    GIT_INDEX_FILE = "GIT_INDEX_FILE", "the user; taken away by `git fence` for a repository of its own", "git", "the index";
    GIT_SHALLOW_FILE = "GIT_SHALLOW_FILE", "`git fence`, for a push from a shallow clone", "git", "where a history ends";
    GIT_TERMINAL_PROMPT = "GIT_TERMINAL_PROMPT", "`git fence`, to 0 for heartbeats", "git", "asks nobody for a password";
    GIT_AUTHOR_NAME = "GIT_AUTHOR_NAME", "`git fence push`, for a commit that it stamps; the gate, for a lease that it revokes", "git", "a commit's author";
    GIT_AUTHOR_EMAIL = "GIT_AUTHOR_EMAIL", "the same", "git", "the same";
    GIT_AUTHOR_DATE = "GIT_AUTHOR_DATE", "`git fence push`, for a commit that it stamps", "git", "the same";
    GIT_COMMITTER_NAME = "GIT_COMMITTER_NAME", "the gate, for a lease that it revokes", "git", "a commit's committer";
    GIT_COMMITTER_EMAIL = "GIT_COMMITTER_EMAIL", "the same", "git", "the same";
    GIT_EXEC_PATH = "GIT_EXEC_PATH", "the user", "`git fence`", "where git's own programs are: whether git has started this program";
    GIT_FENCE_CLOCK_OFFSET = "GIT_FENCE_CLOCK_OFFSET", "tests", "`git fence`", "so many seconds are added to the wall clock, to see what a wrong one does";
}

/// All of them, in groups.
pub const ALL: &[(&str, &[Variable])] = &[
    ("Under a lease", RUN),
    ("Who is pushing", PUSHER),
    ("From where", ADDRESS),
    ("The push", PUSH),
    ("Settings", CONFIGURATION),
    ("Git, as git-fence starts it", CLIENT),
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

    /// The page for people, `docs/environment.md`.
    fn page() -> String {
        let mut page = "# Environment variables\n\n\
            Every variable that git-fence reads or sets, generated from `system/src/env.rs`. The gate is \
            `git-fence-hook`. An empty variable counts as unset.\n\n\
            The pusher is the first variable of its group that is set, else the user that the hook runs as.\n"
            .to_owned();
        for (title, variables) in ALL {
            let _ = write!(page, "\n## {title}\n\n| variable | set by | read by | what it is |\n|---|---|---|---|\n");
            for Variable { name, set_by, read_by, about } in *variables {
                let _ = writeln!(page, "| `{name}` | {set_by} | {read_by} | {about} |");
            }
        }
        page
    }

    /// What makes the test write the page.
    const WRITE: &str = "GIT_FENCE_WRITE_DOCS";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "for whoever runs the tests")]
    fn the_page_is_made_of_the_table() {
        let path = root().join("docs/environment.md");
        if fs::read_to_string(&path).is_ok_and(|text| text == page()) {
            return;
        }
        let command = format!("{WRITE}=1 cargo test -p git-fence-system --lib env");
        let writes = std::env::var_os(WRITE).is_some();
        assert!(writes, "docs/environment.md is not what the table says. To write it:\n\n    {command}\n");
        fs::write(&path, page()).unwrap();
    }

    /// What asks [`Environment`](crate::Environment) needs a [`Variable`]; what starts a program could name one itself.
    #[test]
    fn no_name_stands_elsewhere() {
        let mut dirs = vec![root().join("hook/src"), root().join("gate-client/src"), root().join("src")];
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                for word in [".env(\"", ".env_remove(\""] {
                    assert!(!code.contains(word), "{}: {word} names a variable itself", path.display());
                }
                for Variable { name, .. } in ALL.iter().flat_map(|(_, group)| *group) {
                    let literal = format!("\"{}", name.trim_end_matches("<n>"));
                    let is_there =
                        code.contains(&(literal.clone() + "\"")) || name.ends_with("<n>") && code.contains(&literal);
                    assert!(!is_there, "{}: {literal}\" stands in system/src/env.rs", path.display());
                }
            }
        }
    }

    #[test]
    fn no_variable_is_there_twice() {
        let mut names: Vec<&str> = ALL.iter().flat_map(|(_, group)| *group).map(|variable| variable.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
