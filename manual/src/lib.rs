//! The manual pages and shell completions of git-fence, made from the definitions of its command lines.
//!
//! The programs that are installed do not contain this: `cargo run -p git-fence-manual -- PREFIX` writes all files
//! below `PREFIX/share`, where man and the shells look for programs in `PREFIX/bin`. The same definitions make
//! `--help`, so page, completion and help cannot differ.

mod completions;
mod pages;

use clap::Command;
use std::{fs, io, path::Path};

/// A file below the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManualFile {
    /// Its path, relative to the prefix.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// All pages and completions.
pub fn files() -> io::Result<Vec<ManualFile>> {
    let mut files = pages::of(client(), "1", "git-fence")?;
    files.extend(pages::of(git_fence_hook::command_line(), "8", "git-fence server")?);
    files.extend(completions::of(&client()));
    files.extend(completions::of(&git_fence_hook::command_line()));
    Ok(files)
}

/// Writes them below `prefix`.
pub fn write(prefix: &Path) -> io::Result<()> {
    for ManualFile { path, content } in files()? {
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        fs::write(path, content)?;
    }
    Ok(())
}

/// The client by the name of its program; people write it as two words.
fn client() -> Command {
    git_fence_client::command_line().name("git-fence").bin_name("git fence")
}
