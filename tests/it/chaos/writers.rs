//! A local writer on the server that changes refs without a push: `git update-ref`, which the gate does not see.

use super::{history, pushers::Field, rng::Rng};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Resets refs to earlier values, and deletes some, until the pushes are over.
///
/// This is not promised: a push whose process is killed, or whose client is gone, before git has reported on it, and a
/// local writer that resets its refs before the next push reads them. So a ref is changed only from a value whose push
/// is recorded as landed, and with git's compare-and-swap: the record stays, and if the ref has
/// moved on meanwhile, perhaps by such a push, nothing happens. Pushes to this ref may be in flight meanwhile:
/// the refs they have moved have another value.
pub(crate) fn reset_refs(field: &Field<'_>, over: &AtomicBool) {
    let mut rng = Rng::new(field.seed, 2000);
    let mut were: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(rng.between(100, 900)));
        // Not during a restart of the server.
        let _open = field.door.read().unwrap();
        one(field, &mut were, &mut rng);
    }
}

fn one(field: &Field<'_>, were: &mut BTreeMap<String, BTreeSet<String>>, rng: &mut Rng) {
    let world = field.world;
    let mut list = world.git("server.git");
    list.args(["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/raw", "refs/heads/leased"]);
    let listed = list.output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let now: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, value) in &now {
        were.entry((*name).to_owned()).or_default().insert((*value).to_owned());
    }
    let landed = history::landed_on_record(world);
    let may_be_taken: Vec<_> = now.into_iter().filter(|(_, value)| landed.contains(*value)).collect();
    if may_be_taken.is_empty() {
        return;
    }
    let (name, value) = rng.pick(&may_be_taken);
    let earlier: Vec<&str> = were[name].iter().map(String::as_str).filter(|earlier| *earlier != value).collect();
    let mut command = world.git("server.git");
    command.env("CHAOS_RESETS", "1").arg("update-ref");
    let done = if earlier.is_empty() || rng.one_in(4) {
        command.args(["-d", name, value]);
        "deleted"
    } else {
        command.args([name, rng.pick(&earlier), value]);
        "reset"
    };
    // It may have been killed, or have been too late.
    if command.output().unwrap().status.success() {
        field.count(&format!("{done} by a local writer"));
    }
}
