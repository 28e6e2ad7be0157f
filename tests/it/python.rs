//! The module for Python programs, `contrib/python/git_fence.py`: its own tests, against the built programs.

use crate::support::{
    World, gits,
    needs::{Need, lacks},
    text,
};
use std::{path::Path, process::Command};

#[test]
fn python_module_passes_its_tests() {
    if lacks(&[Need::Python]) {
        return;
    }
    for git in gits() {
        let world = World::bare(&git, &[]);
        let mut python = Command::new("python3");
        world.hermetic(&mut python);
        let path = python.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path).unwrap().to_owned();
        let ours = Path::new(env!("CARGO_BIN_EXE_git-fence")).parent().unwrap().to_owned();
        let path = std::env::join_paths(std::env::split_paths(&path).chain([ours])).unwrap();
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/python");
        python.args(["-B", "-W", "error", "test_git_fence.py"]).current_dir(module);
        let ran = python.env("PATH", path).env("TMPDIR", world.path(".")).output().unwrap();
        let said = text(&ran.stderr);
        assert!(ran.status.success(), "{git:?}\n{said}");
        // A file without tests succeeds, too.
        let count = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
        assert!(count.is_some_and(|count| count >= 14), "{said}");
    }
}
