//! Every command block of the README and of `docs/` is run, in the order of its page, in one shell, as a reader would paste it;
//! what a page shows as output is compared with what was printed.
//!
//! To write the output of the programs into the pages: `GIT_FENCE_WRITE_DOCS=1 cargo test --test it pages`.

mod block;
mod references;
mod transcript;

use crate::support::{any_git, fixture, text};
use block::{Step, Turn};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Directories of the pages that lie in the scene instead.
const PLACES: [&str; 5] = ["/srv/", "/backup/", "/var/lib/", "/etc/", "/usr/local/"];

/// Before what a marker says in the output: a character that no program prints.
const MARK: char = '\u{1e}';

/// The tests, one for each page, and the list of the pages.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            run_page($page);
        })*
    };
}

pages! {
    readme: "README.md",
    agents: "docs/agents.md",
    json: "docs/json.md",
    codes: "docs/codes.md",
    concepts: "docs/concepts.md",
    contents: "docs/README.md",
    environment: "docs/environment.md",
    families: "docs/families.md",
    files: "docs/files.md",
    how_it_works: "docs/how-it-works.md",
    installing: "docs/installing.md",
    log: "docs/log.md",
    operations: "docs/operations.md",
    packages: "docs/packages.md",
    performance: "docs/performance.md",
    proof: "docs/proof.md",
    reading_the_log: "docs/reading-the-log.md",
    recipe_ci: "docs/recipes/ci.md",
    recipe_coding_agents: "docs/recipes/coding-agents.md",
    recipe_cron: "docs/recipes/cron.md",
    recipe_enforce: "docs/recipes/enforce.md",
    recipe_from_a_hook: "docs/recipes/from-a-hook.md",
    recipe_hosted: "docs/recipes/hosted.md",
    recipe_many: "docs/recipes/many.md",
    recipe_restore: "docs/recipes/restore.md",
    recipe_systemd: "docs/recipes/systemd.md",
    recipes: "docs/recipes/README.md",
    schedules: "docs/schedules.md",
    servers: "docs/servers.md",
    settings: "docs/settings.md",
    stores: "docs/stores/README.md",
    stores_etcd: "docs/stores/etcd.md",
    stores_firestore: "docs/stores/firestore.md",
    stores_http: "docs/stores/http.md",
    stores_journeys: "docs/stores/journeys.md",
    stores_postgresql: "docs/stores/postgresql.md",
    stores_redis: "docs/stores/redis.md",
    tutorial: "docs/tutorial.md",
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_page_is_left_out() {
    let mut found = vec!["README.md".to_owned()];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension() {
                _ if entry.is_dir() => folders.push(entry),
                Some(md) if md == "md" => {
                    found.push(text(entry.strip_prefix(root()).unwrap().as_os_str().as_encoded_bytes()));
                }
                _ => {}
            }
        }
    }
    found.sort_unstable();
    let mut listed = PAGES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed, "the pages, and those that are run");
}

/// How much of the pages is run: shown by `cargo test --test it pages::count -- --nocapture`.
#[test]
fn count_of_what_is_run() {
    let (mut run, mut files, mut not_run) = (0, 0, Vec::new());
    for page in PAGES {
        for step in block::steps(&fs::read_to_string(root().join(page)).unwrap()).unwrap() {
            match step {
                Step::Script { .. } | Step::Session { .. } => run += 1,
                Step::File { .. } => files += 1,
                Step::NotRun { line, reason } => not_run.push(format!("{page}:{line}: {reason}")),
            }
        }
    }
    println!(
        "{run} blocks are run, {files} files are used by them, {} are not run:\n{}",
        not_run.len(),
        not_run.join("\n")
    );
    assert!(run > not_run.len(), "{run} run, {} not", not_run.len());
}

fn run_page(page: &str) {
    let path = root().join(page);
    let content = fs::read_to_string(&path).unwrap();
    let steps = block::steps(&content).unwrap_or_else(|wrong| panic!("{page}: {wrong}"));
    let scene = Scene::new();
    let outputs = scene.play(page, &steps);
    let turns = steps.iter().filter_map(|step| match step {
        Step::Session { turns, .. } => Some(turns),
        _ => None,
    });
    let mut wrong: Vec<(&Turn, &Vec<String>)> = Vec::new();
    for turn in turns.flatten() {
        let printed = outputs.iter().find(|(line, _)| *line == turn.line).map(|(_, printed)| printed);
        let printed = printed.unwrap_or_else(|| panic!("{page}:{}: was not run", turn.line));
        if !transcript::agrees(&turn.output, printed) {
            wrong.push((turn, printed));
        }
    }
    if std::env::var_os("GIT_FENCE_WRITE_DOCS").is_some() {
        return fs::write(path, with_outputs(&content, &wrong)).unwrap();
    }
    let told = wrong.iter().map(|(turn, printed)| {
        format!(
            "{page}:{}: $ {}\n  shown:\n{}\n  printed:\n{}\n",
            turn.line,
            turn.command,
            turn.output.join("\n"),
            printed.join("\n")
        )
    });
    assert!(wrong.is_empty(), "{}", told.collect::<String>());
}

/// The page with what was printed in place of what it shows.
fn with_outputs(content: &str, wrong: &[(&Turn, &Vec<String>)]) -> String {
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    for (turn, printed) in wrong.iter().rev() {
        let first = turn.line - 1 + turn.command.lines().count();
        lines.splice(first..first + turn.output.len(), printed.iter().cloned());
    }
    lines.join("\n") + "\n"
}

/// A machine for one page: a home, a server's directories, the built programs on the PATH.
struct Scene {
    dir: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::Builder::new().prefix("git-fence-page-").tempdir().unwrap();
        for name in
            ["home", "steps", "bin", "srv/git", "backup", "var/lib/node_exporter/textfile", "etc", "usr/local/bin"]
        {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for program in [
            env!("CARGO_BIN_EXE_git-fence-hook"),
            env!("CARGO_BIN_EXE_git-fence"),
            env!("CARGO_BIN_EXE_git-remote-fence"),
        ] {
            let name = Path::new(program).file_name().unwrap();
            std::os::unix::fs::symlink(program, dir.path().join("bin").join(name)).unwrap();
        }
        Scene { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The text with its directories in the scene.
    fn placed(&self, text: &str) -> String {
        let mut placed = text.to_owned();
        for place in PLACES {
            let here = format!("{}{place}", self.dir.path().display());
            for before in [" ", "'", "\"", "=", ">", "\n", "(", "file://"] {
                placed = placed.replace(&format!("{before}{place}"), &format!("{before}{here}"));
            }
            if placed.starts_with(place) {
                placed = placed.replacen(place, &here, 1);
            }
        }
        placed
    }

    /// Runs all steps in one shell, and returns what each command of a session printed, by its line.
    fn play(&self, page: &str, steps: &[Step]) -> Vec<(usize, Vec<String>)> {
        let mut script = format!(". {}\n", fixture("scene.sh").display());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Script { line, text } => script += &self.part(number, *line, text, true),
                Step::Session { turns, .. } => {
                    script.extend(turns.iter().map(|turn| self.part(number, turn.line, &turn.command, false)));
                }
                Step::File { path, text } => {
                    let name = self.path(&format!("steps/{number}.file"));
                    fs::write(&name, self.placed(text)).unwrap();
                    script += &format!("install -D -m 755 {} '{}'\n", name.display(), self.placed(path));
                }
                Step::NotRun { .. } => {}
            }
        }
        let printed = self.shell(&script);
        self.parted(page, &printed)
    }

    /// The lines of the shell for one part, with a marker before and after.
    fn part(&self, number: usize, line: usize, text: &str, must_succeed: bool) -> String {
        let name = self.path(&format!("steps/{number}-{line}"));
        fs::write(&name, self.placed(text)).unwrap();
        let mark = |what: &str| format!("printf '{MARK}{what} {line}\\n'");
        // A command may show the exit code of the one before it.
        let run = if must_succeed {
            format!("set -e; . {}; set +e", name.display())
        } else {
            format!("(exit ${{status:-0}}); . {}; status=$?", name.display())
        };
        format!("{}\n{run}\n{}\n", mark("begin"), mark("end"))
    }

    fn shell(&self, script: &str) -> String {
        let out = self.path("out");
        let mut bash = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            bash.env_remove(name);
        }
        let git = any_git();
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{}:{path}", self.path("bin").display(), git.dir().display()))
            .env("HOME", self.path("home"))
            .env("SCENE", self.dir.path())
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "dumb")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(self.path("home"));
        let both = fs::File::create(&out).unwrap();
        fs::write(self.path("page.sh"), script).unwrap();
        bash.stdin(Stdio::null()).stdout(both.try_clone().unwrap()).stderr(both);
        bash.arg(self.path("page.sh")).status().unwrap();
        text(&fs::read(out).unwrap()).replace(&self.dir.path().display().to_string(), "")
    }

    /// The output between the markers. A part without an end has ended the shell.
    fn parted(&self, page: &str, printed: &str) -> Vec<(usize, Vec<String>)> {
        let mut parts = Vec::new();
        for part in printed.split(&format!("{MARK}begin ")).skip(1) {
            let (line, rest) = part.split_once('\n').unwrap();
            let Some((body, _)) = rest.split_once(&format!("{MARK}end ")) else {
                panic!("{page}:{line}: a command of this block failed\n{rest}");
            };
            // What did not end its line is followed by the marker itself.
            parts.push((line.parse().unwrap(), body.lines().map(|line| line.trim_end().to_owned()).collect()));
        }
        parts
    }
}
