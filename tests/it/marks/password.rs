//! The password in the URL of a store is shown nowhere.

use super::Guarded;
use crate::support::{
    Running,
    engine::{Holder, PASSWORD, all_arguments},
    text, wait_until,
};

#[test]
fn password_of_the_store_is_nowhere() {
    let Some(mut at) = Guarded::new() else { return };
    at.world.configure("fence.deploy.store", "etcd://bot:s3cret-of-the-store@host?x=s3cret-of-the-store");
    at.world.configure("fence.deploy.refs", "refs/deploy/*");
    let anna = Holder::new("anna", 5);
    at.hold(&anna, 5);
    let mut said = String::new();
    // While the hook asks, everybody on the machine can see the arguments of its helper.
    at.engine.stop();
    let asking = Running::start(&mut at.write_command(&anna, 5));
    wait_until("the helper runs", || all_arguments().contains("git-fence-store"));
    said.push_str(&all_arguments());
    at.engine.go_on();
    let landed = asking.wait();
    landed.assert_landed();
    said.push_str(&landed.text);
    at.hold(&anna, 6);
    at.write(&anna, 6).assert_landed();
    for url in ["redis://:s3cret-of-the-store@127.0.0.1:1", "s3cret-of-the-store", "redis://:s3cret-of-the-store@ho st"]
    {
        at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.store", url]));
        let refused = at.write(&anna, 7);
        assert!(!refused.ok);
        said.push_str(&refused.text);
        for args in [&["status"][..], &["status", "--json"], &["doctor"], &["doctor", "--json"], &["stats"]] {
            let ran = at.world.hook_program().args(args).arg(at.world.server()).output().unwrap();
            said += &(text(&ran.stdout) + &text(&ran.stderr));
        }
    }
    for args in [&["audit"][..], &["audit", "--json"], &["audit", "--csv"]] {
        let ran = at.world.hook_program().args(args).arg(at.world.server()).output().unwrap();
        assert!(ran.status.success());
        said += &(text(&ran.stdout) + &text(&ran.stderr));
    }
    assert!(said.contains("127.0.0.1"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    for (name, _, content) in crate::support::tree(&at.world.server()) {
        assert!(name == "config" || !text(&content).contains(PASSWORD), "{name}");
    }
}
