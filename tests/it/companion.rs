//! Installing the companion beside existing hooks and in every layout.

use crate::support::{World, any_git, fixture, gits, tree, tree_without, write_script};
use std::{fs, os::unix::fs::symlink};

fn command(world: &World, name: &str) -> String {
    world.ok(world.hook_program().arg(name).arg(world.server()))
}

/// As in Gitea and Forgejo: each kind of hook runs a directory.
fn world_of_a_forge() -> World {
    let world = World::bare(&any_git(), &[]);
    for kind in ["pre-receive", "post-receive"] {
        fs::copy(fixture("dispatcher.sh"), world.hook(kind)).unwrap();
        fs::create_dir(world.hook(&format!("{kind}.d"))).unwrap();
        write_script(&world.hook(&format!("{kind}.d/forge")), "exit 0");
    }
    world
}

#[test]
fn dispatcher_runs_the_companion_first_and_the_gate_last() {
    let world = world_of_a_forge();
    // The name of the queue's hook sorts before letters.
    let undo = "while read -r old new ref; do git update-ref -d \"$ref\"; done; exit 0";
    write_script(&world.hook("post-receive.d/01-queue"), undo);
    let before = tree_without(&world.server(), &["fence"]);
    command(&world, "install");
    assert!(world.hook("post-receive.d/00-git-fence").exists());
    assert!(world.hook("pre-receive.d/zz-git-fence").exists());
    let again = tree(&world.server());
    command(&world, "install");
    assert!(tree(&world.server()) == again, "a second install changes nothing");
    world.push_token("queue", "7").assert_landed();
    assert_eq!(world.server_ref("refs/heads/queue"), None, "it was deleted");
    world.push_token("queue", "7").assert_refused("FENCE-STALE");
    let settled = world.events("push.settled");
    assert_eq!((settled.len(), &settled[0]["evidence"]), (1, &"reported".into()));
    // The forge rewrites its dispatchers. That does not harm the gate, but a missing dispatcher does.
    fs::remove_file(world.hook("post-receive.d/00-git-fence")).unwrap();
    world.push_token("queue", "8").assert_refused("FENCE-BROKEN");
    command(&world, "install");
    world.push_token("queue", "8").assert_landed();
    command(&world, "uninstall");
    assert_eq!(tree_without(&world.server(), &["fence", "objects", "refs"]), tree_of(&before, &["objects", "refs"]));
}

fn tree_of(tree: &[(String, u32, Vec<u8>)], without: &[&str]) -> Vec<(String, u32, Vec<u8>)> {
    let stays = |path: &str| !without.iter().any(|name| path == *name || path.starts_with(&format!("{name}/")));
    tree.iter().filter(|(path, ..)| stays(path)).cloned().collect()
}

#[test]
fn existing_post_receive_runs_after_the_companion_and_is_restored_exactly() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.write_hook("pre-receive", "echo pre >>ran; cat >/dev/null");
        world.write_hook("post-receive", "echo \"$0|$#|$GIT_PUSH_OPTION_0\" >>ran; cat >input; exit 7");
        world.write_hook("helper", "exit 0");
        let before = tree_without(&world.server(), &["fence"]);
        command(&world, "install");
        world.push_token("main", "5").assert_landed();
        let tip = world.server_ref("refs/heads/main").unwrap();
        let ran = fs::read_to_string(world.server().join("ran")).unwrap();
        assert_eq!(ran, "pre\nhooks/kept-by-git-fence/post-receive|0|fence-token=5\n", "each runs once");
        let zero = "0".repeat(tip.len());
        let input = fs::read_to_string(world.server().join("input")).unwrap();
        assert_eq!(input, format!("{zero} {tip} refs/heads/main\n"));
        assert_eq!(world.events("push.settled").len(), 1);
        command(&world, "uninstall");
        let after = tree_without(&world.server(), &["fence", "objects", "refs", "ran", "input"]);
        assert_eq!(after, tree_of(&before, &["objects", "refs"]));
    }
}

/// The previous version linked every file beside a kept hook, including a `post-receive`. As a kept hook, that
/// link would make the companion call itself.
#[test]
fn link_made_by_an_earlier_version_is_not_a_kept_hook() {
    let world = World::bare(&any_git(), &[]);
    world.write_hook("pre-receive", "cat >/dev/null");
    command(&world, "install");
    fs::remove_file(world.hook("post-receive")).unwrap();
    symlink("../post-receive", world.hook("kept-by-git-fence/post-receive")).unwrap();
    command(&world, "install");
    world.push_token("main", "1").assert_landed();
    // The same with a `post-receive` beside it.
    world.put_over("post-receive", "echo theirs >>ran");
    command(&world, "install");
    world.push_token("main", "2").assert_landed();
    assert_eq!(fs::read_to_string(world.server().join("ran")).unwrap(), "theirs\n");
    command(&world, "uninstall");
    assert!(fs::read_to_string(world.hook("post-receive")).unwrap().contains("echo theirs"));
}

#[test]
fn companion_is_installed_where_git_looks_for_hooks() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("core.hooksPath", "my-hooks");
        command(&world, "install");
        assert!(world.server().join("my-hooks/post-receive").exists());
        world.push_token("main", "1").assert_landed();
        assert_eq!(world.events("push.settled").len(), 1);
    }
}
