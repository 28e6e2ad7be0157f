//! The manual pages and the completions: rendered by man and driven through bash, as their users do it.

use crate::support::{
    agents::Remote,
    any_git,
    needs::{Need, git_completion, lacks},
    text,
};
use std::{
    path::Path,
    process::{Command, Output},
};

/// The text of a page at 80 columns, and what the formatter has to say about it.
fn rendered(page: &Path) -> (String, String) {
    let man =
        Command::new("man").args(["--warnings", "-l"]).arg(page).env("MANWIDTH", "80").env("LC_ALL", "C").output();
    let man = man.unwrap();
    assert!(man.status.success(), "{}: {}", page.display(), text(&man.stderr));
    (text(&man.stdout), text(&man.stderr))
}

/// Breaks of lines do not count: words are compared.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn long_flags(help: &str) -> Vec<String> {
    let is_flag = |word: &&str| word.starts_with("--") && word.len() > 2;
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let flags = lines.filter_map(|line| line.split_whitespace().find(is_flag));
    flags.map(|flag| flag.trim_end_matches(',').split(['=', '[']).next().unwrap().to_owned()).collect()
}

fn help_of(program: &str, command: &[&str]) -> String {
    let help = Command::new(program).args(command).arg("--help").output().unwrap();
    assert!(help.status.success(), "{program} {command:?}");
    text(&help.stdout)
}

/// The commands that the help of a program lists.
fn commands_in(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

const PROGRAMS: [(&str, &str, &str); 2] = [
    ("git-fence", env!("CARGO_BIN_EXE_git-fence"), "1"),
    ("git-fence-hook", env!("CARGO_BIN_EXE_git-fence-hook"), "8"),
];

#[test]
fn every_command_has_a_page_that_renders_without_a_warning_and_has_its_flags() {
    if lacks(&[Need::Man]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    let mut count = 0;
    for (name, program, section) in PROGRAMS {
        let help = help_of(program, &[]);
        let commands = commands_in(&help);
        assert!(commands.len() > 5, "{commands:?}");
        for command in [None].into_iter().chain(commands.iter().map(Some)) {
            let page = command.map_or(name.to_owned(), |command| format!("{name}-{command}"));
            let path = dir.path().join(format!("share/man/man{section}/{page}.{section}"));
            let (shown, warnings) = rendered(&path);
            assert_eq!(warnings, "", "{page}");
            assert!(shown.lines().all(|line| line.chars().count() <= 80), "{page}: {shown}");
            assert!(words(&shown).contains(&format!("NAME {page} - ")), "{page}: {shown}");
            let command: Vec<&str> = command.iter().map(|command| command.as_str()).collect();
            for flag in long_flags(&help_of(program, &command)) {
                assert!(shown.contains(&flag), "{page} lacks {flag}: {shown}");
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} pages");
}

#[test]
fn git_fence_help_shows_the_page_of_an_installed_program() {
    if lacks(&[Need::Man]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    let (world, man) = (Remote::Bare.world(&any_git()), dir.path().join("share/man"));
    let mut help = world.agent("a").fence(&["--help"]);
    // Not installed: git looks in the manual, and there is none.
    help.env("LC_ALL", "C").env("MANPATH", dir.path().join("nothing"));
    assert!(!help.output().unwrap().status.success());
    let shown = help.env("MANPATH", man).output().unwrap();
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(words(&text(&shown.stdout)).contains("NAME git-fence - Push to a shared repository"), "{shown:?}");
}

#[test]
fn help_without_man_is_there_and_fits_80_columns() {
    let world = Remote::Bare.world(&any_git());
    let agent = world.agent("a");
    for args in [&["-h"][..], &["help"], &["help", "run"], &["run", "-h"], &["run", "--help"]] {
        let help = agent.fence(args).output().unwrap();
        assert!(help.status.success(), "{args:?}: {}", text(&help.stderr));
        assert!(text(&help.stdout).contains("Usage: git fence"), "{args:?}: {}", text(&help.stdout));
    }
    for (_, program, _) in PROGRAMS {
        let all = help_of(program, &[]);
        let commands = commands_in(&all);
        for command in [None].into_iter().chain(commands.iter().map(Some)) {
            let command: Vec<&str> = command.iter().map(|command| command.as_str()).collect();
            let help = help_of(program, &command);
            let long = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{program} {command:?} --help");
        }
    }
}

/// What bash offers for the last word of a line, with git's own completion.
fn offered(prefix: &Path, line: &[&str]) -> Vec<String> {
    let script = r#"
        . "$GIT_COMPLETION" && . "$PREFIX/share/bash-completion/completions/git-fence" || exit 1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*"
        COMP_POINT=${#COMP_LINE}
        COMPREPLY=()
        __git_wrap__git_main
        [ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", script, "bash"]).args(line);
    bash.env("GIT_COMPLETION", git_completion().unwrap()).env("PREFIX", prefix);
    lines(&bash.output().unwrap())
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(|word| word.trim().to_owned()).collect()
}

#[test]
fn bash_completes_git_fence_with_gits_own_completion() {
    if lacks(&[Need::GitCompletion]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    let world = Remote::Bare.world(&any_git());
    let agent = world.agent("a");
    let clone = agent.path("");
    let clone = clone.to_str().unwrap();
    let offers: [(&[&str], &[&str]); 8] = [
        (&["git", "fence", "ru"], &["run"]),
        (&["git", "-C", clone, "fence", "sta"], &["status"]),
        (&["git", "fence", "run", "--if"], &["--if-held"]),
        (&["git", "fence", "run", "--if-held", ""], &["skip", "wait", "fail"]),
        (&["git", "fence", "kee"], &[]),
        (&["git", "-C", clone, "fence", "status", "--remote", ""], &["origin"]),
        (&["git", "-C", clone, "fence", "push", "or"], &["origin"]),
        (&["git", "fence", "run", "--", "tr", "--if"], &[]),
    ];
    for (line, expected) in offers {
        assert_eq!(offered(dir.path(), line), expected, "{line:?}");
    }
    assert!(offered(dir.path(), &["git", "fence", "run", "--", "mkdi"]).contains(&"mkdir".to_owned()));
}

#[test]
fn bash_completes_the_programs_themselves() {
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    let script = r#"
        . "$PREFIX/share/bash-completion/completions/$1" || exit 1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        ${FUNCTION} "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let offers: [(&str, &[&str], &str); 3] = [
        ("_git__fence", &["git-fence", "acquire", "--tt"], "--ttl"),
        ("_git__fence__hook", &["git-fence-hook", "doc"], "doctor"),
        ("_git__fence__hook", &["git-fence-hook", "audit", "--rej"], "--rejected"),
    ];
    for (function, line, expected) in offers {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", script, "bash"]).args(line);
        bash.env("PREFIX", dir.path()).env("FUNCTION", function);
        assert_eq!(lines(&bash.output().unwrap()), [expected], "{line:?}");
    }
}

#[test]
fn fish_completes_git_fence_and_the_program_itself() {
    if lacks(&[Need::Fish]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_git-fence")).parent().unwrap();
    let path = [programs.as_os_str(), ":".as_ref(), &std::env::var_os("PATH").unwrap()];
    for (line, expected) in [
        ("git-fence acq", "acquire"),
        ("git fence acq", "acquire"),
        ("git fence run --if-held ski", "skip"),
        ("git-fence-hook doct", "doctor"),
    ] {
        let mut fish = Command::new("fish");
        fish.args(["-c", &format!("complete -C '{line}'")]);
        fish.env("HOME", dir.path()).env("XDG_DATA_DIRS", format!("{}/share:/usr/share", dir.path().display()));
        fish.env("PATH", path.iter().copied().collect::<std::ffi::OsString>());
        let offered = fish.output().unwrap();
        let first: Vec<String> =
            text(&offered.stdout).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
        assert_eq!(first, [expected], "{line}: {}", text(&offered.stderr));
    }
}

#[test]
fn zsh_reads_its_completions() {
    if lacks(&[Need::Zsh]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    git_fence_manual::write(dir.path()).unwrap();
    for file in ["_git-fence", "_git-fence-hook"] {
        let file = dir.path().join("share/zsh/site-functions").join(file);
        let read = Command::new("zsh").arg("-n").arg(&file).output().unwrap();
        assert!(read.status.success(), "{}: {}", file.display(), text(&read.stderr));
    }
}
