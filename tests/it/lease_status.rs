//! What `status` says of a lease, on both sides.

use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git, text,
};

fn json(agent: &Agent<'_>, args: &[&str]) -> serde_json::Value {
    let args = [&["status", "--json"], args].concat();
    serde_json::from_str(&agent.ok(&args)).unwrap()
}

/// What the server says of the lease, without indentation.
fn on_server(world: &World) -> String {
    let said = world.hook_program().arg("status").arg(world.server()).output().unwrap();
    let said = text(&said.stdout);
    said.lines().find_map(|line| line.strip_prefix("  lease      ")).unwrap_or_default().to_owned()
}

#[test]
fn held_lease_says_by_whom_since_when_how_long_and_how_far() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        a.ok(&["acquire", "--owner", "agent a", "--ttl", "1h", "--reason", "nightly"]);
        let since = json(&b, &[])["holder"]["since"].as_str().unwrap().to_owned();
        // Five minutes later, by a clock that says so, the commit is another and the ownership the same.
        world.ok(a.fence(&["advance"]).env("GIT_FENCE_CLOCK_OFFSET", "300"));
        a.ok(&["progress", "page 3 of 9"]);
        a.ok(&["renew"]);
        let status = json(&b, &[]);
        assert_eq!(status["holder"]["since"], *since, "{status}");
        assert_eq!(
            (&status["outcome"], &status["gate"]),
            (&"held".into(), &(remote == Remote::Gate).into()),
            "{status}"
        );
        assert_eq!((&status["reason"], &status["words"]), (&"first".into(), &"nightly".into()), "{status}");
        assert_eq!((&status["holder"]["token"], &status["holder"]["progress"]), (&2.into(), &"page 3 of 9".into()));
        assert!(status["holder"]["expires_in_ms"].as_u64().unwrap() > 3_000_000 && status["expires_in_ms"].is_null());
        assert!(json(&a, &[])["expires_in_ms"].as_u64().unwrap() > 3_000_000);
        let said = a.ok(&["status"]);
        assert!(said.starts_with("fence 'repo'  held by 'agent a' (this clone), token 2, for another "), "{said}");
        let rest = format!(
            "\n  since      {since}\n  progress   'page 3 of 9'\n  before     never held\n  reason     'nightly'\n"
        );
        assert!(said.contains(&rest) && said.lines().all(|line| line.len() <= 80), "{said}");
        let gate = if remote == Remote::Gate { "yes: it decides what has expired" } else { "none" };
        assert!(said.contains(&format!("\n  gate       {gate}")), "{said}");
        if remote == Remote::Gate {
            let said = on_server(&world);
            assert!(
                said.starts_with("held by 'agent a', token 2, since ") && said.contains(", for another "),
                "{said}"
            );
        }
    }
}

#[test]
fn free_lease_says_who_held_it_last_and_how_that_ended() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        if remote == Remote::Gate {
            world.configure("fence.allowRevoke", "tester");
        }
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert!(b.ok(&["status"]).starts_with("fence 'repo'  free (never held)"));
        a.ok(&["acquire", "--owner", "agent a", "--ttl", "1h"]);
        a.ok(&["release"]);
        let said = b.ok(&["status"]);
        assert!(said.starts_with("fence 'repo'  free (last: 'agent a', token 1, released 2"), "{said}");

        // Whoever revokes a lease has never held it.
        a.ok(&["acquire", "--owner", "agent a", "--ttl", "1h"]);
        b.ok(&["revoke", "--owner", "boss", "--reason", "it hangs"]);
        let said = b.ok(&["status"]);
        assert!(said.starts_with("fence 'repo'  free (last: 'agent a', token 2, revoked by 'boss' 2"), "{said}");
        assert!(said.lines().next().unwrap().ends_with(": 'it hangs')"), "{said}");
        let status = json(&b, &[]);
        let last = &status["last"];
        assert_eq!((&status["outcome"], &last["owner"]), (&"free".into(), &"agent a".into()), "{status}");
        assert_eq!(
            (&last["reason"], &last["by"], &last["words"]),
            (&"revoked".into(), &"boss".into(), &"it hangs".into())
        );
        assert!(status["holder"].is_null() && status["owner"] != "boss", "{status}");
        if remote == Remote::Gate {
            let said = on_server(&world);
            assert!(said.starts_with("free (last: 'agent a', token 2, revoked by 'boss' 2"), "{said}");
        }

        a.ok(&["acquire", "--owner", "agent a", "--ttl", "2s"]);
        let later = world.ok(b.fence(&["status"]).env("GIT_FENCE_CLOCK_OFFSET", "3600"));
        assert!(later.starts_with("fence 'repo'  free (last: 'agent a', token 4, expired 2"), "{later}");
    }
}

#[test]
fn fence_that_no_gate_knows_is_not_called_never_held() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    let (code, said) = a.code(&["status", "--fence", "typo"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("the gate of 'origin' has no fence 'typo'") && said.contains("'repo'"), "{said}");
    assert!(!said.contains("never held"), "{said}");
    let (_, said) = a.code(&["status", "--json", "--fence", "typo"]);
    assert!(said.contains(r#"{"outcome":"no-such-fence","code":"FENCE-LEASE-INVALID","#), "{said}");
    assert_eq!(world.server_ref("refs/fence/typo/lease/ask"), None);
    // Without a gate every name can become a fence.
    let world = Remote::Bare.world(&any_git());
    let said = world.agent("a").ok(&["status", "--fence", "typo"]);
    assert!(said.contains("free (never held)") && said.contains("not known"), "{said}");
    assert_eq!(world.server_ref("refs/fence/typo/lease/ask"), None);
}
