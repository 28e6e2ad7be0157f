//! What a run says when it has lost its lease.

use crate::support::{
    agents::{Remote, code_of},
    any_git, sh, wait_until,
};
use std::{fs, process::Stdio};

/// Whether the command itself notices the loss, by a push, or only the run, at its end.
const NOTICED_BY: [&str; 2] = ["git push -q origin HEAD:refs/heads/x HEAD:refs/heads/y", "true"];

#[test]
fn lost_lease_is_told_once() {
    for remote in Remote::BOTH {
        for notices in NOTICED_BY {
            let world = remote.world(&any_git());
            if remote == Remote::Gate {
                world.configure("fence.allowRevoke", "tester");
            }
            let (a, b) = (world.agent("a"), world.agent("b"));
            let (inside, go) = (world.path("inside"), world.path("go"));
            let script = format!("touch {}; while ! [ -e {} ]; do sleep 0.05; done; {notices}", sh(&inside), sh(&go));
            let run = a.run(&["--ttl", "1h"], &script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait_until("it runs", || inside.exists());
            b.ok(&["revoke", "--reason", "it hangs"]);
            b.ok(&["acquire", "--owner", "agent b"]);
            fs::write(go, "").unwrap();
            let (code, said) = code_of(&run.wait_with_output().unwrap());
            assert_eq!(code, 75, "{remote:?} {notices}: {said}");
            assert_eq!(said.matches("lost the lease of fence 'repo'").count(), 1, "{remote:?} {notices}: {said}");
            assert_eq!(said.matches("'agent b' holds it").count(), 1, "{remote:?} {notices}: {said}");
            assert_eq!(said.matches("hint: ").count(), 1, "{remote:?} {notices}: {said}");
            let status = a.status();
            assert_eq!((&status["outcome"], &status["code"]), (&"lost".into(), &"FENCE-LEASE-LOST".into()), "{status}");
            assert!(status["message"].as_str().unwrap().contains("'agent b' holds it"), "{status}");
        }
    }
}
