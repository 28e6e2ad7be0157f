//! The findings in many repositories: the same finding once, with the repositories that have it, and a summary.

use crate::commands::doctor::{
    Diagnosis,
    finding::{Finding, Severity},
};
use std::io::{self, Write};

/// Stands for the repository in a finding of several.
const REPOSITORY: &str = "REPO";
/// How many repositories are named for a note; all are for a problem.
const NAMED_FOR_A_NOTE: usize = 3;

/// A finding, and where it is.
struct Group<'a> {
    finding: Finding,
    repositories: Vec<&'a str>,
    /// As in the first repository.
    first: &'a Finding,
}

/// Shows each finding once, the worst last, where people look first.
pub(super) fn show(all: &[Diagnosis], out: &mut impl Write) -> io::Result<()> {
    let mut groups = grouped(all);
    groups.sort_by_key(|group| group.finding.severity);
    for group in &groups {
        group.show(out)?;
    }
    Ok(())
}

/// `30 repositories: 26 ok, 3 with notes, 1 with problems`.
pub(super) fn summary(all: &[Diagnosis]) -> String {
    let problems = all.iter().filter(|one| !one.sound).count();
    let notes = all.iter().filter(|one| one.sound && !one.findings.is_empty()).count();
    let ok = all.len() - problems - notes;
    let what = if all.len() == 1 { "repository" } else { "repositories" };
    format!("{} {what}: {ok} ok, {notes} with notes, {problems} with problems", all.len())
}

fn grouped(all: &[Diagnosis]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in all {
        for finding in &one.findings {
            let general = generalized(finding, one);
            match groups.iter_mut().find(|group| group.finding == general) {
                Some(group) => group.repositories.push(&one.repository),
                None => groups.push(Group { finding: general, repositories: vec![&one.repository], first: finding }),
            }
        }
    }
    groups
}

/// The finding without the names of this repository.
fn generalized(finding: &Finding, one: &Diagnosis) -> Finding {
    let without = |text: &str| text.replace(&one.git_dir, REPOSITORY).replace(&one.repository, REPOSITORY);
    Finding { sentence: without(&finding.sentence), fix: finding.fix.as_deref().map(without), ..finding.clone() }
}

impl Group<'_> {
    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        let Group { finding, repositories, first } = self;
        if let [only] = repositories[..] {
            first.show(out)?;
            return writeln!(out, "  in {only}");
        }
        finding.show(out)?;
        let named = if finding.severity == Severity::Note { NAMED_FOR_A_NOTE } else { repositories.len() };
        let more = repositories.len().saturating_sub(named);
        writeln!(out, "  in {} repositories:", repositories.len())?;
        for repository in repositories.iter().take(named) {
            writeln!(out, "    {repository}")?;
        }
        if more > 0 {
            writeln!(out, "    and {more} more: --verbose names them")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(name: &str, findings: Vec<Finding>) -> Diagnosis {
        let repository = format!("srv/{name}.git");
        let sound = findings.iter().all(|finding| finding.severity == Severity::Note);
        Diagnosis { git_dir: format!("/{repository}"), repository, sound, findings }
    }

    #[test]
    fn same_finding_is_shown_once_and_a_summary_counts() {
        let note = |name: &str| Finding::note("n", "only observes", format!("git-fence-hook enforce /srv/{name}.git"));
        let error = |name: &str| Finding::error("e", format!("'/srv/{name}.git/hooks' is gone"), "x");
        let all = [
            diagnosis("a", vec![note("a")]),
            diagnosis("b", vec![error("b"), note("b")]),
            diagnosis("c", vec![note("c")]),
            diagnosis("d", vec![note("d")]),
            diagnosis("e", vec![]),
        ];
        let mut out = Vec::new();
        show(&all, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "note: n: only observes\n  fix: git-fence-hook enforce REPO\n  in 4 repositories:\n    srv/a.git\n    \
             srv/b.git\n    srv/c.git\n    and 1 more: --verbose names them\n\
             error: e: '/srv/b.git/hooks' is gone\n  fix: x\n  in srv/b.git\n"
        );
        assert_eq!(summary(&all), "5 repositories: 1 ok, 3 with notes, 1 with problems");
    }
}
