//! Runs every command of the operations page, in order.

use crate::support::{
    Pushed, World, any_git,
    lease::{Agent, commit},
    text,
};
use std::{fs, path::Path, process::Command};

/// The shell blocks of a page.
fn commands_in(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// What can be removed.
fn hold_a_lease(world: &World, server: &Path) {
    let agent = Agent::new("importer");
    let status = world.ok(world.hook_program().args(["status", "--json"]).arg(server));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let token = status["fences"][0]["mark"].as_u64().unwrap() + 1;
    let mut push = world.git("work");
    push.args(["push", "--atomic"]).arg(server);
    push.arg(format!("{}:refs/fence/repo/lease", commit(world, &agent.lease(token, "held", "first"), &[])));
    push.arg(format!("{}:refs/fence/repo/beat", commit(world, &agent.beat(""), &[])));
    Pushed::from(&push.output().unwrap()).assert_landed();
}

#[test]
fn every_command_of_the_operations_page_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let commands = commands_in(&fs::read_to_string(page).unwrap());
    assert!(commands.len() > 10, "{} blocks", commands.len());

    let world = World::bare(&any_git(), &[]);
    for dir in ["srv", "backup", "textfile", "bin"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    fs::rename(world.server(), world.path("srv/app.git")).unwrap();
    world.ok(world.git(".").args(["init", "-q", "--bare", "srv/other.git"]));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_git-fence-hook"), world.path("bin/git-fence-hook")).unwrap();
    let here = |path: &str| world.path(path).display().to_string();
    let app = world.path("srv/app.git");
    for block in commands {
        if block.contains("git-fence-hook revoke") {
            hold_a_lease(&world, &app);
        }
        let block = block
            .replace("/srv/git", &here("srv"))
            .replace("/var/lib/node_exporter/textfile", &here("textfile"))
            .replace("/backup", &here("backup"));
        let mut sh = Command::new("sh");
        world.hermetic(&mut sh);
        let path = format!("{}:{}", here("bin"), std::env::var("PATH").unwrap());
        let ran = sh.args(["-eu", "-c", &block]).env("PATH", path).output().unwrap();
        assert!(ran.status.success(), "{block}\n{}{}", text(&ran.stdout), text(&ran.stderr));
        // Between any two of them a push is made; whether it is accepted does not matter.
        let mut push = world.git("work");
        let commit = world.commit(&block);
        push.args(["push", "-q", "-o", "fence-token=5"]).arg(world.path("srv/app.git"));
        let _ = push.arg(format!("+{commit}:refs/heads/main")).output().unwrap();
    }
    assert!(fs::read_to_string(world.path("textfile/app.prom")).unwrap().contains("# TYPE "));
    assert!(!world.path("srv/app.git/hooks/pre-receive").exists());
}
