//! Checks whether the settings do what their author intended.

use crate::{
    commands::{
        advice::{self, config},
        doctor::finding::{Finding, Severity},
        mode::plan,
    },
    host::{
        hook_file::{HookFile, Part},
        layout::{Layout, Site},
        syslog,
    },
    repository::{
        Repository,
        git::{self, shell_quoted},
        settings::{
            self, SettingsError,
            configured::{ConfiguredSetting, configured},
            table::{SETTINGS, Setting},
        },
    },
};
use git_fence_core::{FenceName, Mode, RefName, Rules, Settings, clone_setting::CLONE_SETTINGS, pattern_matches};
use gix::bstr::ByteSlice;

/// The settings in force (the defaults if they cannot be read), and what is wrong with them.
pub(crate) fn check(repository: &Repository) -> (Settings, Vec<Finding>) {
    let mut findings = unknown_names(repository);
    findings.extend(not_of_the_owner(repository));
    let settings = settings::read(&repository.config).unwrap_or_else(|error| {
        findings.push(unreadable(&error, repository));
        Settings::default()
    });
    let configured = configured(&repository.config);
    for rules in &settings.fences {
        findings.extend(mode(rules, repository, &configured));
    }
    findings.extend(overridden(repository, &configured));
    findings.extend(receive_pack(repository, &settings));
    findings.extend(proc_receive(repository, &settings));
    findings.extend(guards_nothing(repository, &settings));
    if let Some(Err(error)) = settings.syslog.as_ref().map(syslog::connect) {
        let sentence = format!("fence.syslog is set, but nothing listens there: {error}");
        findings.push(Finding::warning("syslog-unheard", sentence, unset(repository, "fence.syslog")));
    }
    (settings, findings)
}

/// Whether the gate looks for the receive-pack where it is. GitLab's is elsewhere, and nothing can be done about it.
fn receive_pack(repository: &Repository, settings: &Settings) -> Option<Finding> {
    let site = Site::of(repository, None).ok().filter(|site| site.layout == Layout::Gitlab);
    let gate_is_there = |site: Site| matches!(HookFile::at(&site.hook(Part::Gate)), Ok(HookFile::Ours(_)));
    let is_gitlab = site.is_some_and(gate_is_there);
    let bounded = "(bounded form): a push that takes longer than fence.wait counts as over, but may still write";
    match (settings.receive_pack_is_elsewhere, is_gitlab) {
        (false, false) => None,
        (true, false) => {
            let sentence = format!("fence.receivePack is none {bounded}");
            Some(Finding::warning("bounded-form", sentence, config(repository, "fence.receivePack ancestor")))
        }
        (true, true) => {
            let sentence = format!("GitLab starts hooks outside of receive-pack {bounded}");
            Some(Finding { fix: None, ..Finding::note("bounded-form", sentence, "") })
        }
        (false, true) => {
            let sentence =
                "GitLab starts hooks outside of receive-pack, and fence.receivePack is not none: every push is refused";
            Some(Finding::error("receive-pack-unseen", sentence, config(repository, "fence.receivePack none")))
        }
    }
}

/// Settings that have no effect here although their author may think so, and files that cannot be read.
fn not_of_the_owner(repository: &Repository) -> Vec<Finding> {
    let note = |name, sentence| Finding { name, severity: Severity::Note, sentence, fix: None };
    let ignored = repository.ignored.iter().map(|ConfiguredSetting { key, value, origin, .. }| {
        let why = "has no effect: a user's file or environment counts only if that user owns the repository";
        note("setting-ignored", format!("{key} = {value} from '{origin}' {why}"))
    });
    let unread = repository.unread.iter().map(|path| {
        let why = "cannot be read: its settings are not checked";
        note("setting-unread", format!("the configuration file '{}' of the repository's owner {why}", path.display()))
    });
    ignored.chain(unread).collect()
}

fn mode(rules: &Rules, repository: &Repository, configured: &[ConfiguredSetting]) -> Option<Finding> {
    let fence = &rules.fence;
    let (name, what) = match rules.mode {
        Mode::Enforce => return None,
        Mode::Observe => ("mode-observe", "only observes and refuses nothing"),
        Mode::Off => ("mode-off", "is off and checks nothing"),
    };
    let has_own = plan::with_own_mode(configured).contains(fence);
    let command = if has_own { format!("enforce --fence {fence}") } else { "enforce".to_owned() };
    Some(Finding::note(name, format!("fence '{fence}' {what}"), advice::gate(repository, &command)))
}

/// Settings that somebody may change and wonder why nothing happens.
fn overridden(repository: &Repository, configured: &[ConfiguredSetting]) -> Vec<Finding> {
    let finding = |one: &ConfiguredSetting| {
        let by = one.overridden_by.as_ref()?;
        let sentence = format!(
            "{} = {} from '{}' has no effect on fence '{}': overridden by {} = {} from '{}'",
            one.key,
            one.value,
            one.origin,
            one.subject()?.0.unwrap_or("repo"),
            by.key,
            by.value,
            by.origin
        );
        let fix = advice::remove(repository, by, &one.origin);
        Some(Finding { name: "setting-overridden", severity: Severity::Note, sentence, fix })
    };
    configured.iter().filter_map(finding).collect()
}

fn unreadable(error: &SettingsError, repository: &Repository) -> Finding {
    let fix = match error {
        SettingsError::Value { key, .. } => unset(repository, key),
        SettingsError::Pattern { key, pattern, .. } => {
            let pattern = shell_quoted(pattern);
            where_set(repository, key, &format!("--fixed-value --unset-all {} {pattern}", shell_quoted(key)))
        }
        SettingsError::Name { name, .. } => {
            config(repository, &format!("--remove-section {}", shell_quoted(&format!("fence.{name}"))))
        }
        SettingsError::GuardsNothing(fence) if *fence == FenceName::repo() => {
            // Without the empty value, the default counts again.
            let own = "fence.repo.refs";
            unset(repository, if repository.place_of(own).is_some() { own } else { "fence.refs" })
        }
        SettingsError::GuardsNothing(fence) => {
            config(repository, &format!("--add fence.{fence}.refs 'refs/heads/{fence}/*'"))
        }
        // Which of the two is meant, only its author knows.
        SettingsError::Store { .. } | SettingsError::Family { .. } => {
            let sentence = format!("{error}: every push is refused");
            return Finding { fix: None, ..Finding::error("setting-unreadable", sentence, "") };
        }
    };
    Finding::error("setting-unreadable", format!("{error}: every push is refused"), fix)
}

/// The command that removes a setting where it is set.
fn unset(repository: &Repository, key: &str) -> String {
    where_set(repository, key, &format!("--unset-all {}", shell_quoted(key)))
}

/// The command that changes the file in which `key` is set. Its name, not its level: the global file is that of the owner.
fn where_set(repository: &Repository, key: &str, args: &str) -> String {
    let file = repository.place_of(key).and_then(|place| place.path);
    match file.filter(|file| *file != repository.common_dir.join("config")) {
        Some(file) => format!("git config --file {} {args}", advice::quoted(&file)),
        None => config(repository, args),
    }
}

/// The gate ignores a misspelt name (it may belong to a newer version), so it is reported here.
fn unknown_names(repository: &Repository) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for section in repository.config.sections_by_name("fence").into_iter().flatten() {
        let fence = section.header().subsection_name().map(|name| name.to_str_lossy().into_owned());
        for name in section.value_names() {
            let known = SETTINGS.iter().find(|setting| setting.is_called(&name));
            let for_all = known.is_some_and(Setting::is_for_all);
            let is_of_clones = CLONE_SETTINGS.iter().any(|setting| name.eq_ignore_ascii_case(setting.key));
            if fence.is_none() && is_of_clones {
                continue;
            }
            if known.is_some() && (fence.is_none() || !for_all) {
                continue;
            }
            let key = fence.as_ref().map_or(format!("fence.{name}"), |fence| format!("fence.{fence}.{name}"));
            let why = match nearest(&name) {
                _ if for_all => format!("it can only be set as fence.{name}, for all fences"),
                Some(near) => format!("did you mean {near}?"),
                None => "this version has no such setting".to_owned(),
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

/// The edit distance.
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

/// Refs that a `proc-receive` hook handles are moved by that hook, or not.
fn proc_receive(repository: &Repository, settings: &Settings) -> Option<Finding> {
    let key = "receive.procReceiveRefs";
    let values = repository.config.strings(key).unwrap_or_default();
    let is_affected = |value: &[u8]| {
        let (modifiers, prefix) = value.split_once_str(":").unwrap_or((b"", value));
        modifiers.contains(&b'!') || settings.fences.iter().flat_map(|rules| &rules.refs).any(|it| overlaps(it, prefix))
    };
    let value = values.iter().find(|value| is_affected(value))?;
    let sentence = format!(
        "{key} = {value} passes guarded refs to the proc-receive hook, and the gate does not see what it moves"
    );
    let severity = Severity::Warning;
    Some(Finding { name: "proc-receive", severity, sentence, fix: Some(unset(repository, key)) })
}

/// Fences and patterns that match no existing ref: a typo leaves the intended refs unguarded. Nothing is reported if
/// there are no refs yet, or for the default patterns.
fn guards_nothing(repository: &Repository, settings: &Settings) -> Vec<Finding> {
    let listed = git::ask(&repository.common_dir, &["for-each-ref", "--format=%(refname)"]).unwrap_or_default();
    let refs: Vec<RefName> = listed.lines().map(RefName::new).filter(|name| !name.is_lease()).collect();
    let by_default = Rules::for_repo().refs;
    let is_made = |rules: &&Rules| rules.mode != Mode::Off && rules.refs != by_default;
    let made = settings.fences.iter().filter(is_made).filter(|_| !refs.is_empty());
    made.flat_map(|rules| {
        let fence = &rules.fence;
        let key = if *fence == FenceName::repo() { "fence.refs".to_owned() } else { format!("fence.{fence}.refs") };
        let finding = |severity, sentence| Finding { name: "guards-nothing", severity, sentence, fix: None };
        if !refs.iter().any(|name| settings.fence_of(name) == Some(rules)) {
            let all = rules.refs.join(" ");
            let sentence = format!("fence '{fence}' guards no existing ref: check {key}, which is {all}");
            return vec![finding(Severity::Warning, sentence)];
        }
        let is_idle = |pattern: &&String| !refs.iter().any(|name| pattern_matches(pattern, name));
        let note = |pattern: &String| {
            finding(Severity::Note, format!("no existing ref matches '{pattern}', a pattern of {key}"))
        };
        rules.refs.iter().filter(is_idle).map(note).collect()
    })
    .collect()
}

/// Whether a ref below `prefix` can match `pattern`, judging by the part before its first wildcard.
fn overlaps(pattern: &str, prefix: &[u8]) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default().as_bytes();
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let is_below = literal.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    is_below || (pattern.len() > literal.len() && prefix.starts_with(literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_suggested_only_for_a_typo() {
        assert_eq!(nearest("mod"), Some("mode"));
        assert_eq!(nearest("maxjmup"), Some("maxJump"));
        assert_eq!(nearest("colour"), None);
    }

    #[test]
    fn prefix_overlaps_patterns_below_and_above_it() {
        for (pattern, prefix, expected) in [
            ("refs/heads/*", "refs/heads", true),
            ("refs/heads/*", "refs/heads/main", true),
            ("refs/heads/*", "refs/for", false),
            ("refs/heads/*", "refs", true),
            ("refs/heads/main", "refs/heads/mai", false),
            ("refs/heads/main", "refs/heads/main", true),
        ] {
            assert_eq!(overlaps(pattern, prefix.as_bytes()), expected, "{pattern} {prefix}");
        }
    }
}
