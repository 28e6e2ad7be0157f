//! Patterns that guard nothing: they must not open the gate.

use crate::support::{World, any_git, gits, text};

/// Common patterns that match no ref name, with a word of the reason.
const IMPOSSIBLE: [(&str, &str); 14] = [
    ("refs/heads/", "ends with a slash"),
    ("refs/heads/main ", "a space"),
    ("refs/heads/main, refs/heads/dev", "comma"),
    ("refs/heads/main,refs/heads/dev", "comma"),
    ("refs/heads/{main,dev}", "comma"),
    ("refs/heads/[main", "has no ']'"),
    ("refs//heads/*", "empty"),
    ("refs/heads/main..dev", "'..'"),
    ("refs/heads/.hidden", "starts with a dot"),
    ("refs/heads/*.lock", "'.lock'"),
    ("refs/heads/main~1", "'~'"),
    ("refs/heads/main@{1}", "'@{'"),
    ("refs/heads/\\*", "'*'"),
    ("refs/fence/*", "leases"),
];

#[test]
fn impossible_pattern_closes_the_gate_and_is_named() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        for (pattern, reason) in IMPOSSIBLE {
            for key in ["fence.refs", "fence.trunk.refs"] {
                world.ok(world.git("server.git").args(["config", key, pattern]));
                let pushed = world.push(&["HEAD:refs/heads/open"], &[]);
                pushed.assert_refused("FENCE-BROKEN");
                assert!(pushed.text.contains(key) && pushed.text.contains(reason), "{pattern}: {}", pushed.text);
                world.ok(world.git("server.git").args(["config", "--unset-all", key]));
            }
        }
        assert_eq!(world.server_ref("refs/heads/open"), None);
        world.push_token("main", "6").assert_landed();
    }
}

#[test]
fn install_refuses_an_impossible_pattern() {
    let world = World::bare(&any_git(), &[]);
    for (pattern, reason) in IMPOSSIBLE {
        let ran = world.hook_program().args(["install", "--refs", pattern]).arg(world.server()).output().unwrap();
        let said = text(&ran.stderr);
        assert!(!ran.status.success() && said.contains(reason), "{pattern}: {said}");
    }
    assert!(!world.fence_file("").exists(), "nothing was installed");
}

fn findings(world: &World) -> Vec<(String, String)> {
    let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let named = |finding: &serde_json::Value| {
        (finding["name"].as_str().unwrap().to_owned(), finding["severity"].as_str().unwrap().to_owned())
    };
    report["findings"].as_array().unwrap().iter().map(named).collect()
}

#[test]
fn doctor_warns_about_a_fence_that_guards_no_existing_ref() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.trunk.refs", "refs/heads/mian");
        assert_eq!(findings(&world), [], "if no ref exists yet, none is guarded");
        world.push_token("main", "5").assert_landed();
        let guards_nothing = |severity: &str| ("guards-nothing".to_owned(), severity.to_owned());
        assert_eq!(findings(&world), [guards_nothing("warning")]);
        world.configure("fence.trunk.refs", "refs/heads/main");
        assert_eq!(findings(&world), [guards_nothing("note")], "one of two patterns is a typo, or for later");
        world.ok(world.git("server.git").args(["config", "--unset", "fence.trunk.refs", "mian"]));
        assert_eq!(findings(&world), [], "'repo' guards its default refs");
    }
}
