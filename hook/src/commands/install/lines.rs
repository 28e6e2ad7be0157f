//! What `install` says: what it does, what was there, and what it leaves.

use crate::{
    commands::{
        advice::{self, config},
        install::{HookPlan, Job, takeover::Raise, wanted},
        mode::plan::ModeInForce,
    },
    host::{
        hook_file::{HookFile, Part},
        kept_hook,
    },
    repository::{
        git::{WantedSetting, shell_quoted},
        settings::configured::{ConfiguredSetting, configured},
    },
};
use git_fence_core::{FenceName, LeasePart, MarkLine};

impl Job {
    /// One line for each part, whether it was already there or not.
    pub(super) fn lines(&self, done: &str) -> Vec<String> {
        let mut lines = vec![format!("log           {}  {}", self.fence_dir.log().display(), self.log.word(done))];
        for setting in &self.wanted {
            let what = if setting.key.starts_with("fence.") { "setting" } else { "push options" };
            lines.push(format!("{what:<12}  {}", self.setting_line(setting, done)));
        }
        for Raise { fence, mark, lease } in &self.raises {
            lines.push(format!("mark          of fence '{fence}' at least {mark}, from '{lease}'  {done}"));
        }
        for MarkLine { fence, at, mark, .. } in &self.marks {
            let from = if at.is_some() { "from" } else { "without" };
            let name = LeasePart::Mark.of(fence);
            lines.push(format!("mark          of fence '{fence}' at least {mark}, {from} '{name}'  {done}"));
        }
        for piece in &self.pieces {
            lines.extend(piece.lines(done));
        }
        lines.push(format!("mode          {}", self.mode_line()));
        lines.extend(self.left_lines().into_iter().map(|line| format!("left          {line}")));
        lines
    }

    fn setting_line(&self, setting: &WantedSetting, done: &str) -> String {
        let WantedSetting { key, value, .. } = setting;
        if setting.is_fulfilled(&self.repository) {
            return format!("{key} = {value}  already there");
        }
        format!("{}  {done}", self.change_of(setting))
    }

    /// `fence.mode  not set -> observe`; a value that is added to a list is `fence.exempt  + anna`.
    fn change_of(&self, setting: &WantedSetting) -> String {
        let WantedSetting { key, value, many } = setting;
        if *many {
            return format!("{key}  + {value}");
        }
        let from = self.repository.setting(key).unwrap_or_else(|| "not set".to_owned());
        format!("{key}  {from} -> {value}")
    }

    /// The mode before and after, where it is set, and how to enforce if it does not.
    fn mode_line(&self) -> String {
        let mode = self.mode();
        let ModeInForce { mode: is, .. } = &mode;
        let was = if self.gate_is_there { &self.mode_before.mode } else { "no gate" };
        let shown = match was {
            was if was == is => format!("{is}, as before"),
            was => format!("{was} -> {is}"),
        };
        let source = mode.source();
        if is == "enforce" {
            return format!("{shown}  ({source})");
        }
        let enforce = advice::gate(&self.repository, "enforce");
        format!("{shown}: refuses nothing  ({source}); to enforce:  {enforce}")
    }

    /// The mode of fence 'repo' when all is done.
    pub(super) fn mode(&self) -> ModeInForce {
        let mut all = configured(&self.repository.config);
        for setting in self.wanted.iter().filter(|setting| setting.key.ends_with(".mode")) {
            all.push(setting.as_configured(&self.repository));
        }
        ModeInForce::of(&FenceName::repo(), &all)
    }

    /// What was asked for and would weaken the gate; what others have set; what is overridden.
    fn left_lines(&self) -> Vec<String> {
        let asked = self.left.iter().map(|left| {
            let why = "not done, because install weakens no gate that is there; do it with";
            format!("{}: {why}  {}", self.change_of(left), wanted::command_for(left, &self.repository))
        });
        let all = configured(&self.repository.config);
        let is_wanted = |one: &ConfiguredSetting| {
            self.wanted.iter().any(|setting| setting.key == one.key && setting.value == one.value)
        };
        let others = all.iter().filter(|one| one.overridden_by.is_none() && !is_wanted(one) && !is_shown_as_mode(one));
        let others = others.map(|one| self.left_setting(one));
        asked.chain(others).chain(advice::overridden(&self.repository, &all)).collect()
    }

    fn left_setting(&self, one: &ConfiguredSetting) -> String {
        let ConfiguredSetting { key, value, origin, .. } = one;
        let line = format!("{key} = {value}  from {origin}");
        match one.subject().map(|(fence, setting)| (fence, setting.key, value.as_str())) {
            Some((Some(fence), "mode", "observe" | "off")) => {
                let enforce = advice::gate(&self.repository, &format!("enforce --fence {fence}"));
                format!("{line}: refuses nothing there; to enforce:  {enforce}")
            }
            Some((_, "tokenless", "allow")) | Some((None, "companion", "optional")) => {
                let remove = config(&self.repository, &format!("--unset-all {}", shell_quoted(key)));
                format!("{line}: the weaker form; remove it with  {remove}")
            }
            _ => line,
        }
    }

    /// The same in a few words, for a list of repositories.
    pub(super) fn word(&self, is_dry_run: bool) -> String {
        let changes = self.changes();
        let word = match (&changes[..], is_dry_run) {
            ([], _) => "already there".to_owned(),
            (_, true) => format!("would change: {}", changes.join(", ")),
            (_, false) => "installed".to_owned(),
        };
        let mode = self.mode();
        let was = if self.gate_is_there { &self.mode_before.mode } else { "no gate" };
        let mode = if was == mode.mode { mode.mode } else { format!("{was} -> {}", mode.mode) };
        let left: Vec<&str> = self.left.iter().map(|left| left.key.as_str()).collect();
        let left = if left.is_empty() { String::new() } else { format!("  (left: {})", left.join(", ")) };
        let word = format!("{word}  mode {mode}{left}");
        self.warnings.iter().fold(word, |word, warning| format!("{word}  (warning: {warning})"))
    }

    /// The parts that will change.
    fn changes(&self) -> Vec<String> {
        let settings = self.wanted.iter().filter(|setting| !setting.is_fulfilled(&self.repository));
        let log = (!self.log.is_whole()).then_some("log".to_owned());
        let mark = (!self.raises.is_empty()).then_some("mark".to_owned());
        let hooks = self.pieces.iter().filter(|piece| !piece.is_there()).map(|piece| match piece.part {
            Part::Gate => "hook".to_owned(),
            Part::Companion => "companion".to_owned(),
        });
        log.into_iter().chain(settings.map(|setting| self.change_of(setting))).chain(mark).chain(hooks).collect()
    }
}

/// The mode of `repo` has its own line.
fn is_shown_as_mode(one: &ConfiguredSetting) -> bool {
    one.subject().is_some_and(|(fence, setting)| setting.key == "mode" && matches!(fence, None | Some("repo")))
}

impl HookPlan {
    fn lines(&self, done: &str) -> Vec<String> {
        let (what, order) = match self.part {
            Part::Gate => ("hook", "runs first"),
            Part::Companion => ("companion", "runs after it"),
        };
        let mut lines = Vec::new();
        if self.keeps_existing() {
            let kept = kept_hook::kept_path(&self.hook);
            lines.push(format!("kept          {}  {order}  {done}", kept.display()));
        }
        let change = match &self.found {
            _ if self.is_there() => "already there".to_owned(),
            HookFile::Ours(_) => format!("git-fence's, older or not executable -> git-fence's  {done}"),
            HookFile::Others => format!("another hook -> git-fence's  {done}"),
            HookFile::Nothing | HookFile::NoHook => format!("none -> git-fence's  {done}"),
        };
        lines.push(format!("{what:<12}  {}  {change}", self.hook.display()));
        lines
    }
}
