//! Shell completions, for the programs themselves and for `git fence`.

use crate::ManualFile;
use clap::Command;
use clap_complete::Shell;

/// Git's own completion calls `_git_fence` for `git fence`, with its words in `words`, and loads this file for that where
/// bash-completion is installed. The generated function expects those of a program of its own.
const FOR_GIT: &str = r#"
_git_fence() {
    local at=${__git_cmd_idx:-1}
    local command=${words[at+1]} i
    case "$prev" in
    --remote)
        __gitcomp_nl "$(__git_remotes)"
        return
        ;;
    esac
    if [[ $command == push && $cur != -* && $prev != -* && $cword -gt $((at + 1)) ]]; then
        # Remotes and refs, as for git push.
        local __git_cmd_idx=$((at + 1))
        __git_complete_remote_or_refspec
        return
    fi
    if [[ $command == run ]]; then
        for ((i = at + 2; i < cword; i++)); do
            if [[ ${words[i]} == -- ]]; then
                # The command is somebody else's: its name, and then files.
                [[ $prev != -- ]] || COMPREPLY=($(compgen -c -- "$cur"))
                return
            fi
        done
    fi
    local -a COMP_WORDS=(git-fence "${words[@]:at+1}")
    local COMP_CWORD=$((cword - at))
    _git__fence git-fence "$cur" "$prev"
}
"#;

/// The fish of Debian 12 does not find the completions of programs that git finds as its commands. This is read when fish
/// starts, because it belongs to git; later versions find them by themselves, and then offer nothing twice.
const FOR_GIT_IN_FISH: &str = "\
complete -c git -f -n '__fish_git_using_command fence' -a '(__fish_git_complete_custom_command fence)'
";

/// The completions of a program for bash, zsh and fish, where each looks for them.
pub(crate) fn of(program: &Command) -> Vec<ManualFile> {
    let name = program.get_name().to_owned();
    // The generators write one function per program, named for it, not for the two words that people write.
    let program = visible(program);
    let mut bash = with_reachable_commands(&generated(Shell::Bash, program.clone(), &name), &name);
    let file = |dir: &str, file: String, content: Vec<u8>| ManualFile { path: format!("share/{dir}/{file}"), content };
    let mut files = Vec::new();
    if name == "git-fence" {
        bash.extend_from_slice(FOR_GIT.as_bytes());
        files.push(file("fish/vendor_conf.d", format!("{name}.fish"), FOR_GIT_IN_FISH.into()));
    }
    files.extend([
        file("bash-completion/completions", name.clone(), bash),
        file("zsh/site-functions", format!("_{name}"), generated(Shell::Zsh, program.clone(), &name)),
        file("fish/vendor_completions.d", format!("{name}.fish"), generated(Shell::Fish, program, &name)),
    ]);
    files
}

fn generated(shell: Shell, mut program: Command, name: &str) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    script
}

/// The generator spells the name of a program with a hyphen in two ways, so that the script never finds what it knows of
/// a command.
fn with_reachable_commands(script: &[u8], name: &str) -> Vec<u8> {
    let script = String::from_utf8_lossy(script).into_owned();
    script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")).into_bytes()
}

/// The program as people see it: the generators offer hidden commands, too.
fn visible(command: &Command) -> Command {
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).map(visible);
    let about = command.get_about().cloned().unwrap_or_default();
    let copy = Command::new(command.get_name().to_owned()).about(about).args(command.get_arguments().cloned());
    let copy = copy.subcommands(subcommands);
    command.get_version().map(str::to_owned).into_iter().fold(copy, Command::version)
}
