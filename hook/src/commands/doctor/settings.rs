//! Whether the settings say what their owner means.

use crate::{
    commands::doctor::gate::{Finding, Severity, config},
    host::syslog,
    repository::{
        Repository,
        git::{self, shell_quoted},
        settings::{
            self, Made, SettingsError,
            table::{SETTINGS, Setting},
        },
    },
};
use git_fence_core::{FenceName, Mode, RefName, Rules, Settings, pattern_matches};
use gix::bstr::ByteSlice;

/// The settings in force, or the default ones where they cannot be read; and what is wrong with them.
pub(crate) fn check(repository: &Repository) -> (Settings, Vec<Finding>) {
    let mut findings = unknown_names(repository);
    findings.extend(not_of_the_owner(repository));
    let settings = settings::read(&repository.config).unwrap_or_else(|error| {
        findings.push(unreadable(&error, repository));
        Settings::default()
    });
    for rules in &settings.fences {
        findings.extend(mode(rules, repository));
    }
    if settings.receive_pack_is_elsewhere {
        let sentence = "fence.receivePack is none, the bounded form: a push that takes longer than fence.wait counts as over while it may still write";
        findings.push(Finding::warning("bounded-form", sentence, config(repository, "fence.receivePack ancestor")));
    }
    findings.extend(proc_receive(repository, &settings));
    findings.extend(guards_nothing(repository, &settings));
    if let Some(Err(error)) = settings.syslog.as_ref().map(syslog::connect) {
        let sentence = format!("fence.syslog is set, but nobody listens there: {error}");
        findings.push(Finding::warning("syslog-unheard", sentence, unset(repository, "fence.syslog")));
    }
    (settings, findings)
}

/// Settings that whoever made them may take for those of this repository, and files that are not seen here.
fn not_of_the_owner(repository: &Repository) -> Vec<Finding> {
    let note = |name, sentence| Finding { name, severity: Severity::Note, sentence, mend: None };
    let ignored = repository.ignored.iter().map(|Made { key, value, origin }| {
        let why = "has no effect: a user's file or environment counts only where that user owns the repository";
        note("setting-ignored", format!("{key} = {value} from '{origin}' {why}"))
    });
    let unread = repository.unread.iter().map(|path| {
        let why = "cannot be read from here: what it sets for pushes is not checked";
        note("setting-unread", format!("'{}' of the repository's owner {why}", path.display()))
    });
    ignored.chain(unread).collect()
}

fn mode(rules: &Rules, repository: &Repository) -> Option<Finding> {
    let fence = &rules.fence;
    let (name, what) = match rules.mode {
        Mode::Enforce => return None,
        Mode::Observe => ("mode-observe", "only observes: it refuses nothing"),
        Mode::Off => ("mode-off", "is off: it checks nothing"),
    };
    let mend = config(repository, &format!("fence.{fence}.mode enforce"));
    Some(Finding::note(name, format!("fence '{fence}' {what}"), mend))
}

fn unreadable(error: &SettingsError, repository: &Repository) -> Finding {
    let mend = match error {
        SettingsError::Value { key, .. } => unset(repository, key),
        SettingsError::Pattern { key, pattern, .. } => {
            let level = level_of(repository, key);
            let pattern = shell_quoted(pattern);
            config(repository, &format!("{level}--fixed-value --unset-all {} {pattern}", shell_quoted(key)))
        }
        SettingsError::Name { name, .. } => {
            config(repository, &format!("--remove-section {}", shell_quoted(&format!("fence.{name}"))))
        }
        SettingsError::GuardsNothing(fence) => {
            config(repository, &format!("--add fence.{fence}.refs 'refs/heads/{fence}/*'"))
        }
    };
    Finding::error("setting-unreadable", format!("{error}: every push is refused"), mend)
}

/// Takes a setting away at the level where it stands.
fn unset(repository: &Repository, key: &str) -> String {
    config(repository, &format!("{}--unset-all {}", level_of(repository, key), shell_quoted(key)))
}

fn level_of(repository: &Repository, key: &str) -> &'static str {
    match git::scope_of(&repository.git_dir, key).as_deref() {
        Some("global") => "--global ",
        Some("system") => "--system ",
        Some("worktree") => "--worktree ",
        _ => "",
    }
}

/// A misspelt name is not an error to the gate (it may be a newer version's), so it is said here.
fn unknown_names(repository: &Repository) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for section in repository.config.sections_by_name("fence").into_iter().flatten() {
        let fence = section.header().subsection_name().map(|name| name.to_str_lossy().into_owned());
        for name in section.value_names() {
            let known = SETTINGS.iter().find(|setting| setting.is_called(&name));
            let for_all = known.is_some_and(Setting::is_for_all);
            if known.is_some() && (fence.is_none() || !for_all) {
                continue;
            }
            let key = fence.as_ref().map_or(format!("fence.{name}"), |fence| format!("fence.{fence}.{name}"));
            let why = match nearest(&name) {
                _ if for_all => format!("it counts only as fence.{name}, for all fences together"),
                Some(near) => format!("is {near} meant?"),
                None => "this version knows no such setting".to_owned(),
            };
            let finding =
                Finding::warning("setting-unknown", format!("{key} has no effect: {why}"), unset(repository, &key));
            if !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    found
}

fn nearest(name: &str) -> Option<&'static str> {
    let all = SETTINGS.iter().map(|setting| setting.key);
    let far = |known: &str| distance(&known.to_ascii_lowercase(), &name.to_ascii_lowercase());
    all.min_by_key(|known| far(known)).filter(|known| far(known) <= 2)
}

/// How many letters differ, are missing or too many.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Refs that a `proc-receive` hook takes over move, or do not, as that hook likes.
fn proc_receive(repository: &Repository, settings: &Settings) -> Option<Finding> {
    let key = "receive.procReceiveRefs";
    let values = repository.config.strings(key).unwrap_or_default();
    let overlaps = |value: &[u8]| {
        let (modifiers, prefix) = value.split_once_str(":").unwrap_or((b"", value));
        modifiers.contains(&b'!') || settings.fences.iter().flat_map(|rules| &rules.refs).any(|it| meets(it, prefix))
    };
    let value = values.iter().find(|value| overlaps(value))?;
    let sentence =
        format!("{key} = {value} hands guarded refs to the proc-receive hook, and what that moves is not seen");
    let severity = Severity::Warning;
    Some(Finding { name: "proc-receive", severity, sentence, mend: Some(unset(repository, key)) })
}

/// Fences, and patterns of fences, that match no ref there is: a slip in a name leaves what was meant
/// open. Nothing is said where there are no refs yet, nor of what is guarded by default.
fn guards_nothing(repository: &Repository, settings: &Settings) -> Vec<Finding> {
    let listed = git::ask(&repository.common_dir, &["for-each-ref", "--format=%(refname)"]).unwrap_or_default();
    let refs: Vec<RefName> = listed.lines().map(RefName::new).filter(|name| !name.is_lease()).collect();
    let by_default = Rules::for_repo().refs;
    let is_made = |rules: &&Rules| rules.mode != Mode::Off && rules.refs != by_default;
    let made = settings.fences.iter().filter(is_made).filter(|_| !refs.is_empty());
    made.flat_map(|rules| {
        let fence = &rules.fence;
        let key = if *fence == FenceName::repo() { "fence.refs".to_owned() } else { format!("fence.{fence}.refs") };
        let finding = |severity, sentence| Finding { name: "guards-nothing", severity, sentence, mend: None };
        if !refs.iter().any(|name| settings.fence_of(name) == Some(rules)) {
            let all = rules.refs.join(" ");
            let sentence = format!("fence '{fence}' guards no ref that exists: is {key} right? It is {all}");
            return vec![finding(Severity::Warning, sentence)];
        }
        let is_idle = |pattern: &&String| !refs.iter().any(|name| pattern_matches(pattern, name));
        let note = |pattern: &String| {
            finding(Severity::Note, format!("no ref that exists matches '{pattern}', a pattern of {key}"))
        };
        rules.refs.iter().filter(is_idle).map(note).collect()
    })
    .collect()
}

/// Whether a ref below `prefix` can match `pattern`, judged by what stands before its first wildcard.
fn meets(pattern: &str, prefix: &[u8]) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default().as_bytes();
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let is_below = literal.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    is_below || (pattern.len() > literal.len() && prefix.starts_with(literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_told_from_a_strange_one() {
        assert_eq!(nearest("mod"), Some("mode"));
        assert_eq!(nearest("maxjmup"), Some("maxJump"));
        assert_eq!(nearest("colour"), None);
    }

    #[test]
    fn a_prefix_meets_the_patterns_below_and_above_it() {
        for (pattern, prefix, expected) in [
            ("refs/heads/*", "refs/heads", true),
            ("refs/heads/*", "refs/heads/main", true),
            ("refs/heads/*", "refs/for", false),
            ("refs/heads/*", "refs", true),
            ("refs/heads/main", "refs/heads/mai", false),
            ("refs/heads/main", "refs/heads/main", true),
        ] {
            assert_eq!(meets(pattern, prefix.as_bytes()), expected, "{pattern} {prefix}");
        }
    }
}
