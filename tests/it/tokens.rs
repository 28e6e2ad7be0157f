//! The syntax of tokens, and the refusal of invalid ones.

use crate::support::{World, any_git, gits, text};
use std::fs;

#[test]
fn five_lands_then_older_equal_missing_and_malformed_tokens_are_refused_and_six_lands() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        let before = world.server_ref("refs/heads/main");
        let malformed = [
            "",
            "abc",
            "+6",
            "-6",
            " 6",
            "6 ",
            "06",
            "0",
            "0x6",
            "6.0",
            "6e1",
            "٦",
            "９",
            "9223372036854775808",
            "123456789012345678901234567890",
            "nowhere:6",
            "../etc:6",
            "REPO:6",
            ":6",
            "repo:",
            "6\u{1b}[31m",
        ];
        for token in ["5", "4"] {
            world.push_token("main", token).assert_refused("FENCE-STALE");
        }
        world.push(&["HEAD:refs/heads/other"], &[]).assert_refused("FENCE-MISSING");
        for token in malformed {
            let pushed = world.push_token("main", token);
            pushed.assert_refused("FENCE-MALFORMED");
            assert!(!pushed.text.contains('\u{1b}'), "{}", pushed.text);
        }
        world
            .push(&["HEAD:refs/heads/other"], &["fence-token=6", "fence-token=repo:7"])
            .assert_refused("FENCE-AMBIGUOUS");
        assert_eq!(world.server_ref("refs/heads/main"), before);
        assert_eq!(world.server_ref("refs/heads/other"), None);
        assert_eq!(world.mark(), 5);

        world.push_token("main", "6").assert_landed();
        assert_eq!(world.mark(), 6);
        let decided: Vec<(String, String)> = world
            .audit()
            .iter()
            .filter(|line| ["push.accepted", "push.rejected"].contains(&line["event"].as_str().unwrap()))
            .map(|line| (line["event"].to_string(), line["code"].as_str().unwrap_or("").to_owned()))
            .collect();
        assert_eq!(decided.len(), 2 + 2 + 1 + malformed.len() + 1, "each decision is recorded once");
        let count = |code: &str| decided.iter().filter(|(_, found)| found == code).count();
        assert_eq!(count("FENCE-MALFORMED"), malformed.len());
        assert_eq!((count("FENCE-STALE"), count("FENCE-MISSING"), count("FENCE-AMBIGUOUS"), count("")), (2, 1, 1, 2));
        world.assert_log_is_whole();
    }
}

#[test]
fn verify_names_the_line_with_a_changed_byte() {
    let world = World::new(&any_git());
    for token in 1..=3 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    world.assert_log_is_whole();
    let path = world.fence_file("audit.jsonl");
    let whole = fs::read(&path).unwrap();
    let lines = whole.iter().filter(|b| **b == b'\n').count();
    let mut start = 0;
    for line in 1..=lines {
        let end = start + whole[start..].iter().position(|b| *b == b'\n').unwrap();
        // A digit of the time of day, a letter inside a word, the line feed itself.
        for at in [start + 30, start + (end - start) / 2, end] {
            let mut changed = whole.clone();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            fs::write(&path, &changed).unwrap();
            let verified = world.verify();
            let said = text(&verified.stderr);
            assert!(!verified.status.success(), "line {line}, byte {at}: {said}");
            let named =
                said.contains(&format!("line {line} ")) || (at == end && said.contains(&format!("up to line {line},")));
            assert!(named, "line {line}, byte {at}: {said}");
            world.push_token("main", "9").assert_refused("FENCE-BROKEN");
        }
        start = end + 1;
    }
    fs::write(&path, &whole).unwrap();
    world.assert_log_is_whole();
    world.push_token("main", "9").assert_landed();
}

#[test]
fn truncated_tail_is_found_by_verify_and_by_the_next_push() {
    let world = World::new(&any_git());
    for token in 1..=3 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    world.push_token("main", "2").assert_refused("FENCE-STALE");
    let path = world.fence_file("audit.jsonl");
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    // Complete lines, half a line, and one refusal that was never synced.
    for keep in [ends[0], ends[2], ends[ends.len() - 3] - 7, ends[ends.len() - 2], whole.len() - 1] {
        fs::write(&path, &whole[..keep]).unwrap();
        let verified = world.verify();
        assert!(!verified.status.success(), "{keep} of {} bytes", whole.len());
        assert!(text(&verified.stderr).contains("cut off"), "{}", text(&verified.stderr));
        world.push_token("main", "9").assert_refused("FENCE-BROKEN");
        assert_eq!(fs::read(&path).unwrap().len(), keep, "a damaged log is not changed");
    }
    fs::write(&path, &whole).unwrap();
    world.push_token("main", "9").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn trailer_carries_the_token_without_push_options() {
    for git in gits() {
        let world = World::new(&git);
        let stamped = world.commit("work\n\nFencing-Token: 5\n");
        world.push(&[&format!("{stamped}:refs/heads/main")], &[]).assert_landed();
        assert_eq!(world.mark(), 5);
        assert_eq!(world.events("push.accepted")[0]["source"], "trailer");

        // The old trailer on a new branch is stale; an option wins, and the trailer is not read.
        let branch = [&*format!("{stamped}:refs/heads/branch")];
        world.push(&branch, &[]).assert_refused("FENCE-STALE");
        world.push(&branch, &["fence-token=6"]).assert_landed();

        // An annotated tag's own message is read first, then the commit's.
        world.ok(world.git("work").args(["tag", "-a", "v1", "-m", "v1\n\nfencing-token: 8", &stamped]));
        world.push(&["v1"], &[]).assert_landed();
        world.ok(world.git("work").args(["tag", "-a", "v2", "-m", "plain", &stamped]));
        world.push(&["v2"], &[]).assert_refused("FENCE-STALE");
        assert_eq!(world.mark(), 8);

        for (message, code) in [
            ("w\n\nFencing-Token: x\n", "FENCE-MALFORMED"),
            ("w\n\nFencing-Token: 4\n 2\n", "FENCE-MALFORMED"),
            ("w\n\nFencing-Token: nowhere:9\n", "FENCE-MALFORMED"),
            ("w\n\nFencing-Token: 9\nFencing-Token: 10\n", "FENCE-AMBIGUOUS"),
            ("Fencing-Token: 9\n", "FENCE-MISSING"),
            ("w\n\nFencing-Token: 9\n\nnot the last paragraph\n", "FENCE-MISSING"),
        ] {
            let commit = world.commit(message);
            world.push(&[&format!("{commit}:refs/heads/x")], &[]).assert_refused(code);
        }
        // Each ref needs its own trailer, and a deletion has no commit to carry one.
        let nine = world.commit("w\n\nFencing-Token: 9\n");
        let both = [&*format!("{nine}:refs/heads/x"), "HEAD:refs/heads/y"];
        world.push(&both, &[]).assert_refused("FENCE-MISSING");
        // A trailer for another fence does not count for this one either.
        world.configure("fence.deploy.refs", "refs/heads/deploy/*");
        let for_another = world.commit("w\n\nFencing-Token: deploy:2\n");
        let both = [&*format!("{nine}:refs/heads/x"), &*format!("{for_another}:refs/heads/y")];
        world.push(&both, &[]).assert_refused("FENCE-MISSING");
        world.push(&[":refs/heads/branch"], &[]).assert_refused("FENCE-MISSING");
        world.push(&[":refs/heads/branch"], &["fence-token=9"]).assert_landed();
        assert_eq!(world.server_ref("refs/heads/branch"), None);
        world.assert_log_is_whole();
    }
}

#[test]
fn stray_push_options_in_the_environment_are_ignored() {
    let world = World::new(&any_git());
    let mut push = world.push_command(&["HEAD:refs/heads/main"], &[]);
    let pushed = push.env("GIT_PUSH_OPTION_0", "fence-token=9").output().unwrap();
    crate::support::Pushed::from(&pushed).assert_refused("FENCE-MISSING");
}

#[test]
fn pusher_sees_these_messages() {
    let world = World::new(&any_git());
    world.configure("fence.maxJump", "1000");
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.push_token("main", "42").assert_landed();
    let commit = world.commit("x");
    let main = format!("+{commit}:refs/heads/main");
    let deploy = format!("{commit}:refs/heads/deploy/eu");
    let see = |refspec: &str, options: &[&str]| world.push(&[refspec], options).remote;
    let transcripts = [
        see(&main, &["fence-token=41"]),
        see(&main, &[]),
        see(&deploy, &["fence-token=43"]),
        see(&main, &["fence-token=0x2b\u{1b}[2J"]),
        see(&main, &["fence-token=43", "fence-token=44"]),
        see(&main, &["fence-token=99999"]),
        see(&main, &["fence-token=43"]),
    ];
    insta::assert_snapshot!(transcripts.join("\n---\n"));
}
