//! An answer that is lost is settled: the swap is told as won if it was, and carried out once.

use crate::{engines::Kind, helper::Helper, proxy::Proxy, web_server::Manner};
use git_fence_core::StoreReply;

#[test]
fn swap_whose_answer_was_cut_is_told_as_won() {
    for kind in [Kind::Etcd, Kind::Postgres, Kind::Redis] {
        let Some(engine) = kind.start() else { continue };
        let proxy = Proxy::to(engine.port());
        let behind = engine.url.replace(&format!(":{}", engine.port()), &format!(":{}", proxy.port));
        let mut helper = Helper::at(&behind);
        let first = helper.win("n", None, "one");
        // Some engines answer in several parts, so one of several cuts is that of the swap itself.
        let mut last = first;
        for n in 2..8 {
            proxy.cut_next_answer();
            last = helper.win("n", Some(&last), &format!("{n}"));
            assert_eq!(Helper::at(&engine.url).record("n"), Some(last.clone()), "{kind:?}");
        }
        assert_eq!(proxy.cut(), 6, "{kind:?}");
    }
}

#[test]
fn service_that_fails_after_writing_has_written_once() {
    for manner in [Manner::FailsAfterwards, Manner::Silent] {
        let engine = Kind::Http.start().unwrap();
        let web = engine.web.as_ref().unwrap();
        let mut helper = Helper::at(&engine.url);
        let first = helper.win("n", None, "one");
        web.behave([manner]);
        let second = helper.win("n", Some(&first), "two");
        assert_eq!(helper.record("n"), Some(second), "{manner:?}");
        assert_eq!(web.writes(), 2, "{manner:?}");
    }
}

#[test]
fn swap_that_cannot_be_settled_in_time_is_unknown() {
    let engine = Kind::Http.start().unwrap();
    let mut helper = Helper::at(&engine.url);
    let first = helper.win("n", None, "one");
    engine.web.as_ref().unwrap().behave([Manner::FailsAfterwards; 100]);
    let answer = helper.swap_within("n", Some(&first), "two", 500);
    assert!(matches!(answer, StoreReply::Unknown { .. }), "{answer:?}");
}
