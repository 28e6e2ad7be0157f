//! The packages: what is in them, and that they work on a system that has git and nothing else of ours.

use crate::support::{
    needs::{Need, lacks},
    text,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ok(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {}{}", text(&ran.stdout), text(&ran.stderr));
    text(&ran.stdout)
}

/// A package of the programs in `programs`.
fn package(dir: &TempDir, programs: &Path) -> PathBuf {
    let manual = dir.path().join("manual");
    git_fence_manual::write(&manual).unwrap();
    let mut deb = Command::new(root().join("packaging/deb.sh"));
    deb.arg("--programs").arg(programs).arg("--manual").arg(manual).arg("--out").arg(dir.path()).arg("--fast");
    let printed = ok(&mut deb);
    let path = PathBuf::from(printed.trim());
    assert!(path.is_file(), "{printed}");
    path
}

fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_git-fence")).parent().unwrap()
}

fn unpack(package: &Path, tree: &Path) {
    ok(Command::new("dpkg-deb").arg("-x").arg(package).arg(tree));
}

/// A tree with git and without us.
fn base(dir: &TempDir) -> PathBuf {
    let tree = dir.path().join("base");
    ok(Command::new(root().join("packaging/base.sh")).arg(&tree));
    tree
}

/// Runs a script in the tree as its root directory.
fn inside(tree: &Path, script: &str) -> String {
    let enter = "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
        exec chroot \"$0\" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root /bin/sh -c \"$1\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", enter]).arg(tree).arg(script);
    ok(&mut unshare)
}

/// What a new user does, with cron's PATH: a repository with a gate, a clone, a run that pushes twice, the log.
const JOURNEY: &str = "
    set -e
    git config --global user.name u && git config --global user.email u@example.org
    git config --global init.defaultBranch main
    git init -q --bare /srv/app.git
    git-fence-hook install /srv/app.git
    git clone -q /srv/app.git /tmp/clone 2>/dev/null
    cd /tmp/clone
    git commit -q --allow-empty -m one
    git fence run --owner nightly -- sh -c 'git push -q origin main && git commit -q --allow-empty -m two && git push -q origin main'
    git -C /srv/app.git log --format=%s main
    git-fence-hook audit /srv/app.git
    git-fence-hook doctor /srv/app.git
    git fence demo
    git fence demo --hookless
";

fn journey_works_in(tree: &Path) {
    assert!(!tree.join("usr/local").exists() && !tree.join("root/.cargo").exists());
    let said = inside(tree, JOURNEY);
    assert!(said.contains("two\none\n"), "{said}");
    assert!(said.contains("nightly"), "{said}");
    // One line each: the play is told on a terminal only.
    assert_eq!(said.lines().rev().take(2).filter(|line| line.starts_with("The promise held")).count(), 2, "{said}");
}

#[test]
fn debian_package_has_programs_pages_completions_and_licences() {
    if lacks(&[Need::Deb]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (package, tree) = (package(&dir, built()), dir.path().join("tree"));
    unpack(&package, &tree);
    for program in ["git-fence", "git-remote-fence", "git-fence-hook"] {
        let mode = fs::metadata(tree.join("usr/bin").join(program)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{program}");
    }
    for file in [
        "man/man1/git-fence.1.gz",
        "man/man1/git-fence-run.1.gz",
        "man/man8/git-fence-hook.8.gz",
        "bash-completion/completions/git-fence",
        "zsh/vendor-completions/_git-fence",
        "fish/vendor_completions.d/git-fence.fish",
        "doc/git-fence/LICENSE-MIT",
        "doc/git-fence/LICENSE-APACHE",
        "doc/git-fence/copyright",
        "doc/git-fence/changelog.gz",
    ] {
        let found = fs::metadata(tree.join("usr/share").join(file));
        assert!(found.as_ref().is_ok_and(|found| found.len() > 0), "{file}: {found:?}");
    }
    let fields = ok(Command::new("dpkg-deb").arg("-f").arg(&package));
    assert!(fields.contains("Depends: git (>= 1:2.39), libc6 (>= 2."), "{fields}");
    let version = ok(Command::new(tree.join("usr/bin/git-fence")).arg("--version"));
    assert!(fields.contains(&format!("Version: {}", version.trim().rsplit(' ').next().unwrap())), "{fields}{version}");
}

#[test]
fn unpacked_package_works_where_there_is_only_git() {
    if lacks(&[Need::Deb, Need::Chroot]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tree = base(&dir);
    let package = package(&dir, built());
    unpack(&package, &tree);
    // The libraries that the package names as its dependencies.
    for library in ["libc.so.6", "libgcc_s.so.1"] {
        let place = format!("/lib/{}-linux-gnu/{library}", std::env::consts::ARCH);
        fs::create_dir_all(tree.join(&place[1..]).parent().unwrap()).unwrap();
        fs::copy(&place, tree.join(&place[1..])).unwrap();
    }
    journey_works_in(&tree);
}

#[test]
fn static_programs_work_where_there_is_only_git_and_no_library_for_them() {
    if lacks(&[Need::Deb, Need::Chroot, Need::StaticBuild]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tree = base(&dir);
    let package = package(&dir, &root().join("target/static"));
    let fields = ok(Command::new("dpkg-deb").arg("-f").arg(&package));
    assert!(!fields.contains("libc6"), "{fields}");
    unpack(&package, &tree);
    for program in ["git-fence", "git-remote-fence", "git-fence-hook"] {
        let ldd = Command::new("ldd").arg(tree.join("usr/bin").join(program)).output().unwrap();
        let said = text(&ldd.stdout) + &text(&ldd.stderr);
        assert!(said.contains("statically linked") || said.contains("not a dynamic executable"), "{program}: {said}");
    }
    journey_works_in(&tree);
}
