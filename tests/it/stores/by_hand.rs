//! Pushes by hand: somebody who was told a number tries the next one, and a remote that runs no hooks at all.

use super::{Place, everywhere, only_where, witness};
use crate::support::{
    Pushed, World,
    agents::Agent,
    any_git,
    runs::{go, holding, take_over},
    sh, text, wait_until, write_script,
};
use std::fs;

const MARK: &str = "refs/fence/repo/mark";

/// A mark for `token`, made by hand from the one at `before`: the same lease, with a proof that everybody can read.
fn copied(agent: &Agent<'_>, before: &str, token: u64) -> String {
    let world = agent.world;
    world.ok(agent.git().args(["fetch", "-q", "origin", MARK]));
    let message = world.ok(agent.git().args(["log", "-1", "--format=%B", before]));
    let old = format!("Fence-Mark: {}\n", token - 1);
    assert!(message.contains(&old) && message.contains("Fence-Proof: "), "{message}");
    let mut message = message.replace(&old, &format!("Fence-Mark: {token}\n"));
    let nonce = message.find("Fence-Nonce: ").unwrap() + "Fence-Nonce: ".len();
    message.replace_range(nonce..nonce + 4, "0000");
    let tree = world.ok(agent.git().args(["rev-parse", &format!("{before}^{{tree}}")]));
    world.ok(agent.git().args(["commit-tree", &tree, "-p", before, "-m", &message]))
}

/// A push of a branch with such a mark.
fn push_by_hand(place: Place, agent: &Agent<'_>, before: &str, token: u64) -> Pushed {
    let mark = copied(agent, before, token);
    let mut push = agent.git();
    push.args(["push", "--atomic", &format!("--force-with-lease={MARK}:{before}")]);
    if place.has_gate() {
        push.arg(format!("--push-option=fence-token={token}"));
    }
    let pushed = push.args(["origin", "HEAD:refs/heads/by-hand", &format!("{mark}:{MARK}")]).output().unwrap();
    Pushed::from(&pushed)
}

/// Without a gate nobody checks a number, so there git itself must refuse it: the mark that the number was read from has moved.
#[test]
fn next_number_tried_by_hand_is_refused() {
    everywhere(|place| {
        let world = place.world();
        let [holder, other] = place.agents(&world, ["holder", "other"]);
        holder.ok(&["acquire"]);
        holder.ok(&["push", "origin", "HEAD:main"]);
        let told = world.server_ref(MARK).unwrap();
        if place.has_gate() {
            let alone = ["push", "--push-option=fence-token=2", "origin", "HEAD:refs/heads/by-hand"];
            let alone = Pushed::from(&other.git().args(alone).output().unwrap());
            alone.assert_refused("FENCE-LEASE-REQUIRED");
            push_by_hand(place, &other, &told, 2).assert_refused("FENCE-LEASE-LOST");
            // The holder has taken this very number, and has not used it yet.
            assert_eq!(holder.ok(&["advance"]), "2");
            push_by_hand(place, &other, &told, 2).assert_refused("FENCE-LEASE-REQUIRED");
        }
        assert_eq!(holder.ok(&["push", "origin", "HEAD:next"]), "landed with token 2: refs/heads/next");
        let late = push_by_hand(place, &other, &told, 2);
        assert!(!late.ok && late.text.contains("(stale info)") && late.remote.is_empty(), "{}", late.text);
        assert_eq!(world.server_ref("refs/heads/by-hand"), None);
        assert_eq!(holder.ok(&["push", "origin", "HEAD:third"]), "landed with token 3: refs/heads/third");
        witness::assert_fenced(&world);
    });
}

/// The stale push has seen the mark before its successor came, and what it sends arrives after that.
#[test]
fn hosted_remote_without_hooks_refuses_a_zombie_in_gits_own_words() {
    only_where(Place::has_no_gate, |place| {
        let world = World::bare(&any_git(), &[]);
        fs::remove_dir_all(world.server().join("hooks")).unwrap();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        let push = "git fence push origin +HEAD:refs/heads/slow +HEAD:refs/heads/main";
        let run = holding(&zombie, &["--ttl", "2s"], &format!("{push} >../said 2>&1; echo code $? >>../said"));
        stall_connections(&zombie);
        go(&world);
        wait_until("the zombie is connected", || world.path("connected").exists());
        let frozen = run.freeze();
        take_over(&next, &[], "git push -q origin HEAD:refs/heads/main");
        let before = world.ok(world.git("server.git").args(["for-each-ref", "refs/heads", MARK]));
        fs::write(world.path("sends"), "").unwrap();
        let said = || fs::read_to_string(world.path("said")).unwrap_or_default();
        wait_until("the push was told", || said().contains("code "));
        frozen.thaw();
        let (ended, said) = (run.end(), said());
        assert_eq!(ended.status.code(), Some(75), "{}\n{said}", text(&ended.stderr));
        assert!(said.contains("'next' held it last and released it") && said.contains("code 75"), "{said}");
        let answer = text(&fs::read(world.path("answer")).unwrap());
        assert!(answer.contains("unpack ok") && answer.contains(&format!("ng {MARK} ")), "{answer}");
        let words = ["incorrect old value provided", "atomic transaction failed", "failed to update ref"];
        assert!(words.iter().any(|words| answer.contains(words)) && !answer.contains("hook"), "{answer}");
        let after = world.ok(world.git("server.git").args(["for-each-ref", "refs/heads", MARK]));
        assert_eq!(after, before, "nothing of it landed");
        assert!(!world.server().join("hooks").exists());
    });
}

/// What the clone sends in its next push arrives when `sends` is there; git's answer is kept in `answer`.
fn stall_connections(agent: &Agent<'_>) {
    let (world, script) = (agent.world, agent.world.path("slow-receive-pack"));
    let at = |name: &str| sh(world.path(name));
    let stall = format!("(touch {}; until [ -e {} ]; do sleep 0.02; done; exec cat)", at("connected"), at("sends"));
    let first = format!("{stall} | git receive-pack \"$@\" | tee {0}.new; mv {0}.new {0}", at("answer"));
    write_script(&script, &format!("[ -e {} ] && exec git receive-pack \"$@\"\n{first}", at("connected")));
    world.ok(agent.git().args(["config", "remote.origin.receivepack", &sh(script)]));
}
