//! A holder that slept past its lease, and its successor.

use super::{Place, everywhere, record, without_a_gate, witness};
use crate::support::{
    World,
    agents::Agent,
    runs::{Background, Frozen, go, heads, holding, take_over, word},
    text, wait_until,
};
use std::fs;

/// A run that was frozen past its lease while `next` took over and pushed.
struct Overtaken {
    run: Background,
    frozen: Frozen,
}

impl Overtaken {
    /// The command of the frozen run continues, alone. Returns what the run said, and its code.
    fn wakes_up(self, world: &World) -> (Option<i32>, String) {
        go(world);
        wait_until("the stale holder has tried", || world.path("tried").exists());
        self.frozen.thaw();
        let ended = self.run.end();
        (ended.status.code(), text(&ended.stderr))
    }
}

/// A command that tries to push to the same and to another branch, twice, and writes down what came of it.
fn tries(world: &World, push: &str) -> String {
    let said = world.path("said").display().to_string();
    let one = |branch: &str| format!("{push} origin +HEAD:refs/heads/{branch} >>{said} 2>&1; echo code $? >>{said}\n");
    format!("{}{}{}{}", one("main"), one("other"), one("main"), word(&world.path("tried")))
}

#[test]
fn holder_that_slept_past_its_lease_is_refused_by_the_remote() {
    everywhere(|place| {
        for push in ["git push", "git fence push"] {
            let world = place.world();
            let [zombie, next] = place.agents(&world, ["zombie", "next"]);
            let run = holding(&zombie, &["--ttl", "2s"], &tries(&world, push));
            let frozen = run.freeze();
            take_over(&next, &["--ttl", "60s"], &format!("{push} origin +HEAD:refs/heads/main"));
            let before = heads(&world);
            let (code, said) = Overtaken { run, frozen }.wakes_up(&world);
            let tried = fs::read_to_string(world.path("said")).unwrap();
            assert_eq!(code, Some(75), "{said}\n{tried}");
            assert_eq!(zombie.status()["outcome"], "lost", "{}", zombie.status());
            assert_eq!(heads(&world), before, "a part of it landed\n{tried}");
            let codes: Vec<&str> = tried.lines().filter_map(|line| line.strip_prefix("code ")).collect();
            let refused = if push == "git push" { "1" } else { "75" };
            assert_eq!(codes, [refused; 3], "{tried}");
            assert!(tried.contains("'next' held it last and released it"), "{tried}");
            assert_eq!(record(&world, &place.engine().url)["before"][0]["lease"]["owner"], "zombie");
            witness::assert_fenced(&world);
        }
    });
}

/// The server is slow to move the refs of the first holder, and meanwhile the lease moves on.
#[test]
fn holder_frozen_inside_its_push_does_not_land_after_its_successor() {
    without_a_gate(|place| {
        let world = place.world();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let said = world.path("said").display().to_string();
        let rest = format!("git fence push origin +HEAD:refs/heads/slow >{said} 2>&1; echo code $? >>{said}");
        let run = holding(&zombie, &["--ttl", "2s"], &rest);
        go(&world);
        world.pid_in("stalled");
        let frozen = run.freeze();
        overtakes(place, &next);
        world.go();
        frozen.thaw();
        let ended = run.end();
        let said = fs::read_to_string(&said).unwrap_or_default();
        assert_eq!(ended.status.code(), Some(75), "{}\n{said}", text(&ended.stderr));
        assert_eq!(world.server_ref("refs/heads/slow"), None, "{said}");
        assert_eq!(witness::tokens(&world), [2]);
        witness::assert_fenced(&world);
    });
}

/// With a gate the successor would wait until the stalled push is over.
fn overtakes(place: Place, next: &Agent<'_>) {
    assert!(!place.has_gate(), "let the stalled push continue while the successor waits");
    take_over(next, &["--ttl", "60s"], "git fence push origin +HEAD:refs/heads/main");
}

/// The successor has not written yet: the barrier alone stops the push that is on its way.
#[test]
fn push_on_its_way_is_stopped_before_the_successor_works() {
    without_a_gate(|place| {
        let world = place.world();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let said = world.path("said").display().to_string();
        let rest = format!("git fence push origin +HEAD:refs/heads/slow >{said} 2>&1; echo code $? >>{said}");
        let run = holding(&zombie, &["--ttl", "2s"], &rest);
        go(&world);
        let receive_pack = world.pid_in("stalled");
        let frozen = run.freeze();
        // What it reads is what its work is based on: nothing may move after that but its own pushes.
        let reads = format!("git ls-remote -q origin refs/heads/slow >{}", world.path("read").display());
        let waits = format!("until [ -e {} ]; do sleep 0.02; done", world.path("over").display());
        let pushes = "git fence push origin +HEAD:refs/heads/main";
        std::thread::scope(|scope| {
            let successor = scope.spawn(|| take_over(&next, &["--ttl", "60s"], &format!("{reads}; {waits}; {pushes}")));
            wait_until("the successor has read", || world.path("read").exists() || successor.is_finished());
            world.go();
            wait_until("the push is over", || !world.path(&format!("/proc/{receive_pack}/exe")).exists());
            let landed = world.server_ref("refs/heads/slow");
            fs::write(world.path("over"), "").unwrap();
            assert_eq!(landed, None, "it landed under the successor");
        });
        frozen.thaw();
        let ended = run.end();
        let said = fs::read_to_string(&said).unwrap_or_default();
        assert_eq!(ended.status.code(), Some(75), "{}\n{said}", text(&ended.stderr));
        assert!(said.contains("code 75"), "{said}");
        witness::assert_fenced(&world);
    });
}

#[test]
fn status_file_of_a_lost_run_names_the_new_holder() {
    everywhere(|place| {
        let world = place.world();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        let run = holding(&zombie, &["--ttl", "3s"], "true");
        let frozen = run.freeze();
        wait_until("the lease has expired", || next.code(&["acquire", "--owner", "next", "--skew", "0s"]).0 == 0);
        frozen.thaw();
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        let status = zombie.status();
        assert_eq!((&status["outcome"], &status["holder"]["owner"]), (&"lost".into(), &"next".into()), "{status}");
    });
}
