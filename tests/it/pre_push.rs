//! The clone's pre-push hook, and pushes that were never sent: they have not landed, and the client says so.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, gits, sh, write_script,
};
use std::fs;

/// A hook that records its input, and refuses if there is a file `refuse`.
fn watched<'w>(world: &'w World, name: &str) -> Agent<'w> {
    let agent = world.agent(name);
    let (heard, refuse) = (sh(world.path("heard")), sh(world.path("refuse")));
    let body = format!(
        "echo \"$1 $2\" >>{heard}; cat >>{heard}; [ -e {refuse} ] || exit 0\necho 'error: a secret was found' >&2; exit 1"
    );
    write_script(&agent.path(".git/hooks/pre-push"), &body);
    agent
}

/// The hook's input since the last call.
fn heard(world: &World) -> String {
    let heard = fs::read_to_string(world.path("heard")).unwrap_or_default();
    let _ = fs::remove_file(world.path("heard"));
    heard.replace(&world.server().display().to_string(), "URL")
}

fn commit(agent: &Agent<'_>) -> String {
    agent.world.ok(agent.git().args(["commit", "-q", "--allow-empty", "-m", "more"]));
    agent.world.ok(agent.git().args(["rev-parse", "HEAD"]))
}

const ABSENT: &str = "0000000000000000000000000000000000000000";

#[test]
fn pre_push_hook_runs_once_with_gits_input() {
    for git in gits() {
        for remote in Remote::BOTH {
            let world = remote.world(&git);
            let a = watched(&world, "a");
            let first = commit(&a);
            a.ok(&["push"]);
            assert_eq!(heard(&world), format!("origin URL\nrefs/heads/main {first} refs/heads/main {ABSENT}\n"));
            let second = commit(&a);
            a.ok(&["acquire"]);
            a.ok(&["push", "origin", "main", ":refs/heads/none", "HEAD:refs/heads/b"]);
            let line = format!("refs/heads/main {second} refs/heads/main {first}\n");
            let given = heard(&world);
            assert!(given.starts_with("origin URL\n") && given.contains(&line), "{given}");
            assert_eq!((given.matches("URL").count(), given.contains("refs/fence")), (1, false), "{given}");
            a.ok(&["release"]);
            for (push, url) in [("git fence push", "URL"), ("git push -q", "fence::URL")] {
                let third = commit(&a);
                let before = world.server_ref("refs/heads/b").unwrap();
                world.ok(&mut a.run(&[], &format!("{push} origin HEAD:refs/heads/b")));
                assert_eq!(heard(&world), format!("origin {url}\nHEAD {third} refs/heads/b {before}\n"), "{push}");
            }
            // By its URL, because it has no other name.
            let url = world.server();
            a.ok(&["push", url.to_str().unwrap(), "HEAD:refs/heads/c"]);
            assert!(heard(&world).starts_with("URL URL\nHEAD "));
            a.ok(&["push", "--no-verify", "origin", "HEAD:refs/heads/d"]);
            assert_eq!(heard(&world), "");
            // Refusals by git itself are reported as usual, and no lease was acquired.
            let token = world.lease_token();
            let (code, said) = a.code(&["push", "--json", "origin", "HEAD~1:refs/heads/d"]);
            assert_eq!((code, world.lease_token()), (1, token), "{said}");
            assert!(said.contains("\"refused\"") && said.contains("non-fast-forward"), "{said}");
            heard(&world);
        }
        let world = World::new(&git);
        let a = watched(&world, "a");
        a.ok(&["push", "--token", "7", "origin", "HEAD:refs/heads/b"]);
        assert_eq!(heard(&world).lines().count(), 2);
        a.ok(&["push", "--token", "8", "--no-verify", "origin", "HEAD:refs/heads/c"]);
        assert_eq!(heard(&world), "");
        a.ok(&["push", "--token", "9", "--trailer", "origin", "main:refs/heads/d"]);
        let stamped = world.server_ref("refs/heads/d").unwrap();
        assert_eq!(heard(&world), format!("origin URL\n{stamped} {stamped} refs/heads/d {ABSENT}\n"));
    }
}

#[test]
fn refusal_by_the_pre_push_hook_is_reported_as_not_sent() {
    for git in gits() {
        for remote in Remote::BOTH {
            let world = remote.world(&git);
            let a = watched(&world, "a");
            fs::write(world.path("refuse"), "").unwrap();
            let mut ways = vec![vec!["push", "--json"], vec!["push", "--json", "--dry-run"]];
            if remote == Remote::Gate {
                ways.push(vec!["push", "--json", "--token", "7"]);
            }
            for way in ways {
                let (code, said) = a.code(&[&way[..], &["origin", "HEAD:refs/heads/b"]].concat());
                assert_eq!(code, 1, "{way:?}: {said}");
                let says = |json: &str| said.contains(json);
                assert!(says(r#"{"outcome":"not-sent","#) && says(r#""retryable":false"#), "{way:?}: {said}");
                assert!(said.contains("error: nothing was sent: ") && said.contains("pre-push"), "{way:?}: {said}");
                assert!(said.contains("a secret was found"), "{way:?}: {said}");
                assert_eq!(heard(&world).matches("URL").count(), 1, "{way:?}");
            }
            assert_eq!(world.server_ref("refs/fence"), None, "no lease was taken for it");
            a.ok(&["acquire"]);
            assert_eq!(a.code(&["push", "origin", "HEAD:refs/heads/b"]).0, 1);
            assert_eq!((world.lease_token(), world.lease("State").as_str()), (1, "held"), "the lease is untouched");
            fs::remove_file(world.path("refuse")).unwrap();
            assert!(a.ok(&["push", "origin", "HEAD:refs/heads/b"]).contains("with token 1"));
        }
    }
}

/// As for git, a hook that is not executable does not count; and one may be configured elsewhere.
#[test]
fn pre_push_hook_is_found_where_git_looks_for_it() {
    let world = World::bare(&any_git(), &[]);
    let a = watched(&world, "a");
    let own = a.path(".git/hooks/pre-push");
    fs::create_dir(world.path("hooks")).unwrap();
    fs::rename(own, world.path("hooks/pre-push")).unwrap();
    a.ok(&["push", "origin", "HEAD:refs/heads/a"]);
    assert_eq!(heard(&world), "");
    world.ok(a.git().args(["config", "core.hooksPath", "../hooks"]));
    a.ok(&["push", "origin", "HEAD:refs/heads/b"]);
    assert_eq!(heard(&world).matches("origin URL").count(), 1);
    fs::set_permissions(world.path("hooks/pre-push"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    a.ok(&["push", "origin", "HEAD:refs/heads/c"]);
    assert_eq!(heard(&world), "");
}

#[test]
fn unsent_push_is_known_not_to_have_landed() {
    for git in gits() {
        for remote in Remote::BOTH {
            let world = remote.world(&git);
            let a = world.agent("a");
            a.ok(&["acquire"]);
            let not_sent = ["nope", "nope:refs/heads/a", "HEAD:refs/heads/a..b", ":refs/heads/:"];
            for refspec in not_sent {
                let (code, said) = a.code(&["push", "--json", "origin", refspec]);
                assert_eq!(code, 1, "{refspec}: {said}");
                assert!(said.contains(r#""outcome":"not-sent""#), "{refspec}: {said}");
            }
            // A remote that refuses the connection.
            let away = world.path("away.git");
            fs::rename(world.server(), &away).unwrap();
            let (code, said) = a.code(&["push", "--json", "origin", "HEAD:refs/heads/a"]);
            assert_eq!(code, 69, "{said}");
            let says = |json: &str| said.contains(json);
            assert!(says(r#"{"outcome":"unreachable","#) && says(r#""retryable":true"#), "{said}");
            let run = code_of(&a.fence(&["advance", "--json"]).output().unwrap());
            assert!(run.1.contains(r#""outcome":"unreachable""#), "{}", run.1);
            fs::rename(&away, world.server()).unwrap();
            assert!(a.ok(&["push", "origin", "HEAD:refs/heads/a"]).contains("with token 1"));
        }
        let world = World::new(&git);
        let a = world.agent("a");
        for refspec in ["nope", "HEAD:refs/heads/a..b"] {
            let (code, said) = a.code(&["push", "--json", "--token", "7", "origin", refspec]);
            assert_eq!(code, 1, "{refspec}: {said}");
            assert!(said.contains(r#""outcome":"not-sent""#), "{refspec}: {said}");
        }
    }
}

/// The server's messages come from the server, even if they look like those of a git that could not connect.
#[test]
fn servers_message_about_its_own_remote_is_not_ours() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    world.write_hook(
        "post-receive",
        "echo 'fatal: Could not read from remote repository.' >&2; exec 2>&-; sleep 0.2\nkill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID",
    );
    let (code, said) = a.code(&["push", "--json", "--token", "7", "origin", "HEAD:refs/heads/a"]);
    // The answer was lost, and is settled.
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(r#""outcome":"landed""#), "{said}");
    assert!(world.server_ref("refs/heads/a").is_some());
}
