//! Changing the kind of tokens that a fence accepts. Only the operator can do this.

use crate::{
    commands::operator::{Operator, OperatorArgs, revoke},
    failure::CommandError,
    host::{clock, surroundings::Environment},
    log::store::Store,
    push::catch_up,
};
use git_fence_core::{Event, Mark, Purpose, Rules, Standing, TokenKind, text};
use std::io::{self, Write as _};

/// The kind of tokens on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KindArg {
    Own,
    Lease,
}

impl From<KindArg> for TokenKind {
    fn from(wanted: KindArg) -> TokenKind {
        match wanted {
            KindArg::Own => TokenKind::Own,
            KindArg::Lease => TokenKind::Lease,
        }
    }
}

/// Which tokens a fence accepts, for people.
pub(crate) fn describe_kind(kind: Option<TokenKind>) -> &'static str {
    match kind {
        Some(TokenKind::Own) => "own tokens of the pushers",
        Some(TokenKind::Lease) => "lease tokens",
        None => "tokens of either kind, until the first push or grant lands",
    }
}

/// `git-fence-hook tokens`: changes from own tokens to leases, and back. A held lease is revoked, because it can no
/// longer be used to write.
pub(crate) fn run(wanted: KindArg, order: &OperatorArgs, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let tokens = TokenKind::from(wanted);
    let rules = operator.settings.rules(&fence).cloned().unwrap_or_else(Rules::for_repo);
    check_settings(&rules, tokens)?;
    let mut store = operator.lock_when_free(&fence)?;
    let before = store.state().fence(&fence).kind(&rules);
    let held = if tokens == TokenKind::Own { revoke_held(&operator, &mut store, &rules, &reason)? } else { None };
    let standing = store.state().fence(&fence);
    // A granted token that has not been used becomes invalid.
    let granted = standing.lease.map_or(Mark::default(), |lease| lease.lease.token.into());
    let mark = standing.mark.max(granted);
    if before == Some(tokens) && held.is_none() {
        return Err(CommandError::Other {
            what: format!("fence '{fence}' already accepts {}: nothing was changed", describe_kind(before)),
            hint: "show the kind of each fence:  git-fence-hook status".to_owned(),
        });
    }
    let pusher = operator.name.clone();
    operator.commit(store, Event::TokensChanged { fence: fence.clone(), tokens, before, mark, reason, pusher })?;
    let mut out = io::stdout();
    if let Some(held) = held {
        let (owner, token) = (text::in_quotes(&held.lease.owner), held.lease.token);
        writeln!(out, "fence '{fence}'  the lease of {owner}, token {token}, was revoked")?;
    }
    writeln!(out, "fence '{fence}'  accepts {}, above {mark}", describe_kind(Some(tokens)))?;
    Ok(())
}

/// The settings override the recorded kind.
fn check_settings(rules: &Rules, tokens: TokenKind) -> Result<(), CommandError> {
    if let Some(store) = rules.store.as_ref().filter(|_| tokens == TokenKind::Own) {
        return Err(CommandError::Other {
            what: format!("fence '{}' keeps its leases in {store} (fence.store): nothing was changed", rules.fence),
            hint: "remove the setting first; to find it:  git config --show-origin --get-regexp '^fence\\..*store$'"
                .to_owned(),
        });
    }
    match rules.tokens.filter(|set| *set != tokens) {
        None => Ok(()),
        Some(set) => Err(CommandError::Other {
            what: format!(
                "fence.tokens is {} for fence '{}', and overrides this command: nothing was changed",
                set.as_str(),
                rules.fence
            ),
            hint: "remove the setting first; to find it:  git config --show-origin --get-regexp '^fence\\..*tokens$'"
                .to_owned(),
        }),
    }
}

/// Revokes the lease of the fence, if it is held.
fn revoke_held(
    operator: &Operator,
    store: &mut Store,
    rules: &Rules,
    reason: &str,
) -> Result<Option<Standing>, CommandError> {
    let now = clock::stamp(&operator.here);
    let found = catch_up::compare_with_log(&operator.repository, store.state(), rules, &now, &operator.name);
    if let Some(line) = found.map_err(revoke::refused)? {
        store.append(Event::LeaseFound(line))?;
    }
    let Some(held) = store.state().fence(&rules.fence).lease.filter(|lease| lease.is_held()).cloned() else {
        return Ok(None);
    };
    let change = revoke::taken_away(operator, store, rules, Some(&held), (Purpose::Revoke, reason))?;
    let event = change.on_record(None, &operator.name, store.state());
    store.append(event)?;
    Ok(Some(held))
}
