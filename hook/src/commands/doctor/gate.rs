//! Checks whether pushes reach the gate at all.

use crate::{
    commands::{
        advice::{config, install, quoted},
        doctor::finding::{Finding, Severity},
    },
    failure::CommandError,
    host::{
        hook_file::{self, HookFile, Part, is_executable},
        kept_hook,
        layout::{Layout, Site},
    },
    push::companion,
    repository::{
        Repository,
        git::WantedSetting,
        settings::{self, configured::ConfigLevel},
    },
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

/// Why pushes might not reach the gate of this repository: for `status`.
pub(crate) fn flaws(repository: &Repository) -> Result<Vec<String>, CommandError> {
    let bad = check(repository)?.into_iter().filter(|finding| finding.severity > Severity::Note);
    Ok(bad
        .map(|Finding { sentence, fix, .. }| match fix {
            Some(fix) => format!("{sentence}; fix it with  {fix}"),
            None => sentence,
        })
        .collect())
}

/// Everything that keeps pushes from reaching the gate, or tokens from being sent.
pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, CommandError> {
    let site = Site::of(repository, None)?;
    let mut findings: Vec<Finding> = hook(repository, &site)?.into_iter().collect();
    findings.extend(companion(repository, &site)?);
    findings.extend(hooks_path(repository, &site));
    if let Some(second) = site.second_hook() {
        let sentence =
            format!("the gate is installed twice, also as '{}': every push would wait for itself", second.display());
        findings.push(Finding::error("installed-twice", sentence, format!("rm {}", quoted(&second))));
    }
    if !WantedSetting::one("receive.advertisePushOptions", "true").is_fulfilled(repository) {
        let sentence = "push options are not advertised: only trailers carry tokens";
        findings.push(Finding::warning("push-options-off", sentence, install(repository)));
    }
    for (part, then) in [(Part::Gate, "no push is checked"), (Part::Companion, "every push is refused")] {
        if companion::is_disabled(part, repository) {
            let key = format!("hook.{}.enabled", part.name());
            let sentence = format!("{key} is false: git 2.54 and newer do not run that hook, and {then}");
            // The repository's own value overrides all others.
            findings.push(Finding::error("hook-disabled", sentence, config(repository, &format!("{key} true"))));
        }
    }
    Ok(findings)
}

/// The companion. Without it, a spent token could become valid again, so the gate refuses.
fn companion(repository: &Repository, site: &Site) -> Result<Option<Finding>, CommandError> {
    if !matches!(HookFile::at(&site.hook(Part::Gate))?, HookFile::Ours(_)) {
        // No gate needs it.
        return Ok(None);
    }
    let Some(why) = companion::find_problem(site.hooks()) else { return Ok(None) };
    let optional = settings::read(&repository.config).is_ok_and(|settings| settings.companion_is_optional);
    Ok(Some(if optional {
        let sentence = format!(
            "{why}: fence.companion is optional, the weaker form: if a ref is reset before the next push, its token can be used again"
        );
        Finding::warning("companion-missing", sentence, install(repository))
    } else {
        Finding::error("companion-missing", format!("{why}: every push is refused"), install(repository))
    }))
}

fn hook(repository: &Repository, site: &Site) -> Result<Option<Finding>, CommandError> {
    let path = site.hook(Part::Gate);
    let shown = path.display();
    let fix = install(repository);
    Ok(match HookFile::at(&path)? {
        HookFile::Nothing => {
            let elsewhere =
                repository.setting("core.hooksPath").filter(|_| !site.hooks().starts_with(&repository.common_dir));
            let why = elsewhere.map_or(String::new(), |_| " (set by core.hooksPath)".to_owned());
            let sentence = format!("hook '{shown}'{why} is missing: no push is checked");
            let is_no_dir = site.hooks().exists() && !site.hooks().is_dir();
            Some(Finding::error("hook-missing", sentence, if is_no_dir { own_hooks(repository) } else { fix }))
        }
        HookFile::NoHook => {
            let sentence = format!("'{shown}' is not a file or link: git cannot run it");
            let away = quoted(&path.with_extension("moved-away"));
            Some(Finding::error("hook-not-a-file", sentence, format!("mv {} {away} && {fix}", quoted(&path))))
        }
        HookFile::Others if hook_file::calls(Part::Gate, &path) => {
            let sentence = format!("the hook '{shown}' is not the gate's, but calls it, perhaps not for every push");
            Some(Finding { fix: None, ..Finding::note("hook-calls-gate", sentence, "") })
        }
        HookFile::Others => {
            let sentence = format!("the hook '{shown}' is not the gate's and does not call it: no push is checked");
            let kept = kept_hook::kept_path(&path);
            let is_in_the_way = HookFile::at(&kept)? != HookFile::Nothing && !kept_hook::is_identical(&path);
            let away = kept.parent().unwrap_or(&kept);
            let aside = format!("mv {} {} && {fix}", quoted(away), quoted(&away.with_extension("old")));
            Some(Finding::error("hook-not-ours", sentence, if is_in_the_way { aside } else { fix }))
        }
        HookFile::Ours(_) if !is_executable(&path) => Some(Finding::error(
            "hook-not-executable",
            format!("the hook '{shown}' is not executable: no push is checked"),
            fix,
        )),
        HookFile::Ours(_) if site.layout == Layout::Dispatcher && !is_executable(&site.door(Part::Gate)) => {
            let door = site.door(Part::Gate);
            let sentence = format!("git does not run the dispatcher '{}': no push is checked", door.display());
            Some(Finding::error("dispatcher-not-executable", sentence, format!("chmod +x {}", quoted(&door))))
        }
        HookFile::Ours(content) => {
            hook_file::program_in(&content).and_then(|program| self::program(repository, &program))
        }
    })
}

/// Checks the program that the hook starts.
fn program(repository: &Repository, program: &Path) -> Option<Finding> {
    let shown = program.display();
    if !is_executable(program) {
        let sentence = format!("the hook's program '{shown}' is missing or not executable: every push is refused");
        return Some(Finding::error("program-missing", sentence, install(repository)));
    }
    let is_shared = repository
        .setting("core.sharedRepository")
        .is_some_and(|value| !matches!(value.as_str(), "umask" | "false" | "0"));
    let owner = |path: &Path| fs::metadata(path).map(|found| found.uid()).ok();
    if owner(program) == owner(&repository.common_dir) && !is_shared {
        return None;
    }
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.permissions().mode());
    let closed = program.ancestors().skip(1).find(|dir| mode(dir) & 0o001 == 0);
    let (path, bits) = match closed {
        Some(dir) => (dir, "o+x"),
        None if mode(program) & 0o005 != 0o005 => (program, "o+rx"),
        None => return None,
    };
    let sentence = format!(
        "not every user may run the hook's program '{shown}', because of the permissions of '{}': the pushes of others are refused",
        path.display()
    );
    Some(Finding::warning("program-private", sentence, format!("chmod {bits} {}", quoted(path))))
}

/// The commands that give the repository its own hooks directory, wherever `core.hooksPath` is set.
fn own_hooks(repository: &Repository) -> String {
    let own = format!("core.hooksPath {}", quoted(&repository.common_dir.join("hooks")));
    format!("{} && {}", config(repository, &format!("--replace-all {own}")), install(repository))
}

fn hooks_path(repository: &Repository, site: &Site) -> Option<Finding> {
    if site.layout == Layout::Gitlab {
        // Gitaly sets its own.
        return None;
    }
    let value = repository.setting("core.hooksPath")?;
    let hooks = site.hooks().display();
    let level = repository.level_of("core.hooksPath")?;
    let own = own_hooks(repository);
    if level < ConfigLevel::Local {
        let level = level.word();
        let sentence =
            format!("core.hooksPath is set for all repositories ({level}): '{hooks}' is used by each of them");
        return Some(Finding::note("hooks-path-shared", sentence, own));
    }
    let is_relative = Path::new(&value).is_relative() && !value.starts_with('~');
    is_relative.then(|| {
        let sentence =
            format!("core.hooksPath is relative to the directory in which git runs hooks: '{hooks}' for a push");
        Finding::note("hooks-path-relative", sentence, own)
    })
}
