//! The remote helper that carries a plain `git push` inside `git fence run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_fence_client::remote_helper()
}
