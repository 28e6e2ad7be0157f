//! Changing the kind of tokens that a fence takes: the operator's, and nobody else's.

use crate::{
    commands::{
        failure::CommandError,
        operator::{Operator, OperatorArgs, revoke},
    },
    host::{clock, surroundings::Environment},
    log::store::Store,
    push::catch_up,
};
use git_fence_core::{Event, Mark, Rules, Standing, TokenKind, text};
use std::io::{self, Write as _};

/// The kind that is wanted.
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

/// Which tokens a fence takes, for people.
pub(crate) fn in_words(kind: Option<TokenKind>) -> &'static str {
    match kind {
        Some(TokenKind::Own) => "of the pushers' own",
        Some(TokenKind::Lease) => "of leases",
        None => "of any kind, until something has landed",
    }
}

/// `git-fence-hook tokens`: from own ones to leases, and back. Whoever holds a lease loses it: nobody writes
/// with it any more.
pub(crate) fn run(wanted: KindArg, order: &OperatorArgs, environment: &Environment) -> Result<(), CommandError> {
    let (operator, fence, reason) = order.accept(environment)?;
    let tokens = TokenKind::from(wanted);
    let rules = operator.settings.rules(&fence).cloned().unwrap_or_else(Rules::for_repo);
    agrees_with_settings(&rules, tokens)?;
    let mut store = operator.lock_when_free(&fence)?;
    let before = store.state().fence(&fence).kind(&rules);
    let held = if tokens == TokenKind::Own { take_away(&operator, &mut store, &rules, &reason)? } else { None };
    let standing = store.state().fence(&fence);
    // A token that was granted and has not been used is nobody's from here on.
    let granted = standing.lease.map_or(Mark::default(), |lease| lease.lease.token.into());
    let mark = standing.mark.max(granted);
    if before == Some(tokens) && held.is_none() {
        return Err(CommandError::Other {
            what: format!("fence '{fence}' takes tokens {} already: nothing was changed", in_words(before)),
            hint: "git-fence-hook status  shows the kind of each fence".to_owned(),
        });
    }
    let pusher = operator.name.clone();
    operator.commit(store, Event::TokensChanged { fence: fence.clone(), tokens, before, mark, reason, pusher })?;
    let mut out = io::stdout();
    if let Some(held) = held {
        let (owner, token) = (text::in_quotes(&held.lease.owner), held.lease.token);
        writeln!(out, "fence '{fence}'  the lease of {owner}, token {token}, was taken away")?;
    }
    writeln!(out, "fence '{fence}'  takes tokens {}, above {mark}", in_words(Some(tokens)))?;
    Ok(())
}

/// What the settings say counts, whatever is on record.
fn agrees_with_settings(rules: &Rules, tokens: TokenKind) -> Result<(), CommandError> {
    match rules.tokens.filter(|set| *set != tokens) {
        None => Ok(()),
        Some(set) => Err(CommandError::Other {
            what: format!("fence.tokens is {} for fence '{}', and settings count: nothing was changed", set.as_str(), rules.fence),
            hint: "take the setting away first:  git config --show-origin --get-regexp '^fence\\..*tokens$'  says where it stands".to_owned(),
        }),
    }
}

/// Takes the lease of the fence away from whoever holds it.
fn take_away(
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
    let change = revoke::revocation(operator, store, rules, &held, reason)?;
    let event = change.on_record(None, &operator.name, store.state());
    store.append(event)?;
    Ok(Some(held))
}
