//! Revoking a lease: the operator's way to end an ownership without waiting for its expiry. A halt and a resumption move
//! the lease in the same way.

use crate::{
    commands::operator::{Operator, OperatorArgs},
    failure::CommandError,
    host::{clock, surroundings::Environment},
    log::store::{Durability, Store},
    push::{catch_up, plan},
    repository::git,
};
use git_fence_core::{
    Beat, Event, FenceName, Format, Lease, LeaseAsk, LeaseChange, LeaseId, LeasePart, LeaseState, ObjectId, Proposal,
    Purpose, Reject, Rules, Secret, Standing, few_words, judge_lease, nonce_of, owner_name, text,
};
use std::io::{self, Write as _};

/// `git-fence-hook revoke`: moves both refs in one transaction, then records it. If it is killed in between, the next
/// push finds the new record.
pub(crate) fn run(order: &OperatorArgs, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let mut store = operator.lock_when_free(&fence)?;
    let rules = operator.rules(&fence);
    let now = clock::stamp(&operator.here);
    let found = catch_up::compare_with_log(&operator.repository, store.state(), &rules, &now, &operator.name);
    if let Some(line) = found.map_err(refused)? {
        store.append(Event::LeaseFound(line))?;
    }
    let Some(held) = store.state().fence(&fence).lease.filter(|lease| lease.is_held()).cloned() else {
        let elsewhere = kept_elsewhere("revoke", store.state().fence(&fence).lease, &rules);
        store.commit(Durability::Lazy)?;
        if let Some(elsewhere) = elsewhere {
            return Err(elsewhere);
        }
        return Err(CommandError::Other {
            what: format!("the lease of fence '{fence}' is not held: nothing was changed"),
            hint: "show the leases:  git-fence-hook status".to_owned(),
        });
    };
    let change = taken_away(&operator, &store, &rules, Some(&held), (Purpose::Revoke, &reason))?;
    let event = change.on_record(None, &operator.name, store.state());
    operator.commit(store, event)?;
    let (owner, token) = (text::in_quotes(&held.lease.owner), held.lease.token);
    writeln!(io::stdout(), "fence '{fence}'  the lease of {owner}, token {token}, was revoked")?;
    Ok(())
}

/// The gate can only read the store that keeps the leases.
pub(super) fn kept_elsewhere(verb: &str, lease: Option<&Standing>, rules: &Rules) -> Option<CommandError> {
    let has_moved = lease.is_some_and(|standing| standing.lease.state == LeaseState::Moved);
    (has_moved || rules.store.is_some()).then(|| CommandError::Other {
        what: format!("the leases of fence '{}' are kept in a store: nothing was changed", rules.fence),
        hint: format!("{verb} it there, in a clone:  git fence {verb}"),
    })
}

/// Revokes, halts or resumes: moves the refs, if there are any, and returns the change of the lease.
pub(crate) fn taken_away(
    operator: &Operator,
    store: &Store,
    rules: &Rules,
    current: Option<&Standing>,
    (purpose, reason): (Purpose, &str),
) -> Result<LeaseChange, CommandError> {
    let fence = &rules.fence;
    let mark = store.state().fence(fence).mark;
    // If its ref is gone, a halt begins a new history.
    let followed = current.filter(|current| current.commit.is_some() || purpose != Purpose::Halt);
    let (why, state) = purpose.begins(followed.map(|current| &current.lease));
    let now = clock::stamp(&operator.here);
    let lease = Lease {
        format: Format::OneUse,
        id: LeaseId::of(random()?),
        token: purpose.token(current.map(|current| &current.lease), mark).ok_or_else(|| CommandError::Other {
            what: format!("fence '{fence}' has no tokens left"),
            hint: "lower the mark:  git-fence-hook lower".to_owned(),
        })?,
        owner: owner_name(&operator.name).unwrap_or_else(|| "operator".to_owned()),
        state,
        ttl: current.map_or(rules.lease_max_ttl, |current| current.lease.ttl.min(rules.lease_max_ttl)),
        reason: why,
        words: few_words(reason),
        since: Some(Beat::deadline_at(now.unix_ms)),
        jobs: current.map(|current| current.lease.jobs.carried()).unwrap_or_default(),
        holder: Secret::of(random()?).holder(),
        nonce: nonce_of(random()?),
    };
    let deadline = Beat::deadline_at(now.unix_ms);
    let nonce = nonce_of(random()?);
    // Nobody holds the lease, so nobody can continue from here.
    let holder = Some(Secret::of(random()?).holder());
    let beat = Beat { lease: lease.id.clone(), deadline, progress: None, gate: true, holder, nonce };

    let before = current.and_then(|current| current.commit.as_ref());
    let parents: Vec<ObjectId> = before.cloned().into_iter().collect();
    let commit = write_commit(operator, &lease.message(fence, None), &parents)?;
    let beat_commit = write_commit(operator, &beat.message(fence, None), &[])?;
    let proposal = Proposal { commit: commit.clone(), parents, lease, proof: None };
    let request = LeaseAsk { lease: Some(proposal), beat: Some(beat), may_revoke: true, ..LeaseAsk::default() };
    let change = judge_lease(rules, current, mark, &request, &now).map_err(refused)?;
    let state = store.state().fence(fence);
    // A fence that never granted a lease is halted in the log alone: with a lease in the repository, clients would take it
    // for one whose tokens come from there.
    if before.is_none() && !state.was_granted {
        let standing = Standing { commit: None, ..change.standing };
        return Ok(LeaseChange { standing, ..change });
    }
    move_refs(operator, fence, (&commit, before), &beat_commit)?;
    Ok(change)
}

/// Moves both refs or none, and only from their current values.
fn move_refs(
    operator: &Operator,
    fence: &FenceName,
    (lease, before): (&ObjectId, Option<&ObjectId>),
    beat: &ObjectId,
) -> Result<(), CommandError> {
    let beat_ref = LeasePart::Beat.of(fence);
    let beat_before = operator.repository.ref_values([&beat_ref]).map_err(|e| refused(plan::unreadable(e)))?;
    let beat_before = beat_before.into_iter().next().flatten();
    let none = "0".repeat(lease.as_str().len());
    let old = |id: Option<&ObjectId>| id.map_or_else(|| none.clone(), ToString::to_string);
    let moves = [(LeasePart::Lease.of(fence), lease, before), (beat_ref, beat, beat_before.as_ref())];
    let lines = moves.map(|(name, new, before)| format!("update {name} {new} {}\n", old(before)));
    git::write(&operator.repository, &["update-ref", "--stdin"], &lines.concat(), &operator.name)?;
    Ok(())
}

fn write_commit(operator: &Operator, message: &str, parents: &[ObjectId]) -> Result<ObjectId, CommandError> {
    let git = |args: &[&str], input: &str| git::write(&operator.repository, args, input, &operator.name);
    let empty_tree = git(&["hash-object", "-w", "-t", "tree", "--stdin"], "")?;
    let mut args = vec!["commit-tree", &empty_tree, "-F", "-"];
    args.extend(parents.iter().flat_map(|parent| ["-p", parent.as_str()]));
    let id = git(&args, message)?;
    ObjectId::parse(id.as_bytes()).ok().flatten().ok_or_else(|| CommandError::Git {
        doing: "commit-tree".to_owned(),
        why: format!("unexpected output {}", text::quoted(id.as_bytes())),
    })
}

fn random<const N: usize>() -> Result<[u8; N], CommandError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| CommandError::Other {
        what: format!("cannot get random bytes: {e}"),
        hint: "nothing was changed".to_owned(),
    })?;
    Ok(bytes)
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(crate) fn refused(reject: Reject) -> CommandError {
    CommandError::Other { what: reject.to_string(), hint: "nothing was changed".to_owned() }
}
