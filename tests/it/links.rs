//! Links that the owner of the repository has placed where others write: no process follows them, not even root.

use crate::support::{
    World, any_git,
    needs::{Need, lacks},
    text, tree,
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

const COMMANDS: [&[&str]; 8] = [
    &["raise", "--to", "30", "--reason", "x"],
    &["rotate"],
    &["repair", "--yes", "--reason", "x"],
    &["lower", "--to", "3", "--expect", "30", "--reason", "x"],
    &["install", "--observe"],
    &["uninstall"],
    &["install", "--allow-tokenless"],
    &["rotate"],
];

/// Files of other owners: names, modes, owners and content must not change.
fn victims(world: &World) -> Vec<(String, u32, Vec<u8>, u32)> {
    let dir = world.path("victims");
    let owner = |name: &str| fs::symlink_metadata(dir.join(name)).unwrap().uid();
    tree(&dir).into_iter().map(|(name, mode, content)| (name.clone(), mode, content, owner(&name))).collect()
}

fn world_with_victims() -> World {
    let world = World::new(&any_git());
    for token in 1..=5 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    fs::create_dir_all(world.path("victims/dir")).unwrap();
    fs::create_dir(world.path("victims/empty")).unwrap();
    for name in ["file", "dir/pre-receive", "dir/mutex", "dir/audit.jsonl"] {
        let path = world.path("victims").join(name);
        fs::write(&path, "#!/bin/sh\n# precious\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    world
}

/// The repository belongs to another user: what root creates there is given to the owner.
fn give_away(world: &World) {
    if !lacks(&[Need::AnotherUser]) {
        world.ok(Command::new("chown").arg("-hR").arg("65534:65534").arg(world.server()));
    }
}

fn run_all(world: &World) -> String {
    let mut said = String::new();
    for args in COMMANDS {
        let ran = world.hook_program().args(args).arg(world.server()).output().unwrap();
        said += &text(&ran.stderr);
    }
    said
}

fn put(link: &Path, target: &Path) {
    let _ = fs::remove_file(link);
    let _ = fs::remove_dir_all(link);
    symlink(target, link).unwrap();
}

#[test]
fn no_write_to_fence_or_hooks_follows_a_link() {
    let names = [
        "fence/mutex",
        "fence/writer",
        "fence/installing",
        "fence/audit.jsonl",
        "fence/audit.new",
        "fence/state.json",
        "fence/state.new",
        "fence/installed.json",
        "fence/installed.new",
        "hooks/pre-receive.git-fence-new",
    ];
    for name in names {
        for target in ["victims/file", "victims/not-there"] {
            let world = world_with_victims();
            let before = victims(&world);
            put(&world.server().join(name), &world.path(target));
            world.push_token("main", "6");
            put(&world.server().join(name), &world.path(target));
            give_away(&world);
            run_all(&world);
            assert!(victims(&world) == before, "{name} -> {target}");
        }
    }
}

#[test]
fn no_directory_is_opened_through_a_link() {
    for (name, target) in [
        ("fence", "victims/dir"),
        ("fence", "victims/empty"),
        ("hooks", "victims/dir"),
        ("hooks", "victims/empty"),
        ("hooks/kept-by-git-fence", "victims/empty"),
        ("hooks/pre-receive.d", "victims/dir"),
    ] {
        let world = world_with_victims();
        if name.contains('/') {
            world.write_hook("pre-receive", "for hook in hooks/pre-receive.d/*; do :; done");
        }
        let before = victims(&world);
        put(&world.server().join(name), &world.path(target));
        give_away(&world);
        let said = run_all(&world);
        assert!(victims(&world) == before, "{name} -> {target}");
        assert!(said.contains("is a link"), "{name} -> {target}: {said}");
    }
}

/// The name that the next push or rotation will use can be guessed.
#[test]
fn link_in_place_of_a_new_file_is_not_followed() {
    let world = world_with_victims();
    world.push_token("main", "6").assert_landed();
    let before = victims(&world);
    let next = world.audit().last().unwrap()["seq"].as_u64().unwrap();
    for seq in next..next + 20 {
        for name in [format!("audit-{seq:012}.jsonl"), format!("plan-{seq}.jsonl"), format!("plan-{seq}.new")] {
            put(&world.fence_file(&name), &world.path("victims/not-there"));
        }
    }
    let log = world.fence_file("audit.jsonl");
    let length = fs::metadata(&log).unwrap().len();
    fs::write(&log, [&fs::read(&log).unwrap()[..], b"{\"torn"].concat()).unwrap();
    for name in [format!("torn-{length}"), format!("torn-{length}-2"), format!("torn-{length}.new")] {
        put(&world.fence_file(&name), &world.path("victims/file"));
    }
    let refspecs: Vec<String> = (0..100).map(|n| format!("HEAD:refs/heads/many/{n}")).collect();
    let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
    world.push(&refspecs, &["fence-token=8"]).assert_landed();
    give_away(&world);
    run_all(&world);
    assert!(victims(&world) == before);
}

/// Opening a pipe blocks until its other end is opened, and a device is not a file.
#[test]
fn only_regular_files_are_opened_and_nothing_hangs() {
    for name in ["mutex", "writer", "audit.jsonl", "state.json", "installed.json", "audit.new", "installing"] {
        let world = world_with_victims();
        let path = world.fence_file(name);
        let _ = fs::remove_file(&path);
        world.ok(Command::new("mkfifo").arg(&path));
        world.push_token("main", "6");
        let said = run_all(&world);
        let is_ours_to_replace = ["audit.new", "state.new"].contains(&name);
        assert!(is_ours_to_replace || said.contains("not a regular file"), "{name}: {said}");
    }
}

/// A hard link needs only a name: if the system lets every user create one, root must not write through it.
#[test]
fn root_writes_to_no_foreign_file_through_a_hard_link() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = world_with_victims();
    give_away(&world);
    let before = victims(&world);
    for name in ["mutex", "writer", "audit.new", "installed.new", "installing"] {
        let path: PathBuf = world.fence_file(name);
        let _ = fs::remove_file(&path);
        fs::hard_link(world.path("victims/file"), &path).unwrap();
        run_all(&world);
        let _ = fs::remove_file(&path);
        assert!(victims(&world) == before, "{name}");
    }
}

/// The settings are changed as the repository's owner: root would write to the target of a link.
#[test]
fn root_changes_no_settings_through_a_link() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = world_with_victims();
    give_away(&world);
    let config = world.server().join("config");
    let victim = world.path("victims/config");
    fs::copy(&config, &victim).unwrap();
    let before = victims(&world);
    put(&config, &victim);
    world.hook_program().args(["install", "--observe"]).arg(world.server()).output().unwrap();
    assert!(victims(&world) == before);
}
