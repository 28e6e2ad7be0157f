//! What `enforce` and `observe` have changed.

use crate::{
    commands::{
        advice,
        mode::plan::{Extent, ModeInForce, WantedMode, with_own_mode},
    },
    failure::CommandError,
    repository::{Repository, settings::configured::ConfiguredSetting},
};
use git_fence_core::FenceName;
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
pub(super) struct ModeReport {
    pub(super) repository: String,
    fences: Vec<FenceChange>,
    /// Why pushes are not checked, whatever the mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip)]
    wanted: &'static str,
    #[serde(skip)]
    change_others: String,
}

/// The mode of one fence.
#[derive(Serialize)]
pub(super) struct FenceChange {
    fence: FenceName,
    before: String,
    after: String,
    /// Where the mode is set now.
    from: String,
    /// The file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip)]
    was_from: String,
    /// Whether it was asked to change.
    asked: bool,
    #[serde(skip)]
    has_own: bool,
}

impl FenceChange {
    pub(super) fn of(fence: &FenceName, before: &[ConfiguredSetting], after: &[ConfiguredSetting]) -> FenceChange {
        let (was, is) = (ModeInForce::of(fence, before), ModeInForce::of(fence, after));
        FenceChange {
            fence: fence.clone(),
            from: is.source(),
            file: is.from.as_ref().map(|from| from.origin.clone()),
            was_from: was.source(),
            before: was.mode,
            after: is.mode,
            asked: true,
            has_own: with_own_mode(before).contains(fence),
        }
    }

    /// `observe -> enforce  (local fence.mode)`.
    fn shown(&self) -> String {
        let FenceChange { before, after, from, was_from, .. } = self;
        if before == after {
            return format!("{after}, as before  ({from})");
        }
        let was = if from == was_from { String::new() } else { format!(", was {was_from}") };
        format!("{before} -> {after}  ({from}{was})")
    }
}

impl ModeReport {
    pub(super) fn of(
        repository: &Repository,
        mut fences: Vec<FenceChange>,
        wanted: WantedMode,
        extent: &Extent,
    ) -> ModeReport {
        for change in &mut fences {
            change.asked = match extent {
                Extent::All => true,
                Extent::Shared => !change.has_own,
                Extent::One(fence) => *fence == change.fence,
            };
        }
        ModeReport {
            repository: repository.common_dir.display().to_string(),
            fences,
            warnings: Vec::new(),
            error: None,
            wanted: wanted.word(),
            change_others: advice::gate(repository, &format!("{} --fence", wanted.word())),
        }
    }

    pub(super) fn failed(dir: &Path, failure: &CommandError) -> ModeReport {
        ModeReport {
            repository: dir.display().to_string(),
            fences: Vec::new(),
            warnings: Vec::new(),
            error: Some(failure.in_one_line()),
            wanted: "",
            change_others: String::new(),
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.fences.iter().any(|change| change.before != change.after)
    }

    /// Fails if something that was not changed here still decides: an included file, or the worktree's settings.
    pub(super) fn require_wanted(&self, is_dry_run: bool) -> Result<(), CommandError> {
        let still = self.fences.iter().find(|change| change.asked && change.after != self.wanted);
        let Some(FenceChange { fence, after, from, file, .. }) = still.filter(|_| !is_dry_run) else { return Ok(()) };
        let file = file.as_deref().unwrap_or("the defaults");
        Err(CommandError::Other {
            what: format!(
                "fence '{fence}' is still in mode '{after}', by {from} in '{file}', which counts before the repository's own settings"
            ),
            hint: "change it there".to_owned(),
        })
    }

    /// All in one line: what changed, what was left, and what is wrong.
    pub(super) fn line(&self, is_dry_run: bool) -> String {
        let mut parts: Vec<String> = Vec::new();
        let of_repo = self.fences.first();
        for change in self.fences.iter().filter(|change| change.asked) {
            let is_like_repo = of_repo.is_some_and(|repo| !change.has_own && repo.asked && repo.after == change.after);
            if change.fence == FenceName::repo() {
                parts.push(change.shown());
            } else if !is_like_repo {
                parts.push(format!("fence '{}' {}", change.fence, change.shown()));
            }
        }
        for change in self.fences.iter().filter(|change| !change.asked && change.after != self.wanted) {
            let how = self.change_others.replacen("--fence", &format!("--fence {}", change.fence), 1);
            parts.push(format!(
                "fence '{}' stays {}  ({}); change it with  {how}",
                change.fence, change.after, change.from
            ));
        }
        parts.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        let would = if is_dry_run && self.is_changed() { "would change: " } else { "" };
        format!("{would}{}", parts.join("; "))
    }
}
