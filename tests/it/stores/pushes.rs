//! Plain pushes inside a run.

use super::{everywhere, witness};
use crate::support::{agents::code_of, text};

#[test]
fn ten_plain_pushes_land_each_with_its_own_token() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        let script = "for n in 1 2 3 4 5 6 7 8 9 10; do git commit -q --allow-empty -m $n; git push -q || exit 9; done";
        let (code, said) = code_of(&a.run(&[], script).output().unwrap());
        assert_eq!(code, 0, "{said}");
        let here = world.ok(a.git().args(["rev-parse", "main", "refs/remotes/origin/main"]));
        let there = world.server_ref("refs/heads/main").unwrap();
        assert_eq!(here, format!("{there}\n{there}"), "the remote-tracking ref follows");
        assert_eq!(witness::tokens(&world), (1..=10).collect::<Vec<u64>>());
        witness::assert_fenced(&world);
        assert!(witness::marks(&world).iter().skip(1).all(|mark| mark.owner == "a" && !mark.by.is_empty()));
    });
}

#[test]
fn parallel_pushes_of_one_run_all_land() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        let push = "git push -q origin HEAD:refs/heads/b1 & one=$!\n git push -q origin HEAD:refs/heads/b2 & two=$!\n";
        let (code, said) = code_of(&a.run(&[], &format!("{push} wait $one && wait $two")).output().unwrap());
        assert_eq!(code, 0, "{said}");
        assert!(["b1", "b2"].iter().all(|branch| world.server_ref(&format!("refs/heads/{branch}")).is_some()));
        assert_eq!(witness::tokens(&world), [1, 2]);
        witness::assert_fenced(&world);
    });
}

/// For a reason that has nothing to do with the lease: the next push lands, with the next token.
#[test]
fn refused_push_costs_a_token_and_nothing_else() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["push", "origin", "HEAD:main"]);
        world.write_hook("update", "[ $1 != refs/heads/closed ] || exit 1");
        let script = "git push -q origin HEAD:main && exit 9\n git push -q origin HEAD:closed && exit 8\n\
                      git push -q origin +HEAD:main || exit 7";
        let ran = b.run(&[], script).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        let said = text(&ran.stderr);
        assert!(said.contains("fetch first") && said.contains("hook declined"), "{said}");
        let tokens = witness::tokens(&world);
        assert_eq!((tokens.len(), tokens[0]), (2, 1), "{tokens:?}");
        witness::assert_fenced(&world);
    });
}
