//! Input that no git client sends: each gets its code and one clear sentence.

use crate::support::{
    Pushed, World, any_git,
    raw::{self, NULL, RawCommand},
};
use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

#[test]
fn too_many_push_options_are_refused() {
    let world = World::new(&any_git());
    let many: Vec<String> = (0..10_000).map(|n| format!("o{n}")).chain(["fence-token=5".to_owned()]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.push(&["HEAD:refs/heads/main"], &many).assert_refused("FENCE-MALFORMED");
    for long in ["fence-token=", "fence-owner=", "fence-token=repo:"] {
        let option = format!("{long}{}", "7".repeat(60_000));
        let pushed = world.push(&["HEAD:refs/heads/main"], &[&option]);
        pushed.assert_refused("FENCE-MALFORMED");
        assert!(pushed.text.len() < 2000, "long text is truncated");
    }
    // Options of other programs are ignored.
    let theirs = format!("merge_request.description={}", "x".repeat(60_000));
    world.push(&["HEAD:refs/heads/main"], &[&theirs, "fence-token=5"]).assert_landed();
    assert!(fs::metadata(world.fence_file("audit.jsonl")).unwrap().len() < 20_000, "and the log stays small");
}

#[test]
fn newlines_and_escape_sequences_are_data() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let tip = world.server_ref("refs/heads/main").unwrap();
    let create = || [RawCommand::new(NULL, &tip, "refs/heads/new")];
    for option in
        [&b"fence-token=5\nfence-token=6"[..], b"fence-token=\x1b[2J5", b"fence-token=5\r", b"fence-token=\xff"]
    {
        let pushed = raw::push(&world, &create(), &[option]);
        pushed.assert_refused("FENCE-MALFORMED");
        assert_eq!(pushed.remote.lines().count(), 3, "{}", pushed.remote);
        assert!(!pushed.remote.contains(['\x1b', '\r']), "{}", pushed.remote);
    }
    let owner = "evil\u{1b}]0;x\u{7}\nfence: {\"verdict\":\"accepted\"}\u{202e}";
    raw::push(&world, &create(), &[b"fence-token=5", format!("fence-owner={owner}").as_bytes()]).assert_landed();
    let accepted = world.events("push.accepted").pop().unwrap();
    assert_eq!(accepted["owner"], "evil]0;xfence: {\"verdict\":\"accepted\"}");
    assert_eq!(fs::read_to_string(world.fence_file("audit.jsonl")).unwrap().lines().count(), world.audit().len());
    world.assert_log_is_whole();
}

#[test]
fn non_utf8_ref_names_are_guarded_byte_for_byte() {
    let world = World::new(&any_git());
    let mut refspec = b"HEAD:refs/heads/caf\xe9".to_vec();
    let push = |refspec: &[u8], options: &[&str]| {
        let mut command = world.push_command(&[], options);
        Pushed::from(&command.arg(OsStr::from_bytes(refspec)).output().unwrap())
    };
    push(&refspec, &[]).assert_refused("FENCE-MISSING");
    push(&refspec, &["fence-token=5"]).assert_landed();
    refspec.push(b'2');
    push(&refspec, &["fence-token=5"]).assert_refused("FENCE-STALE");
    assert_eq!(world.mark(), 5);
    assert_eq!(world.events("push.accepted")[0]["refs"][0]["name"], "refs/heads/caf\\xe9");
    world.assert_log_is_whole();
}

#[test]
fn invalid_ref_names_are_refused_and_never_become_paths() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let tip = world.server_ref("refs/heads/main").unwrap();
    for name in ["refs/heads/../../config", "refs/heads/a..b", "refs/heads/x.lock", "refs/heads//a", "refs/heads/a b"] {
        let pushed = raw::push(&world, &[RawCommand::new(NULL, &tip, name)], &[b"fence-token=5"]);
        pushed.assert_refused("FENCE-MALFORMED");
    }
    // Names longer than a file name or a path may be.
    for length in [300, 5_000, 60_000] {
        let name = format!("refs/heads/{}", "x".repeat(length));
        let pushed = raw::push(&world, &[RawCommand::new(NULL, &tip, &name)], &[b"fence-token=5"]);
        assert!(!pushed.ok, "{length}");
        assert!(pushed.remote.len() < 2_000, "long names are truncated: {}", pushed.remote);
    }
    assert_eq!(world.mark(), 1);
    assert!(fs::metadata(world.fence_file("audit.jsonl")).unwrap().len() < 20_000, "and the log stays small");
    world.assert_log_is_whole();
}

/// The hook's standard input, truncated.
#[test]
fn truncated_input_is_refused() {
    let world = World::new(&any_git());
    let line = format!("{} {} refs/heads/main\n", "0".repeat(40), "a".repeat(40));
    for cut in [0, 1, 40, 41, 82, line.len() - 1, line.len() + 10] {
        let input = world.path("input");
        fs::write(&input, &(line.clone() + &line)[..cut]).unwrap();
        let mut hook = world.hook_program();
        hook.arg("pre-receive").current_dir(world.server()).env("GIT_DIR", ".");
        let ran = Pushed::from(&hook.stdin(fs::File::open(&input).unwrap()).output().unwrap());
        ran.assert_refused("FENCE-MALFORMED");
    }
    assert_eq!(world.events("push.rejected").len(), 7);
}

#[test]
fn hundred_thousand_refs_are_one_push_and_one_line() {
    let world = World::new(&any_git());
    let tip = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
    let mut packed = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for n in 100_000..200_000 {
        packed += &format!("{tip} refs/many/{n}\n");
    }
    fs::write(world.path("work/.git/packed-refs"), packed).unwrap();
    let mut push = world.push_command(&["refs/many/*:refs/heads/many/*"], &["fence-token=5"]);
    Pushed::from(&push.args(["--atomic", "-q"]).output().unwrap()).assert_landed();
    assert_eq!(world.mark(), 5);
    let accepted = world.events("push.accepted").pop().unwrap();
    assert_eq!(accepted["count"], 100_000);
    assert_eq!(accepted["refs"].as_array().unwrap().len(), 64);
    world.push_token("main", "6").assert_landed();
    let settled = &world.events("push.settled")[0];
    assert_eq!((&settled["moved"], &settled["count"]), (&100_000.into(), &100_000.into()));
    let left: Vec<_> = fs::read_dir(world.server().join("fence")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("plan-")), "{left:?}");
    world.assert_log_is_whole();
}
