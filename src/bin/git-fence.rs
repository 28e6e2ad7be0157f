//! `git fence`: takes and keeps a lease, and pushes with its token.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_fence_client::main()
}
