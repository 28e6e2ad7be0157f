//! Filters for lines of the log.

use crate::{Event, FenceName, Line, Stake, Token};

/// Which lines to show. A line must match everything that is set; an empty filter matches all lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Pushes that were refused, or would have been in enforce mode. Asking for a lease is not a push.
    pub rejected: bool,
    /// Lines that name this fence; of a family, also those that name a member.
    pub fence: Option<FenceName>,
    /// Lines that name exactly this pusher.
    pub pusher: Option<String>,
    /// Lines that name this token; with a fence, the token for that fence.
    pub token: Option<Token>,
    /// Lines written at this time or later, in the log's format of times.
    pub since: Option<String>,
    /// Lines written before this time.
    pub until: Option<String>,
}

impl Filter {
    /// Whether `line` matches.
    pub fn matches(&self, line: &Line) -> bool {
        // Times have a fixed number of digits, so they sort as text.
        self.since.as_ref().is_none_or(|since| line.time >= *since)
            && self.until.as_ref().is_none_or(|until| line.time < *until)
            && (!self.rejected || is_refusal(&line.event))
            && self.pusher.as_deref().is_none_or(|pusher| pusher_of(&line.event) == Some(pusher))
            && self.matches_stake(&line.event)
    }

    /// Fence and token must belong together: a push may carry tokens for several fences.
    fn matches_stake(&self, event: &Event) -> bool {
        let wanted = |fence: Option<&FenceName>, token: Option<Token>| {
            self.fence.as_ref().is_none_or(|wanted| fence.is_some_and(|fence| fence.is_of(wanted)))
                && self.token.is_none_or(|wanted| token == Some(wanted))
        };
        match event {
            _ if self.fence.is_none() && self.token.is_none() => true,
            Event::PushAccepted { stake, also, .. }
            | Event::PushSettled { stake, also, .. }
            | Event::PushLanded { stake, also, .. } => {
                let mut stakes = std::iter::once(stake).chain(also);
                stakes.any(|Stake { fence, token, .. }| wanted(Some(fence), *token))
            }
            Event::PushRejected(refused) | Event::LeaseRefused(refused) | Event::PushObserved(refused) => {
                wanted(refused.fence.as_ref(), refused.token)
            }
            Event::MarkRaised { fence, .. } | Event::MarkLowered { fence, .. } | Event::TokensChanged { fence, .. } => {
                wanted(Some(fence), None)
            }
            Event::MembersForgotten { fence, members, .. } => {
                members.iter().chain([fence]).any(|fence| wanted(Some(fence), None))
            }
            Event::LeaseGranted(line)
            | Event::LeaseAdvanced(line)
            | Event::LeaseReleased(line)
            | Event::LeaseRevoked(line)
            | Event::LeaseHalted(line)
            | Event::LeaseResumed(line)
            | Event::LeaseFound(line) => wanted(Some(&line.fence), Some(line.standing.lease.token)),
            Event::MarkFound(line) => wanted(Some(&line.fence), None),
            Event::TickSkipped { fence, .. } => wanted(Some(fence), None),
            Event::LeaseRenewed(renewed) => wanted(Some(&renewed.fence), Some(renewed.token)),
            Event::LogBegun { .. }
            | Event::LogRecovered { .. }
            | Event::LogRotated { .. }
            | Event::LogRepaired { .. }
            | Event::SettingsChanged { .. }
            | Event::PushEvicted { .. } => false,
        }
    }
}

/// Whether the line is about a push that was refused, or admitted only in observe mode.
fn is_refusal(event: &Event) -> bool {
    let is_observed = matches!(event, Event::PushObserved(_) | Event::PushAccepted { code: Some(_), .. });
    is_observed || event.refused_push().is_some()
}

fn pusher_of(event: &Event) -> Option<&str> {
    match event {
        Event::LogBegun { pusher, .. }
        | Event::LogRotated { pusher, .. }
        | Event::LogRepaired { pusher, .. }
        | Event::MarkRaised { pusher, .. }
        | Event::TokensChanged { pusher, .. }
        | Event::MarkLowered { pusher, .. } => Some(pusher),
        Event::LeaseGranted(line)
        | Event::LeaseAdvanced(line)
        | Event::LeaseReleased(line)
        | Event::LeaseRevoked(line)
        | Event::LeaseHalted(line)
        | Event::LeaseResumed(line)
        | Event::LeaseFound(line) => Some(&line.pusher),
        Event::MarkFound(line) => Some(&line.pusher),
        Event::LeaseRenewed(renewed) => Some(&renewed.who.pusher),
        Event::PushAccepted { who, .. } | Event::PushEvicted { who, .. } | Event::TickSkipped { who, .. } => {
            Some(&who.pusher)
        }
        Event::PushRejected(refused) | Event::LeaseRefused(refused) | Event::PushObserved(refused) => {
            Some(&refused.who.pusher)
        }
        Event::LogRecovered { .. }
        | Event::MembersForgotten { .. }
        | Event::SettingsChanged { .. }
        | Event::PushSettled { .. }
        | Event::PushLanded { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTED: &str = r#""event":"push.accepted","push":7,"fence":"repo","token":5,"mark":4,
        "also":[{"fence":"deploy","token":9,"mark":8}],"source":"option","pusher":"anna","refs":[],"count":0,
        "digest":"","place":{"machine":"m","boot":"b","pid_ns":1,"uptime_ms":1},"elapsed_us":10"#;
    const REFUSED: &str = r#""code":"FENCE-STALE","reason":"old","fence":"repo","token":4,"mark":5,"pusher":"bob",
        "refs":[],"count":0,"elapsed_us":10"#;
    const SETTLED: &str = r#""event":"push.settled","push":7,"fence":"repo","token":5,"mark":5,"spent":["repo"],
        "moved":1,"count":1,"evidence":"refs-moved""#;

    fn line(event: &str) -> Line {
        let head = r#"{"seq":7,"time":"2026-01-02T03:04:05.678Z","prev":"0000000000000000000000000000000000000000000000000000000000000000","#;
        serde_json::from_str(&format!("{head}{event}}}")).unwrap()
    }

    #[test]
    fn line_is_shown_if_it_matches_everything_that_is_set() {
        let observed = ACCEPTED.replacen("\"source\"", "\"code\":\"FENCE-STALE\",\"source\"", 1);
        let rejected = format!("\"event\":\"push.rejected\",{REFUSED}");
        let of_lease =
            REFUSED.replace("\"refs\":[],\"count\":0", "\"refs\":[{\"name\":\"refs/fence/repo/lease\"}],\"count\":1");
        let asked = format!("\"event\":\"lease.refused\",{of_lease}");
        let asked_before = format!("\"event\":\"push.rejected\",{of_lease}");
        let unread = format!("\"event\":\"push.observed\",{REFUSED}");
        let begun = r#""event":"log.begun","version":1,"pusher":"anna""#;
        let lines = [ACCEPTED, &observed, &rejected, &asked, &asked_before, &unread, SETTLED, begun].map(line);
        let fence = |name: &str| Some(FenceName::parse(name.as_bytes()).unwrap());
        let token = |n: u64| Some(Token::try_from(n).unwrap());
        let time = |text: &str| Some(text.to_owned());
        let any = Filter::default;
        for (filter, shown) in [
            (any(), "AORLlUSB"),
            (Filter { rejected: true, ..any() }, "ORU"),
            (Filter { fence: fence("repo"), ..any() }, "AORLlUS"),
            (Filter { fence: fence("deploy"), ..any() }, "AO"),
            (Filter { fence: fence("other"), ..any() }, ""),
            (Filter { pusher: time("anna"), ..any() }, "AOB"),
            (Filter { pusher: time("ann"), ..any() }, ""),
            (Filter { token: token(5), ..any() }, "AOS"),
            (Filter { token: token(9), ..any() }, "AO"),
            (Filter { token: token(4), ..any() }, "RLlU"),
            (Filter { token: token(9), fence: fence("deploy"), ..any() }, "AO"),
            (Filter { token: token(9), fence: fence("repo"), ..any() }, ""),
            (Filter { since: time("2026-01-02T03:04:05.678Z"), ..any() }, "AORLlUSB"),
            (Filter { since: time("2026-01-02T03:04:05.679Z"), ..any() }, ""),
            (Filter { until: time("2026-01-02T03:04:05.678Z"), ..any() }, ""),
            (Filter { until: time("2026-01-02T03:04:05.679Z"), ..any() }, "AORLlUSB"),
            (Filter { rejected: true, pusher: time("anna"), token: token(5), ..any() }, "O"),
        ] {
            let found: String =
                "AORLlUSB".chars().zip(&lines).filter(|(_, line)| filter.matches(line)).map(|(name, _)| name).collect();
            assert_eq!(found, shown, "{filter:?}");
        }
    }
}
