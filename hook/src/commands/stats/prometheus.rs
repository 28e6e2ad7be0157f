//! The figures in Prometheus' text format, for the textfile collector of the node exporter.

use crate::commands::stats::figures::{Figures, JobFigures, Lengths};
use std::fmt::{Display, Write as _};

/// All figures, each with the repository as a label.
pub(crate) fn text(figures: &Figures) -> String {
    let Figures { repository, lines, pushes, waits_us, fences, observed, leases, scheduled, .. } = figures;
    let mut page = Page { repository: escaped(repository), text: String::new() };

    page.family("git_fence_log_lines_total", "counter", "Lines of the log.");
    page.sample("git_fence_log_lines_total", &[], lines);
    page.family("git_fence_pushes_accepted_total", "counter", "Pushes that were accepted.");
    page.sample("git_fence_pushes_accepted_total", &[], pushes.accepted);
    page.family("git_fence_pushes_refused_total", "counter", "Pushes that were refused, by code.");
    for (code, count) in &pushes.refused_by_code {
        page.sample("git_fence_pushes_refused_total", &[("code", code)], count);
    }
    let help = "Pushes that observe mode admitted and enforce mode would have refused, by code.";
    page.family("git_fence_pushes_observed_total", "counter", help);
    for (code, count) in &observed.by_code {
        page.sample("git_fence_pushes_observed_total", &[("code", code)], count);
    }
    let help = "Accepted pushes that are over, by whether they moved a ref.";
    page.family("git_fence_pushes_settled_total", "counter", help);
    page.sample("git_fence_pushes_settled_total", &[("moved", "true")], pushes.moved);
    page.sample("git_fence_pushes_settled_total", &[("moved", "false")], pushes.unmoved);
    page.family("git_fence_pushes_unsettled", "gauge", "Accepted pushes that are not settled yet.");
    page.sample("git_fence_pushes_unsettled", &[], pushes.unsettled);

    page.family("git_fence_fence_pushes_total", "counter", "Pushes to a fence, by verdict.");
    for fence in fences {
        for (verdict, count) in [("accepted", fence.accepted), ("refused", fence.refused)] {
            let labels = [("fence", fence.fence.as_str()), ("verdict", verdict)];
            page.sample("git_fence_fence_pushes_total", &labels, count);
        }
    }
    page.family("git_fence_fence_mark", "gauge", "The mark of a fence: the largest token that has been spent.");
    for fence in fences {
        page.sample("git_fence_fence_mark", &[("fence", fence.fence.as_str())], fence.mark);
    }

    page.summary("git_fence_decision", "Time to decide on a push, including waits", waits_us);

    let help = "Leases that were granted, by how the previous ownership ended.";
    page.family("git_fence_lease_grants_total", "counter", help);
    for (reason, count) in &leases.granted_by_reason {
        page.sample("git_fence_lease_grants_total", &[("reason", reason)], count);
    }
    let help = "Requests about leases alone that were refused, by code. They are no pushes.";
    page.family("git_fence_lease_refused_total", "counter", help);
    for (code, count) in &leases.refused_by_code {
        page.sample("git_fence_lease_refused_total", &[("code", code)], count);
    }
    for (name, help, count) in [
        ("git_fence_lease_found_held_total", "Attempts to acquire a lease that was held.", leases.found_held),
        ("git_fence_lease_renewals_total", "Renewals of leases.", leases.renewed),
        ("git_fence_lease_releases_total", "Leases that were released.", leases.released),
        ("git_fence_lease_revocations_total", "Leases that were revoked.", leases.revoked),
        ("git_fence_lease_halts_total", "Fences that were halted.", leases.halted),
        ("git_fence_lease_resumptions_total", "Halted fences that were resumed.", leases.resumed),
    ] {
        page.family(name, "counter", help);
        page.sample(name, &[], count);
    }
    let help =
        "The TTL that the longest run of a fence that ended well suggests: one and a half times to twice its length.";
    page.family("git_fence_lease_suggested_ttl_seconds", "gauge", help);
    for fence in fences {
        if let Some(ttl) = fence.suggested_ttl_s {
            page.sample("git_fence_lease_suggested_ttl_seconds", &[("fence", fence.fence.as_str())], u64::from(ttl));
        }
    }
    page.summary("git_fence_lease_hold", "Time that leases were held, of those that ended", &leases.holds_us);
    let names = scheduled.first().map(JobFigures::all);
    for (nth, (name, help, _)) in names.into_iter().flatten().enumerate() {
        let name = format!("git_fence_scheduled_{name}_total");
        page.family(&name, "counter", help);
        for job in scheduled {
            let labels = [("fence", job.fence.as_str()), ("job", job.job.as_str())];
            page.sample(&name, &labels, job.all()[nth].2);
        }
    }
    page.text
}

struct Page {
    /// Already escaped.
    repository: String,
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The distribution of durations: what Prometheus calls a summary, and the maximum.
    fn summary(&mut self, name: &str, what: &str, lengths: &Lengths) {
        let seconds_of = format!("{name}_seconds");
        self.family(&seconds_of, "summary", &format!("{what}; quantiles are at most 1/32 too large."));
        for (quantile, us) in [("0.5", lengths.median), ("0.95", lengths.p95)] {
            let value = us.map_or("NaN".to_owned(), seconds);
            self.sample(&seconds_of, &[("quantile", quantile)], value);
        }
        self.sample(&format!("{seconds_of}_sum"), &[], seconds(lengths.sum));
        self.sample(&format!("{seconds_of}_count"), &[], lengths.count);
        let longest = format!("{name}_longest_seconds");
        self.family(&longest, "gauge", &format!("{what}: the longest."));
        self.sample(&longest, &[], seconds(lengths.max));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{name}{{repository=\"{}\"", self.repository);
        for (label, value) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

/// Label values may be any text; these three characters must be escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Exact: a sum of microseconds may not fit into the digits of a float.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_seconds_are_exact() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
        assert_eq!(seconds(1), "0.000001");
        assert_eq!(seconds(61_500_000), "61.500000");
    }
}
