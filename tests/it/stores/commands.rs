//! The single commands: their effect and their exit codes.

use super::{everywhere, record, witness};
use crate::support::wait_until;

#[test]
fn commands_work_as_with_a_lease_in_the_remote() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        assert_eq!(a.ok(&["acquire", "--owner", "agent a"]), "1");
        let (code, said) = b.code(&["acquire", "--owner", "agent b"]);
        assert_eq!(code, 11, "{said}");
        assert!(said.contains("held by 'agent a', with token 1, for another "), "{said}");
        let (code, said) = a.code(&["acquire"]);
        assert_eq!(code, 11, "{said}");
        assert!(said.contains("this clone already holds the lease of fence 'repo', with token 1"), "{said}");
        assert_eq!(b.code(&["acquire", "--wait", "100ms"]).0, 11);
        assert_eq!(b.code(&["push", "origin", "HEAD:main"]).0, 11);
        assert_eq!(a.ok(&["renew"]), "renewed for 90s");
        assert_eq!(a.ok(&["advance"]), "2");
        assert_eq!(a.ok(&["push", "origin", "HEAD:main"]), "landed with token 2: refs/heads/main");
        // The token of the push is spent, and the next push takes the next one.
        assert_eq!(a.ok(&["push", "origin", "HEAD:next"]), "landed with token 3: refs/heads/next");
        assert_eq!(a.ok(&["release"]), "released after token 3");
        assert_eq!(a.code(&["release"]).0, 0, "twice is harmless");
        assert_eq!(b.ok(&["push", "origin", "+HEAD:main"]), "landed with token 4: refs/heads/main");
        assert_eq!(b.ok(&["acquire", "--owner", "agent b", "--reason", "nightly"]), "5");
        assert_eq!(b.code(&["status"]).0, 0);
        assert_eq!(b.code(&["progress", "page 3 of 9"]).0, 0);
        b.ok(&["renew"]);
        assert_eq!(record(&world, &place.engine().url)["beat"]["progress"], "page 3 of 9");
        assert_eq!(witness::tokens(&world), [2, 3, 4]);
        witness::assert_fenced(&world);
    });
}

#[test]
fn every_command_reports_a_lost_lease() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire", "--ttl", "1s"]);
        wait_until("the lease has expired", || b.code(&["acquire", "--skew", "0s", "--owner", "bob"]).0 == 0);
        for (args, code) in [
            (&["renew"][..], 12),
            (&["advance"], 12),
            (&["push", "origin", "HEAD:refs/heads/main"], 75),
            (&["push", "origin", "HEAD:refs/heads/other"], 75),
        ] {
            let (got, said) = a.code(args);
            assert_eq!(got, code, "{args:?}: {said}");
            assert!(said.contains("'bob' holds it"), "{args:?}: {said}");
        }
        assert_eq!(world.server_ref("refs/heads"), None, "none of it landed");
        let (code, said) = a.code(&["release"]);
        assert_eq!((code, said.contains("nothing to release")), (0, true), "{said}");
        assert_eq!(b.code(&["renew"]).0, 0, "the successor keeps its lease");
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 2: refs/heads/main");
        witness::assert_fenced(&world);
    });
}
