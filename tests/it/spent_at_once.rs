//! A spent token stays spent: what became of a push is written down at once, on git's own word, and nothing
//! that happens to the refs afterwards changes it.

use crate::support::{World, any_git, gits};

/// As merge queues do: what was pushed is taken in, and the branch goes.
const TAKES_THE_BRANCH_AWAY: &str = "while read -r old new ref; do git update-ref -d \"$ref\"; done; echo $? >>undone";

fn tokens_that_landed(world: &World) -> Vec<u64> {
    let landed = |line: &serde_json::Value| line["moved"].as_u64() != Some(0);
    world
        .events("push.settled")
        .iter()
        .filter(|line| landed(line))
        .map(|line| line["token"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_post_receive_that_deletes_what_was_pushed_brings_no_token_back() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.write_hook("post-receive", TAKES_THE_BRANCH_AWAY);
        world.ok(world.hook_program().arg("install").arg(world.server()));
        world.push_token("queue/1", "7").assert_landed();
        assert_eq!(world.server_ref("refs/heads/queue/1"), None, "it was taken away");
        assert_eq!(world.mark(), 7);
        world.push_token("queue/1", "6").assert_refused("FENCE-STALE");
        world.push_token("queue/2", "7").assert_refused("FENCE-STALE");
        world.push_token("queue/2", "8").assert_landed();
        assert_eq!(tokens_that_landed(&world), [7, 8]);
        world.assert_log_is_whole();
    }
}

#[test]
fn a_ref_that_an_operator_puts_back_brings_no_token_back() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "19").assert_landed();
        let before = world.server_ref("refs/heads/main").unwrap();
        world.push_token("main", "20").assert_landed();
        world.ok(world.git("server.git").args(["update-ref", "refs/heads/main", &before]));
        world.push_token("main", "20").assert_refused("FENCE-STALE");
        assert_eq!(tokens_that_landed(&world), [19, 20]);
    }
}

#[test]
fn a_gate_that_was_off_for_a_while_brings_no_token_back() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "39").assert_landed();
        let before = world.server_ref("refs/heads/main").unwrap();
        world.push_token("main", "40").assert_landed();
        world.ok(world.git("server.git").args(["config", "fence.mode", "off"]));
        world.push(&[&format!("+{before}:refs/heads/main")], &[]).assert_landed();
        world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
        world.push_token("main", "40").assert_refused("FENCE-STALE");
        world.push_token("main", "41").assert_landed();
    }
}

/// Nobody has to push once more for the log, the figures and the status to tell the same.
#[test]
fn log_figures_and_status_tell_the_same_as_soon_as_the_push_has_ended() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let settled = world.events("push.settled");
    assert_eq!(settled.len(), 1, "{settled:?}");
    let line = &settled[0];
    assert_eq!((&line["evidence"], &line["moved"], &line["mark"]), (&"reported".into(), &1.into(), &5.into()));
    assert_eq!(world.mark(), 5);
    let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["fences"][0]["mark"], 5, "{stats}");
}
