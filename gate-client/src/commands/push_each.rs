//! `git fence push --per-branch`: each branch under the lease of its own fence.
//!
//! One push after the other, each with the lease of its branch, in the order of their names. Not all in one: then the lease of
//! one branch that is held would hold up the others, and two such pushes would wait for each other.

use crate::{
    commands::{
        context::{Context, shown},
        push::{PushArgs, push_one},
        single::Output,
    },
    failure::Failure,
    report::{Report, outcome::Outcome},
    run::watch::note,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

pub(super) fn push(context: &Context, args: &PushArgs) -> Result<Output, Failure> {
    let mut branches: BTreeMap<OsString, OsString> = BTreeMap::new();
    for refspec in args.all_refspecs(context)? {
        let branch = branch_of(&refspec)?;
        if let Some(other) = branches.insert(branch, refspec.clone()) {
            let what = format!("'{}' and '{}' push to one branch", shown(&other), shown(&refspec));
            return Err(Failure::usage(what, "name each branch once"));
        }
    }
    let mut done: Vec<Report> = Vec::new();
    for (branch, refspec) in branches {
        match push_one(context, &args.only(branch, refspec)) {
            Ok(output) => done.extend(output.into_report()),
            Err(failure) => {
                let landed = moved(&done).join(" ");
                if !landed.is_empty() {
                    note(&format!("these landed before: {landed}"));
                }
                return Err(failure);
            }
        }
    }
    Ok(Output::of(together(done)))
}

/// The branch to which a refspec pushes, without `refs/heads/`.
fn branch_of(refspec: &OsStr) -> Result<OsString, Failure> {
    let text = refspec.as_bytes();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let to = text.rsplit(|b| *b == b':').next().unwrap_or_default();
    let branch = match to.strip_prefix(b"refs/heads/") {
        Some(branch) => branch,
        None if to.starts_with(b"refs/") || to == b"HEAD" => b"",
        None => to,
    };
    if branch.is_empty() || branch.contains(&b'*') {
        let what = format!("--per-branch: '{}' does not name a branch of the remote", shown(refspec));
        return Err(Failure::usage(what, "name the branches, as in  git fence push --per-branch origin a HEAD:b"));
    }
    Ok(OsString::from_vec(branch.to_vec()))
}

fn moved(done: &[Report]) -> Vec<String> {
    done.iter().flat_map(|report| report.moved.iter().flatten().cloned()).collect()
}

/// One report on all of them. It names no fence and no token: there are several.
fn together(mut done: Vec<Report>) -> Report {
    if done.len() == 1 {
        return done.remove(0);
    }
    let landed = done.iter().any(|report| report.outcome == Outcome::Landed);
    let would = done.iter().any(|report| report.outcome == Outcome::WouldLand);
    let outcome = match (landed, would) {
        (true, _) => Outcome::Landed,
        (false, true) => Outcome::WouldLand,
        (false, false) => Outcome::UpToDate,
    };
    let messages: Vec<&str> = done.iter().map(|report| report.message.as_str()).collect();
    let report = Report::new(outcome, messages.join("; "));
    let old = done.iter().flat_map(|report| report.up_to_date.iter().flatten().cloned()).collect();
    let remote = done.first().and_then(|report| report.remote.clone());
    Report { moved: Some(moved(&done)), up_to_date: Some(old), remote, ..report }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_is_where_the_refspec_pushes_to() {
        for (refspec, branch) in [
            ("main", Some("main")),
            ("+HEAD:feature/x", Some("feature/x")),
            ("HEAD:refs/heads/a", Some("a")),
            (":old", Some("old")),
            ("refs/heads/a:refs/heads/a", Some("a")),
            ("HEAD", None),
            ("v1:refs/tags/v1", None),
            ("refs/heads/*:refs/heads/*", None),
            (":", None),
        ] {
            let found = branch_of(OsStr::new(refspec)).ok();
            assert_eq!(found.as_deref(), branch.map(OsStr::new), "{refspec}");
        }
    }
}
