//! Kinds of repositories and transports.

use crate::support::{
    Pushed, World, any_git, gits,
    needs::{Need, lacks},
    raw::{self, RawCommand},
    wait_until, write_script,
};
use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

#[test]
fn sha256_and_reftable_repositories_are_fenced_like_any_other() {
    for git in gits() {
        let mut kinds: Vec<&[&str]> = vec![&["--object-format=sha256"]];
        if git.version >= (2, 45) {
            kinds.push(&["--ref-format=reftable"]);
            kinds.push(&["--ref-format=reftable", "--object-format=sha256"]);
        }
        for kind in kinds {
            let world = World::with(&git, crate::support::Door::Fence, kind);
            world.configure("fence.wait", "200ms");
            world.push_token("main", "5").assert_landed();
            world.push_token("main", "5").assert_refused("FENCE-STALE");
            let stamped = world.commit("work\n\nFencing-Token: 6\n");
            world.push(&[&format!("{stamped}:refs/heads/stamped")], &[]).assert_landed();
            world.push(&[":refs/heads/stamped"], &["fence-token=7"]).assert_landed();
            assert_eq!(world.mark(), 7, "{kind:?}");
            world.stall_update_of("t8");
            let eight = world.start_push("t8", "8");
            world.pid_in("stalled");
            world.push_token("main", "9").assert_refused("FENCE-BUSY");
            world.go();
            eight.wait().assert_landed();
            world.push_token("main", "8").assert_refused("FENCE-STALE");
            world.push_token("main", "9").assert_landed();
            symbolic_refs_lead_into_the_fence(&world, 10);
            world.assert_log_is_whole();
        }
    }
}

/// Pushing to a symbolic ref outside the guarded names moves the guarded ref that it points to.
fn symbolic_refs_lead_into_the_fence(world: &World, token: u64) {
    let symbolic = |name: &str, target: &str| {
        world.ok(world.git("server.git").args(["symbolic-ref", name, target]));
    };
    symbolic("refs/outside/alias", "refs/heads/main");
    symbolic("refs/outside/twice", "refs/outside/alias");
    symbolic("refs/outside/dangling", "refs/heads/not-yet");
    for (at, name) in ["alias", "twice", "dangling"].into_iter().enumerate() {
        let commit = world.commit(&format!("through {name}"));
        let refspec = format!("+{commit}:refs/outside/{name}");
        world.push(&[&refspec], &[]).assert_refused("FENCE-MISSING");
        let stale = format!("fence-token={}", token - 1);
        world.push(&[&refspec], &[&stale]).assert_refused("FENCE-STALE");
        let token = token + at as u64;
        let pushed = world.push(&[&refspec], &[&format!("fence-token={token}")]);
        let target = if name == "dangling" { "refs/heads/not-yet" } else { "refs/heads/main" };
        if pushed.ok {
            assert_eq!(world.server_ref(target), Some(commit), "{name}");
            assert_eq!(world.mark(), token, "{name}");
        } else {
            assert_eq!(pushed.code(), None, "git declined it, not the gate: {}", pushed.text);
        }
    }
    if world.server().join("packed-refs").exists() || !world.server().join("reftable").exists() {
        // The oldest form: a symbolic link, whose content is a ref name and not a path.
        std::os::unix::fs::symlink("refs/heads/main", world.server().join("refs/outside/link")).unwrap();
        let old = world.server_ref("refs/heads/main").unwrap();
        let null = "0".repeat(old.len());
        let delete = [RawCommand::new(&old, &null, "refs/outside/link")];
        if old.len() == 40 {
            raw::push(world, &delete, &[]).assert_refused("FENCE-MISSING");
        }
    }
    // The alias and its target in one push would be the same ref twice.
    let commit = world.commit("both");
    let both = [&*format!("+{commit}:refs/outside/alias"), &*format!("+{commit}:refs/heads/main")];
    world.push(&both, &["fence-token=99"]).assert_refused("FENCE-MALFORMED");
}

#[test]
fn symbolic_refs_are_resolved_before_the_fence_is_chosen() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        symbolic_refs_lead_into_the_fence(&world, 6);
    }
}

#[test]
fn packed_and_loose_refs_are_read_correctly() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        world.push_token("other", "6").assert_landed();
        // Between acceptance and settlement the refs move to packed-refs.
        world.ok(world.git("server.git").args(["pack-refs", "--all"]));
        assert_eq!(world.mark(), 6);
        world.push_token("main", "7").assert_landed();
        world.ok(world.git("server.git").args(["pack-refs", "--all"]));
        world.push(&[":refs/heads/other"], &["fence-token=8"]).assert_landed();
        world.push_token("main", "8").assert_refused("FENCE-STALE");
        let settled: Vec<u64> =
            world.events("push.settled").iter().map(|line| line["moved"].as_u64().unwrap()).collect();
        assert_eq!(settled, [1, 1, 1, 1]);
    }
}

#[test]
fn namespace_is_refused() {
    let world = World::new(&any_git());
    let mut push = world.push_command(&["HEAD:refs/heads/main"], &["fence-token=5"]);
    let pushed = push.arg("--receive-pack=git --namespace=ns receive-pack").output().unwrap();
    Pushed::from(&pushed).assert_refused("FENCE-MALFORMED");
}

#[test]
fn all_worktrees_of_a_repository_share_one_fence() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.ok(world.git(".").args(["init", "-q", "shared"]));
        world.ok(world.git("shared").args(["commit", "-q", "--allow-empty", "-m", "x"]));
        world.ok(world.git("shared").args(["worktree", "add", "-q", "../linked"]));
        world.ok(world.hook_program().arg("install").arg(world.path("shared")));
        assert!(world.path("shared/.git/fence/audit.jsonl").exists());
        let push = |to: &str, branch: &str, token: u32| {
            let refspec = format!("HEAD:refs/heads/{branch}");
            let mut push = world.git("work");
            push.args(["push", &format!("../{to}"), &refspec, "-o", &format!("fence-token={token}")]);
            Pushed::from(&push.output().unwrap())
        };
        push("shared", "a", 5).assert_landed();
        push("linked", "b", 5).assert_refused("FENCE-STALE");
        push("linked", "b", 6).assert_landed();
        push("shared", "c", 6).assert_refused("FENCE-STALE");
        assert!(!world.path("shared/.git/worktrees/linked/fence").exists());
    }
}

/// A server that is ended by pid when the test is over.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `git daemon` on loopback.
fn daemon(world: &World) -> (Server, String) {
    // The port may be taken between choosing and using it: then try another one.
    for _ in 0..20 {
        let port = free_port();
        // Not `git daemon`, which would start it as a child that outlives its parent.
        let exec_path = world.ok(world.git(".").arg("--exec-path"));
        let mut daemon = Command::new(Path::new(&exec_path).join("git-daemon"));
        world.hermetic(&mut daemon);
        daemon.args(["--reuseaddr", "--listen=127.0.0.1", "--enable=receive-pack", "--export-all"]);
        daemon.arg(format!("--port={port}")).arg(format!("--base-path={}", world.path(".").display()));
        let mut server = Server(daemon.stderr(Stdio::null()).spawn().unwrap());
        let mut ended = false;
        wait_until("the daemon listens or has ended", || {
            ended = server.0.try_wait().unwrap().is_some();
            ended || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        if !ended {
            return (server, format!("git://127.0.0.1:{port}/server.git"));
        }
    }
    panic!("no port for the daemon");
}

fn push_to(world: &World, url: &str, branch: &str, token: &str) -> Pushed {
    let commit = world.commit(&format!("{url} {branch} {token}"));
    let mut push = world.git("work");
    push.args(["push", url, &format!("{commit}:refs/heads/{branch}"), "-o", &format!("fence-token={token}")]);
    Pushed::from(&push.output().unwrap())
}

#[test]
fn receive_pack_is_found_behind_git_daemon_and_with_a_raw_client() {
    for git in gits() {
        let world = World::new(&git);
        let (_server, url) = daemon(&world);
        push_to(&world, &url, "a", "5").assert_landed();
        push_to(&world, &url, "b", "5").assert_refused("FENCE-STALE");

        let repository = git2::Repository::open(world.path("work")).unwrap();
        let push = |branch: &str, token: &str| {
            let verdict = std::cell::RefCell::new(None);
            let mut callbacks = git2::RemoteCallbacks::new();
            callbacks.push_update_reference(|_, status| {
                *verdict.borrow_mut() = Some(status.map(str::to_owned));
                Ok(())
            });
            let option = format!("fence-token={token}");
            let mut options = git2::PushOptions::new();
            options.remote_callbacks(callbacks).remote_push_options(&[&option]);
            let mut remote = repository.remote_anonymous(&url).unwrap();
            let refspec = format!("refs/heads/main:refs/heads/{branch}");
            remote.push(&[&refspec], Some(&mut options)).unwrap();
            drop(options);
            verdict.into_inner().expect("the server reported on the ref")
        };
        assert_eq!(push("c", "5"), Some("pre-receive hook declined".to_owned()));
        assert_eq!(push("c", "6"), None, "landed");
        let server = git2::Repository::open_bare(world.server()).unwrap();
        let landed = server.find_reference("refs/heads/c").unwrap().target().unwrap();
        assert_eq!(landed, repository.head().unwrap().target().unwrap());
        assert!(server.find_reference("refs/heads/b").is_err());
        assert_eq!(world.mark(), 6);
        world.assert_log_is_whole();
    }
}

/// What sshd does: it passes the command to the user's shell, or to git-shell.
#[test]
fn receive_pack_is_found_behind_ssh_with_a_login_shell_or_git_shell() {
    for git in gits() {
        for shell in ["sh -c \"$2\"", "git shell -c \"$2\""] {
            let world = World::new(&git);
            let ssh = world.path("ssh");
            write_script(&ssh, &format!("export SSH_CONNECTION='192.0.2.7 1 192.0.2.1 22'\n{shell}"));
            let commit = world.commit("over ssh");
            let url = format!("ssh://server{}", world.server().display());
            let push = |token: &str, branch: &str| {
                let mut push = world.git("work");
                push.env("GIT_SSH", &ssh).env("GIT_SSH_VARIANT", "simple");
                push.args([
                    "push",
                    &url,
                    &format!("{commit}:refs/heads/{branch}"),
                    "-o",
                    &format!("fence-token={token}"),
                ]);
                Pushed::from(&push.output().unwrap())
            };
            push("5", "a").assert_landed();
            push("5", "b").assert_refused("FENCE-STALE");
            assert_eq!(world.events("push.accepted")[0]["address"], "192.0.2.7");
            assert_eq!(world.mark(), 5);
        }
    }
}

#[test]
fn receive_pack_is_found_behind_http() {
    if lacks(&[Need::Python]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        world.configure("http.receivepack", "true");
        let server = world.web("");
        let url = &server.url;
        let commit = world.commit("over http");
        let push = |token: &str, branch: &str| {
            let mut push = world.git("work");
            push.args(["push", url, &format!("{commit}:refs/heads/{branch}"), "-o", &format!("fence-token={token}")]);
            Pushed::from(&push.output().unwrap())
        };
        push("5", "a").assert_landed();
        push("5", "b").assert_refused("FENCE-STALE");
        push("6", "b").assert_landed();
        assert_eq!(world.events("push.accepted")[0]["address"], "127.0.0.1");
        assert_eq!(world.mark(), 6);
    }
}

#[test]
fn path_with_spaces_and_quotes_works() {
    let world = World::new(&any_git());
    let odd = world.path("it's an odd \"name\".git");
    fs::rename(world.server(), &odd).unwrap();
    let refspec = "HEAD:refs/heads/main";
    let mut push = world.git("work");
    push.arg("push").arg(&odd).args([refspec, "-o", "fence-token=5"]);
    Pushed::from(&push.output().unwrap()).assert_landed();
    let status = world.ok(world.hook_program().args(["status", "--json"]).arg(&odd));
    assert!(status.contains("\"mark\":5"), "{status}");
}
