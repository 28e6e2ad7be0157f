//! `git-fence-hook`: git runs it as `pre-receive`, people run its commands.

fn main() -> std::process::ExitCode {
    git_fence_hook::main()
}
