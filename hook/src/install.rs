//! Putting the gate into a repository.

use crate::{
    clock::Patience,
    failure::Failure,
    files::FenceDir,
    process,
    repository::Repository,
    settings,
    store::Store,
    surroundings::{Environment, os_user},
};
use std::{
    fs,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// What tells our hook from another's.
const OURS: &str = "# git-fence: the gate of this repository";
/// Linux cuts the first line of a script at 255 bytes.
const LONGEST_SHEBANG: usize = 250;

/// `git-fence-hook install`.
pub(crate) fn run(dir: &Path, environment: &Environment) -> Result<(), Failure> {
    let repository = Repository::find(dir, environment)?;
    // Settings that do not parse would refuse every push: say so now.
    settings::read(&repository.config)?;
    let hook = hook_path(&repository)?;
    let content = hook_content()?;
    let existing = existing_hook(&hook)?;
    if let Existing::Others = existing {
        return Err(Failure::Other {
            what: format!("there is another pre-receive hook, '{}', and nothing was changed", hook.display()),
            hint: "call  git-fence-hook pre-receive  as the last step of that hook, or move it away".to_owned(),
        });
    }

    // The log first: a hook without its log refuses every push, a log without its hook refuses none.
    let fence_dir = FenceDir::at(repository.fence_dir());
    let log_was_there = fence_dir.log().exists();
    let boot = process::here().map_err(Failure::io("read", "/proc"))?.boot;
    Store::begin(&fence_dir, &os_user(), &boot, &Patience::of(Duration::from_secs(30), Instant::now()))?;
    let options_were_on = repository.setting("receive.advertisePushOptions").as_deref() == Some("true");
    if !options_were_on {
        configure(&repository.common_dir, "receive.advertisePushOptions", "true")?;
    }
    let hook_was_there = matches!(existing, Existing::Ours(old) if old == content) && is_executable(&hook);
    if !hook_was_there {
        write_hook(&hook, &content)?;
    }

    let mut out = io::stdout().lock();
    let word = |was_there: bool| if was_there { "already there" } else { "done" };
    writeln!(out, "log           {}  {}", fence_dir.log().display(), word(log_was_there))?;
    writeln!(out, "push options  receive.advertisePushOptions = true  {}", word(options_were_on))?;
    writeln!(out, "hook          {}  {}", hook.display(), word(hook_was_there))?;
    Ok(())
}

/// What is wrong with the gate of a repository, as far as pushes would not even come to it.
pub(crate) fn flaws(repository: &Repository) -> Result<Vec<String>, Failure> {
    let hook = hook_path(repository)?;
    let mut flaws = Vec::new();
    let mend = "mend it with  git-fence-hook install";
    match existing_hook(&hook)? {
        Existing::None => flaws.push(format!("there is no hook '{}': no push is checked; {mend}", hook.display())),
        Existing::Ours(_) if !is_executable(&hook) => {
            flaws.push(format!("the hook '{}' is not executable: no push is checked; {mend}", hook.display()));
        }
        Existing::Ours(_) => {}
        Existing::Others => flaws.push(format!(
            "the hook '{}' is not the gate's own: pushes are checked only if it calls  git-fence-hook pre-receive",
            hook.display()
        )),
    }
    if repository.setting("receive.advertisePushOptions").as_deref() != Some("true") {
        flaws.push(format!("push options are not advertised: only trailers carry tokens; {mend}"));
    }
    Ok(flaws)
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

enum Existing {
    None,
    Ours(Vec<u8>),
    Others,
}

fn existing_hook(hook: &Path) -> Result<Existing, Failure> {
    match fs::symlink_metadata(hook) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Existing::None),
        Err(e) => return Err(Failure::io("read", hook)(e)),
        Ok(found) if !found.is_file() => return Ok(Existing::Others),
        Ok(_) => {}
    }
    let content = fs::read(hook).map_err(Failure::io("read", hook))?;
    let is_ours = content.split(|b| *b == b'\n').any(|line| line == OURS.as_bytes());
    Ok(if is_ours { Existing::Ours(content) } else { Existing::Others })
}

/// Where git looks for the hook: `core.hooksPath` counts, and a relative one from where hooks run.
fn hook_path(repository: &Repository) -> Result<PathBuf, Failure> {
    let asked = git(&repository.git_dir, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"])?;
    let path = asked.strip_suffix(b"\n").unwrap_or(&asked);
    Ok(Path::new(std::ffi::OsStr::from_bytes(path)).join("pre-receive"))
}

/// The hook is a script whose interpreter is this program: no shell in between, and if the program
/// is ever gone, git cannot start the hook and refuses the push. A symbolic link would then dangle,
/// and git would take that for "no hook" and let everything through.
fn hook_content() -> Result<Vec<u8>, Failure> {
    let program = std::env::current_exe().map_err(Failure::io("find", "this program"))?;
    let path = program.as_os_str().as_bytes();
    let explanation = format!(
        "{OURS}\n# Written by 'git-fence-hook install'. Every push to guarded refs passes through it.\n\
         # Do not edit; settings are in git's configuration, under fence.*\n"
    );
    let fits = path.len() + " pre-receive".len() < LONGEST_SHEBANG && !path.iter().any(u8::is_ascii_whitespace);
    let first = if fits {
        [b"#!", path, b" pre-receive\n"].concat()
    } else {
        [b"#!/bin/sh\nexec ", &shell_quoted(path)[..], b" pre-receive\n"].concat()
    };
    Ok([&first[..], explanation.as_bytes()].concat())
}

fn shell_quoted(path: &[u8]) -> Vec<u8> {
    let inner: Vec<u8> = path.iter().flat_map(|b| if *b == b'\'' { b"'\\''".to_vec() } else { vec![*b] }).collect();
    [b"'", &inner[..], b"'"].concat()
}

/// Written beside and renamed into place, executable from its first moment.
fn write_hook(hook: &Path, content: &[u8]) -> Result<(), Failure> {
    let dir = hook.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(Failure::io("make", dir))?;
    let new = hook.with_file_name("pre-receive.git-fence-new");
    fs::write(&new, content).map_err(Failure::io("write", &new))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(Failure::io("make executable", &new))?;
    fs::rename(&new, hook).map_err(Failure::io("write", hook))
}

fn configure(git_dir: &Path, key: &str, value: &str) -> Result<(), Failure> {
    git(git_dir, &["config", key, value]).map(|_| ())
}

fn git(git_dir: &Path, args: &[&str]) -> Result<Vec<u8>, Failure> {
    let failed = |why: String| Failure::Git { doing: args.join(" "), why };
    // In the directory where receive-pack runs hooks: a relative core.hooksPath counts from there.
    let ran = Command::new("git").arg("--git-dir=.").args(args).current_dir(git_dir).output();
    let ran = ran.map_err(|e| failed(e.to_string()))?;
    if !ran.status.success() {
        return Err(failed(git_fence_core::text::one_line(&ran.stderr, 200)));
    }
    Ok(ran.stdout)
}
