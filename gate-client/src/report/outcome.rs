//! The words for `outcome`. Each is declared here, once; the list in docs/json.md is generated from it.

use serde::Serialize;

/// The doc comment of each entry is its meaning, here and in docs/json.md.
macro_rules! outcomes {
    ($(#[doc = $meaning:literal] $variant:ident = $name:literal)+) => {
        /// What came of a command, in a word that never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        pub(crate) enum Outcome {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)+
        }

        impl Outcome {
            /// Every outcome: its name and its meaning in markdown.
            #[cfg(test)]
            pub(crate) const ALL: &[(Outcome, &str, &str)] = &[$((Outcome::$variant, $name, $meaning)),+];
        }
    };
}

outcomes! {
    /// `acquire`: the lease is yours
    Acquired = "acquired"
    /// `renew`: the lease lasts its full time again
    Renewed = "renewed"
    /// `advance`: the lease has its next token
    Advanced = "advanced"
    /// `release`: the lease was given back
    Released = "released"
    /// `release`: this clone holds no lease of this fence
    NothingHeld = "nothing-held"
    /// `release`: the lease was lost before, so there is nothing to give back
    NotOurs = "not-ours"
    /// `revoke`: the lease was taken from its holder
    Revoked = "revoked"
    /// `resume`: the fence is not halted any more
    Resumed = "resumed"
    /// `resume`: the fence was not halted, so nothing was changed
    NotHalted = "not-halted"
    /// `progress`: noted; the next heartbeat tells the remote
    Noted = "noted"
    /// `ticks`: the scheduled jobs are in `jobs`
    Listed = "listed"
    /// `ticks forget`: the job is no longer on record
    Forgotten = "forgotten"
    /// `ticks reschedule`: the job has its new schedule
    Rescheduled = "rescheduled"
    /// `push`: the refs moved
    Landed = "landed"
    /// `push --dry-run`: the push would be sent
    WouldLand = "would-land"
    /// `push --token`: nothing new, so no token was spent
    UpToDate = "up-to-date"
    /// `store check`: leases can be kept there
    Checked = "checked"
    /// `store init`: the store has what it needs
    Made = "made"
    /// `store move`: the leases are kept in the other place now
    Moved = "moved"
    /// `status`, `revoke`: nobody holds the lease; `last` says who held it last
    Free = "free"
    /// the lease is held: `holder` says by whom. `status` exits with 0, a command that wanted the lease with 11
    Held = "held"
    /// `status`: the gate has no fence of this name
    NoSuchFence = "no-such-fence"
    /// the status file of `run` while the command runs
    Running = "running"
    /// `run`: the command ended by itself, and `exit_code` is its own
    Ran = "ran"
    /// `run`: another run holds the lease; nothing ran
    Skipped = "skipped"
    /// `run --every` and `--cron`: the latest tick was started already, on this machine or another; nothing ran
    AlreadyDone = "already-done"
    /// `run --every` and `--cron`: no tick is due that may still be started; nothing ran
    NotDue = "not-due"
    /// the lease was still held at the end of the wait; nothing ran and nothing was pushed
    TimedOut = "timed-out"
    /// a signal ended the command before its work was done
    Interrupted = "interrupted"
    /// the lease was lost: another run may have continued the work
    Lost = "lost"
    /// the fence is halted: nobody gets its lease until it is resumed; `halt` says who, since when and why. `run`: nothing ran, or the command was stopped (exit code 75)
    Halted = "halted"
    /// `run`: stopped by `--stall-after`
    Stalled = "stalled"
    /// `run`: stopped by `--max-hold`
    Overran = "overran"
    /// `run`: the command cannot be executed (126) or was not found (127)
    NotStarted = "not-started"
    /// the command line cannot be used
    Usage = "usage"
    /// the remote cannot be reached. Nothing was taken, skipped or pushed
    Unreachable = "unreachable"
    /// the remote denies access or writing, or would have to ask for credentials
    Denied = "denied"
    /// others use the fence at this moment. Nothing was taken, and nothing landed
    Busy = "busy"
    /// the remote refused the push; `code` is the gate's, if the gate refused it
    Refused = "refused"
    /// could not find out whether the push landed
    Unknown = "unknown"
    /// the push did not leave this machine
    NotSent = "not-sent"
    /// the push did not land, and never will
    NotLanded = "not-landed"
    /// the lease or a ref moved, and not all of the refs
    LandedInPart = "landed-in-part"
    /// the lease is kept in another place than the command was told: the remote, or another store. Nothing was taken
    KeptElsewhere = "kept-elsewhere"
    /// something on this machine or in the remote cannot be used
    Broken = "broken"
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::Code;
    use std::{collections::BTreeSet, fs, path::Path};

    fn page(name: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
    }

    /// In both directions: what the code knows and the schema does not, and the other way round.
    #[test]
    fn schema_has_the_outcomes_and_codes_of_the_code() {
        let schema: serde_json::Value = serde_json::from_str(&page("git-fence.schema.json")).unwrap();
        let listed = |name: &str| -> BTreeSet<String> {
            let names = schema["$defs"][name]["enum"].as_array().unwrap();
            names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let outcomes: BTreeSet<String> = Outcome::ALL.iter().map(|(_, name, _)| (*name).to_owned()).collect();
        assert_eq!(listed("outcome"), outcomes);
        assert_eq!(listed("code"), Code::ALL.iter().map(Code::to_string).collect());
        for (outcome, name, _) in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), *name);
        }
    }

    #[test]
    fn page_has_the_table() {
        let rows = Outcome::ALL.iter().map(|(_, name, meaning)| format!("| `{name}` | {} |\n", meaning.trim()));
        let table: String = rows.collect();
        assert!(page("json.md").contains(&table), "the table of docs/json.md must be:\n{table}");
    }
}
