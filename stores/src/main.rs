//! `git-fence-store`: talks to the engines that keep leases, for `git fence`.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_fence_stores::main()
}
