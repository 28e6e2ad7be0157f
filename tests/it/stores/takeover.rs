//! A holder that slept past its lease, and its successor.

use super::{Place, everywhere, on_its_way::on_its_way, record, witness};
use crate::support::{
    World,
    runs::{Background, Frozen, go, heads, holding, take_over, taking_over, wait_for, word},
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

/// A command of the first holder that pushes 'slow' when it may go on, and writes down what came of it.
fn pushes_slow(world: &World) -> String {
    let said = world.path("said").display().to_string();
    format!("git fence push origin +HEAD:refs/heads/slow >{said} 2>&1; echo code $? >>{said}")
}

/// What the first holder, which wakes up, was told of its run and of its push: with a gate, that has landed before.
#[track_caller]
fn assert_told(place: Place, world: &World, Overtaken { run, frozen }: Overtaken) {
    let said = || fs::read_to_string(world.path("said")).unwrap_or_default();
    wait_until("the push was told", || said().contains("code "));
    frozen.thaw();
    let (ended, said) = (run.end(), said());
    assert_eq!(ended.status.code(), Some(75), "{}\n{said}", text(&ended.stderr));
    let (words, code) = if place.has_gate() { ("landed with token 1", 0) } else { ("'next' h", 75) };
    assert!(said.contains(words) && said.contains(&format!("code {code}")), "{said}");
}

/// The server is slow to move the refs of the first holder, and meanwhile the lease moves on.
#[test]
fn holder_frozen_inside_its_push_does_not_land_after_its_successor() {
    everywhere(|place| {
        let world = place.world();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        let run = holding(&zombie, &["--ttl", "2s"], &pushes_slow(&world));
        let ((), slow) = on_its_way(place, &world, || go(&world));
        let overtaken = Overtaken { frozen: run.freeze(), run };
        let pushes = "git fence push origin +HEAD:refs/heads/main";
        let successor = Background::start(&mut taking_over(&next, &["--ttl", "60s"], pushes));
        slow.is_met_by(&successor, || world.server_ref("refs/heads/main").is_some());
        assert_eq!(slow.ends(), place.has_gate());
        let ended = successor.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert_told(place, &world, overtaken);
        assert_eq!(witness::tokens(&world), if place.has_gate() { vec![1, 2] } else { vec![2] });
        witness::assert_fenced(&world);
    });
}

/// The successor has not written yet. What it reads is what its work is based on: nothing may move after that but by its own
/// pushes.
#[test]
fn push_on_its_way_is_stopped_before_the_successor_works() {
    everywhere(|place| {
        let world = place.world();
        let [zombie, next] = place.agents(&world, ["zombie", "next"]);
        let run = holding(&zombie, &["--ttl", "2s"], &pushes_slow(&world));
        let ((), slow) = on_its_way(place, &world, || go(&world));
        let overtaken = Overtaken { frozen: run.freeze(), run };
        let (read, over) = (world.path("read"), world.path("over"));
        let reads = format!("git ls-remote -q origin refs/heads/slow >{0}.new; mv {0}.new {0}", read.display());
        let works = format!("{reads}\n{}\ngit fence push origin +HEAD:refs/heads/main", wait_for(&over));
        let successor = Background::start(&mut taking_over(&next, &["--ttl", "60s"], &works));
        slow.is_met_by(&successor, || read.exists());
        let landed = slow.ends();
        wait_until("the successor has read", || read.exists());
        fs::write(over, "").unwrap();
        let saw = !fs::read_to_string(&read).unwrap().is_empty();
        assert_eq!((saw, landed), (place.has_gate(), place.has_gate()), "nothing lands that it has not seen");
        let ended = successor.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert_told(place, &world, overtaken);
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
