//! The details of a line, in words: the last column of the table.

use crate::commands::operator::tokens;
use git_fence_core::{
    Event, Heir, Lease, LeaseLine, LeaseState, Line, Refused, Renewed, Stake, TickChange, TickState, text,
};

/// Describes a line.
pub(crate) fn detail(line: &Line) -> String {
    match &line.event {
        Event::LogBegun { .. } => String::new(),
        Event::LogRecovered { reason } => reason.clone(),
        Event::LogRotated { file, .. } => format!("earlier lines are in '{file}'"),
        Event::LogRepaired { found, reason, .. } => format!("{found}: {reason}"),
        Event::MarkLowered { fence, from, mark, reason, .. } => format!("{fence}  mark {from} to {mark}: {reason}"),
        Event::MarkRaised { fence, mark, reason, .. } => format!("{fence}  mark at least {mark}: {reason}"),
        Event::MembersForgotten { fence, members, mark } => {
            let names: Vec<&str> = members.iter().take(3).map(git_fence_core::FenceName::as_str).collect();
            let more = if members.len() > 3 { format!(" and {} more", members.len() - 3) } else { String::new() };
            format!("{}{more} forgotten, members of '{fence}' begin above {mark}", names.join(" "))
        }
        Event::SettingsChanged { settings, heirs, .. } => {
            let inherits = |heir: &Heir| format!("; {} inherits the mark of {}", heir.fence, heir.giver);
            modes(settings) + &heirs.iter().map(inherits).collect::<String>()
        }
        Event::PushAccepted { stake, also, plan, code, .. } => {
            let refs: Vec<String> = plan.refs.iter().take(3).map(|planned| planned.name.to_string()).collect();
            let more = if plan.count > 3 { format!(" and {} more", plan.count - 3) } else { String::new() };
            let would = code.map_or(String::new(), |code| format!("  (would be {code})"));
            format!("{}  {}{more}{would}", fences(stake, also), refs.join(" "))
        }
        Event::PushRejected(Refused { code, reason, .. }) | Event::LeaseRefused(Refused { code, reason, .. }) => {
            format!("{code} {reason}")
        }
        Event::PushObserved(Refused { code, reason, .. }) => format!("(would be {code}) {reason}"),
        Event::PushSettled { push, stake, also, moved, count, .. } => {
            format!("{}  push {push}: {moved} of {count} refs moved, mark {}", fences(stake, also), stake.mark)
        }
        Event::PushLanded { push, stake, also, moved, count, settled_as, .. } => {
            let when = if settled_as.is_some() { "after it was settled" } else { "so far" };
            let fences = fences(stake, also);
            format!("{fences}  push {push}: {moved} of {count} refs moved {when}, mark {}", stake.mark)
        }
        Event::PushEvicted { push, reason, .. } => format!("push {push}: {reason}"),
        Event::TokensChanged { fence, tokens, mark, reason, .. } => {
            format!("{fence}  {}, mark at least {mark}: {reason}", tokens::describe_kind(Some(*tokens)))
        }
        Event::LeaseGranted(line) | Event::LeaseRevoked(line) | Event::LeaseFound(line) => {
            of_lease(line) + &of_ticks(&line.ticks)
        }
        Event::TickSkipped { fence, skip, .. } => {
            let tick = skip.tick.map_or(String::new(), |tick| format!(", last tick {tick}"));
            format!("{fence}  job '{}': {}{tick}", skip.job, skip.found.as_str())
        }
        Event::LeaseHalted(line) | Event::LeaseResumed(line) => {
            let Lease { owner, words, .. } = &line.standing.lease;
            let words = words.as_deref().map_or(String::new(), |words| format!(": {}", text::in_quotes(words)));
            format!("{}  {}{words}", line.fence, text::in_quotes(owner))
        }
        Event::MarkFound(line) => {
            let at = line.at.as_ref().map_or("gone".to_owned(), |at| format!("at {}", at.record.token));
            format!("{}  mark in the repository is {at}, mark {}", line.fence, line.mark)
        }
        Event::LeaseReleased(LeaseLine { fence, standing, .. }) if standing.lease.state == LeaseState::Moved => {
            format!("{fence}  leases are kept elsewhere from now on")
        }
        // The reason is that of the grant, and would read as that of this line.
        Event::LeaseAdvanced(LeaseLine { fence, standing, ticks, .. })
        | Event::LeaseReleased(LeaseLine { fence, standing, ticks, .. }) => {
            format!("{fence}  {}{}", text::in_quotes(&standing.lease.owner), of_ticks(ticks))
        }
        Event::LeaseRenewed(Renewed { fence, progress, .. }) => {
            format!("{fence}  {}", progress.as_deref().map_or(String::new(), text::in_quotes))
        }
    }
}

/// The owner of the lease, and the reason.
fn of_lease(line: &LeaseLine) -> String {
    let Lease { owner, reason, words, .. } = &line.standing.lease;
    let words = words.as_deref().map_or(String::new(), |words| format!(": {}", text::in_quotes(words)));
    format!("{}  {} ({}{words})", line.fence, text::in_quotes(owner), reason.as_str())
}

/// What happened to ticks.
fn of_ticks(ticks: &[TickChange]) -> String {
    let of = |change: &TickChange| {
        let TickChange { job, tick, became, schedule, dropped, owner, .. } = change;
        let what = match (became, schedule) {
            (_, Some(schedule)) => return format!("; job '{job}': schedule {schedule} from now on"),
            (TickState::Running, _) => "started",
            (TickState::Lost, _) => return format!("; job '{job}': tick {tick} of {} lost", text::in_quotes(owner)),
            (other, _) => other.as_str(),
        };
        let dropped = dropped.map_or(String::new(), |count| format!(", {count} dropped"));
        format!("; job '{job}': tick {tick} {what}{dropped}")
    };
    ticks.iter().map(of).collect()
}

/// The fences of a push; if there are several, each with its token.
fn fences(stake: &Stake, also: &[Stake]) -> String {
    if also.is_empty() {
        return stake.fence.to_string();
    }
    let named = |stake: &Stake| match stake.token {
        Some(token) => format!("{}:{token}", stake.fence),
        None => stake.fence.to_string(),
    };
    std::iter::once(stake).chain(also).map(named).collect::<Vec<_>>().join(" + ")
}

/// The mode of each fence.
fn modes(settings: &serde_json::Value) -> String {
    let fences = settings["fences"].as_array().into_iter().flatten();
    let mode = |fence: &serde_json::Value| {
        let does = match fence["mode"].as_str()? {
            "enforce" => "enforces",
            "observe" => "observes",
            _ => "is off",
        };
        Some(format!("{} {does}", fence["fence"].as_str()?))
    };
    let modes: Vec<String> = fences.filter_map(mode).collect();
    format!("changed: {}", modes.join(", "))
}
