//! GitLab: Gitaly sets git's hooks directory itself, and runs the repository's `custom_hooks/<hook>.d/` from there.

use crate::support::{Pushed, World, any_git, gits, text, tree, tree_without};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Runs the custom hooks of the repository, as Gitaly does, in the order of the names.
const GITALY: &str = r#"#!/bin/sh
name=${0##*/}
input=$(cat)
for hook in custom_hooks/$name custom_hooks/$name.d/*; do
    [ -f "$hook" ] && [ -x "$hook" ] || continue
    printf '%s\n' "$input" | "./$hook" || exit 1
done
"#;

/// Gitaly's own hooks, outside of the repository.
fn gitaly(world: &World) {
    fs::create_dir(world.path("gitaly")).unwrap();
    for name in ["pre-receive", "post-receive"] {
        let path = world.path("gitaly").join(name);
        fs::write(&path, GITALY).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A push through it.
fn push(world: &World, refspec: &str, options: &[&str]) -> Pushed {
    let mut push = world.push_command(&[refspec], options);
    let hooks = world.path("gitaly");
    push.arg(format!("--receive-pack=git -c core.hooksPath={} receive-pack", hooks.display()));
    Pushed::from(&push.output().unwrap())
}

fn doctor(world: &World) -> Vec<String> {
    let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let short =
        |it: &serde_json::Value| format!("{} {}", it["severity"].as_str().unwrap(), it["name"].as_str().unwrap());
    report["findings"].as_array().unwrap().iter().map(short).collect()
}

#[test]
fn gate_goes_into_custom_hooks_and_doctor_agrees() {
    for git in gits() {
        for found in [true, false] {
            let world = World::bare(&git, &[]);
            gitaly(&world);
            if found {
                fs::create_dir(world.server().join("custom_hooks")).unwrap();
            }
            let before = tree_without(&world.server(), &["fence", "objects", "refs", "custom_hooks"]);
            assert_eq!(doctor(&world)[0].as_str(), "error hook-missing");
            let layout: &[&str] = if found { &[] } else { &["--layout", "gitlab"] };
            let done = world.ok(world.hook_program().arg("install").args(layout).arg(world.server()));
            assert!(done.contains("fence.receivePack  not set -> none  done"), "{done}");
            let custom = tree(&world.server().join("custom_hooks"));
            let files: Vec<&str> =
                custom.iter().map(|(name, ..)| name.as_str()).filter(|name| name.contains('-')).collect();
            assert!(files.ends_with(&["pre-receive.d/zz-git-fence"]), "{files:?}");
            assert!(files.contains(&"post-receive.d/00-git-fence"), "{files:?}");
            assert_eq!(doctor(&world), ["note bounded-form"]);
            push(&world, "HEAD:refs/heads/main", &[]).assert_refused("FENCE-MISSING");
            push(&world, "HEAD:refs/heads/main", &["fence-token=5"]).assert_landed();
            assert_eq!(world.mark(), 5, "the companion ran");
            assert_eq!(doctor(&world), ["note bounded-form"]);
            let again = tree(&world.server());
            world.ok(world.hook_program().arg("install").arg(world.server()));
            assert!(tree(&world.server()) == again);
            world.ok(world.hook_program().arg("enforce").arg(world.server()));
            world.ok(world.hook_program().arg("uninstall").arg(world.server()));
            let after = tree_without(&world.server(), &["fence", "objects", "refs", "custom_hooks"]);
            assert!(after == before);
            push(&world, "HEAD:refs/heads/free", &[]).assert_landed();
        }
    }
}

#[test]
fn other_custom_hooks_run_before_it_and_stay() {
    let world = World::bare(&any_git(), &[]);
    gitaly(&world);
    let own = world.server().join("custom_hooks/pre-receive");
    fs::create_dir(world.server().join("custom_hooks")).unwrap();
    fs::write(&own, "#!/bin/sh\necho ran >>ran\n").unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    world.ok(world.hook_program().arg("install").arg(world.server()));
    push(&world, "HEAD:refs/heads/main", &["fence-token=5"]).assert_landed();
    assert!(own.is_file() && world.server().join("ran").is_file());
    assert_eq!(doctor(&world), ["note bounded-form"]);
}

#[test]
fn what_is_missing_there_is_named_with_a_fix_that_works() {
    let world = World::bare(&any_git(), &[]);
    gitaly(&world);
    fs::create_dir(world.server().join("custom_hooks")).unwrap();
    world.ok(world.hook_program().arg("install").arg(world.server()));
    world.ok(world.git("server.git").args(["config", "--unset", "fence.receivePack"]));
    assert_eq!(doctor(&world), ["error receive-pack-unseen"]);
    world.ok(world.hook_program().arg("install").arg(world.server()));
    let file = |name: &str| world.server().join("custom_hooks").join(name);
    fs::remove_file(file("post-receive.d/00-git-fence")).unwrap();
    assert_eq!(doctor(&world), ["error companion-missing", "note bounded-form"]);
    push(&world, "HEAD:refs/heads/main", &["fence-token=5"]).assert_refused("FENCE-BROKEN");
    world.ok(world.hook_program().arg("install").arg(world.server()));
    fs::remove_file(file("pre-receive.d/zz-git-fence")).unwrap();
    let ran = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    let said = text(&ran.stdout);
    let expected = file("pre-receive.d/zz-git-fence");
    assert!(
        said.contains(&format!("error: hook-missing: hook '{}' is missing", Path::new(&expected).display())),
        "{said}"
    );
    world.ok(world.hook_program().arg("install").arg(world.server()));
    assert_eq!(doctor(&world), ["note bounded-form"]);
}
