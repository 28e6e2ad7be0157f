//! `git fence status --watch`: the status, kept up to date until the command is interrupted.

use crate::{commands::context::duration, failure::Failure};
use git_fence_system::screen::Screen;
use std::{thread, time::Duration};

/// Each look is a connection to the remote.
const SHORTEST: Duration = Duration::from_secs(1);

/// Shows what `read` returns every so often. A remote that does not answer is shown, and asked again; `on_trouble`
/// makes the text for it.
pub(crate) fn watch(
    every: &str,
    mut read: impl FnMut() -> Result<String, Failure>,
    on_trouble: impl Fn(&Failure) -> String,
) -> Result<(), Failure> {
    let every = duration(every, "--watch")?.max(SHORTEST);
    let mut screen = Screen::on_stdout();
    loop {
        let text = match read() {
            Ok(text) => text,
            Err(failure) if failure.is_unreachable() || matches!(failure, Failure::Busy { .. }) => on_trouble(&failure),
            Err(other) => return Err(other),
        };
        // Whoever reads it has gone.
        if screen.show(&text).is_err() {
            return Ok(());
        }
        thread::sleep(every);
    }
}
