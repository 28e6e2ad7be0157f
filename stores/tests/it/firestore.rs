//! Firestore, where an emulator runs: `FIRESTORE_EMULATOR_HOST=127.0.0.1:8080 cargo test -p git-fence-stores firestore`.

use crate::helper::{Helper, WITHIN_MS};
use git_fence_core::{StoreReply, StoreRequest};

/// A helper at the emulator; none where there is no emulator. It is no program that ./check could install.
fn at_emulator() -> Option<Helper> {
    let Ok(host) = std::env::var("FIRESTORE_EMULATOR_HOST") else {
        eprintln!("note: skipped tests that need Firestore's emulator (set FIRESTORE_EMULATOR_HOST)");
        return None;
    };
    let mut helper = Helper::start(&[("FIRESTORE_EMULATOR_HOST", &host)]);
    helper.open("firestore://git-fence-tests");
    Some(helper)
}

/// A name that no earlier run has used: the emulator keeps its records.
fn new_name() -> String {
    format!("git.example.org/team/app {}", tempfile::TempDir::new().unwrap().path().display())
}

#[test]
fn firestore_passes_its_own_trial() {
    let Some(mut helper) = at_emulator() else { return };
    let answer = helper.ask(&StoreRequest::Check { within_ms: WITHIN_MS });
    assert!(matches!(&answer, StoreReply::Checked(check) if check.is_good()), "{answer:?}");
}

#[test]
fn firestore_replaces_a_record_only_if_it_is_as_expected() {
    let (Some(mut one), Some(mut other)) = (at_emulator(), at_emulator()) else { return };
    let name = new_name();
    assert_eq!(one.record(&name), None);
    let first = one.win(&name, None, "{\"text\":\"ü '\\\" \\n %\"}");
    assert_eq!(other.record(&name), Some(first.clone()));
    let late = other.swap(&name, None, "other");
    assert!(matches!(&late, StoreReply::Lost(now) if now.record.as_ref() == Some(&first)), "{late:?}");
    let second = one.win(&name, Some(&first), "two");
    let stale = other.swap(&name, Some(&first), "three");
    assert!(matches!(&stale, StoreReply::Lost(now) if now.record.as_ref() == Some(&second)), "{stale:?}");
    assert_eq!(one.record(&name), Some(second));
}
