//! The mode of a gate: `install` never weakens it and always names it, `enforce` and `observe` change what counts, and a
//! setting that has no effect is said to have none.

use crate::support::{Git, World, any_git, gits, sh, text};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// `git-fence-hook ARGS… SERVER`.
fn run(world: &World, args: &[&str]) -> Output {
    world.hook_program().args(args).arg(world.server()).output().unwrap()
}

#[track_caller]
fn said(world: &World, args: &[&str]) -> String {
    let ran = run(world, args);
    assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
    text(&ran.stdout)
}

fn config(world: &World, args: &[&str]) {
    world.ok(world.git("server.git").arg("config").args(args));
}

fn get(world: &World, key: &str) -> String {
    text(&world.git("server.git").args(["config", "--get-all", key]).output().unwrap().stdout).trim().to_owned()
}

/// A push without a token is refused, or only observed.
#[track_caller]
fn assert_enforces(world: &World, enforces: bool) {
    let pushed = world.push(&["HEAD:refs/heads/probe"], &[]);
    assert_eq!(pushed.ok, !enforces, "{}", pushed.text);
    if !enforces {
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/heads/probe"]));
    }
}

/// Copies of a server below one directory.
fn tree_of(world: &World, names: &[&str]) -> std::path::PathBuf {
    let all = world.path("all");
    for name in names {
        let copy = format!("mkdir -p {0} && cp -r {1} {0}/{name}.git", sh(&all), sh(world.server()));
        world.ok(Command::new("sh").args(["-c", &copy]));
    }
    all
}

#[test]
fn install_with_observe_leaves_an_enforcing_gate_enforcing_and_says_so() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "1").assert_landed();
        let done = said(&world, &["install", "--observe"]);
        assert_enforces(&world, true);
        assert_eq!(get(&world, "fence.mode"), "");
        assert!(done.contains("\nmode          enforce, as before  (default)\n"), "{done}");
        let how = format!("git-fence-hook observe {}", world.server().display());
        assert!(
            done.contains("left          fence.mode  not set -> observe: not done") && done.contains(&how),
            "{done}"
        );
    }
}

#[test]
fn install_below_a_tree_leaves_enforcing_gates_and_lets_new_ones_observe() {
    let world = World::new(&any_git());
    let all = tree_of(&world, &["old"]);
    world.ok(world.git(".").args(["init", "-q", "--bare", "all/new.git"]));
    let ran = world.hook_program().args(["install", "--recursive", "--observe"]).arg(&all).output().unwrap();
    let (shown, hints) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{hints}");
    let line = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("old.git").ends_with("already there  mode enforce  (left: fence.mode)"), "{shown}");
    assert!(line("new.git").ends_with("installed  mode no gate -> observe"), "{shown}");
    assert!(shown.ends_with("2 repositories: 1 in mode enforce, 1 in mode observe\n"), "{shown}");
    assert!(
        hints.contains("git-fence-hook observe --recursive") && hints.contains("git-fence-hook enforce --recursive")
    );
    let mode = |name: &str| world.git(format!("all/{name}")).args(["config", "fence.mode"]).output().unwrap();
    assert_eq!((text(&mode("old.git").stdout).trim(), text(&mode("new.git").stdout).trim()), ("", "observe"));
}

#[test]
fn install_leaves_every_option_that_would_admit_more() {
    let world = World::new(&any_git());
    config(&world, &["fence.exempt", "carl"]);
    let before = fs::read(world.server().join("config")).unwrap();
    let options = ["install", "--allow-tokenless", "--exempt", "anna", "--refs", "refs/heads/main"];
    let done = said(&world, &options);
    assert_eq!(fs::read(world.server().join("config")).unwrap(), before, "{done}");
    let dir = world.server().display().to_string();
    for line in [
        format!(
            "left          fence.tokenless  not set -> allow: not done, because install weakens no gate that is there; do it with  git -C {dir} config fence.tokenless allow"
        ),
        format!(
            "left          fence.refs  + refs/heads/main: not done, because install weakens no gate that is there; do it with  git -C {dir} config --add fence.refs refs/heads/main"
        ),
        format!(
            "left          fence.exempt  + anna: not done, because install weakens no gate that is there; do it with  git -C {dir} config --add fence.exempt anna"
        ),
        format!("left          fence.exempt = carl  from {dir}/config"),
    ] {
        assert!(done.lines().any(|shown| shown == line), "{line}\n{done}");
    }
    assert_enforces(&world, true);
    // What guards more is done.
    said(&world, &["install", "--fence", "deploy=refs/heads/deploy/*"]);
    assert_eq!(get(&world, "fence.deploy.refs"), "refs/heads/deploy/*");
    // A fence that observes does not get the refs of one that enforces.
    said(&world, &["observe", "--fence", "deploy"]);
    let done = said(&world, &["install", "--fence", "deploy=refs/heads/*"]);
    assert_eq!(get(&world, "fence.deploy.refs"), "refs/heads/deploy/*");
    assert!(done.contains("fence.deploy.refs  + refs/heads/*: not done"), "{done}");
    // A gate that only observes refuses nothing that could be admitted now.
    said(&world, &["observe"]);
    said(&world, &options);
    assert_eq!(get(&world, "fence.exempt"), "carl\nanna");
}

#[test]
fn plain_install_after_observe_says_that_observe_is_on_and_how_to_enforce() {
    let world = World::bare(&any_git(), &[]);
    let first = said(&world, &["install", "--observe"]);
    let enforce = format!("git-fence-hook enforce {}", world.server().display());
    assert!(
        first.contains(&format!(
            "mode          no gate -> observe: refuses nothing  (local fence.mode); to enforce:  {enforce}"
        )),
        "{first}"
    );
    let again = said(&world, &["install"]);
    assert!(
        again.contains(&format!(
            "mode          observe, as before: refuses nothing  (local fence.mode); to enforce:  {enforce}"
        )),
        "{again}"
    );
    assert_enforces(&world, false);
    let done = said(&world, &["enforce"]);
    assert_eq!(done.trim_end(), format!("{}  observe -> enforce  (local fence.mode)", world.server().display()));
    assert_enforces(&world, true);
    assert!(said(&world, &["install"]).contains("\nmode          enforce, as before  (local fence.mode)\n"));
    let done = said(&world, &["enforce"]);
    assert_eq!(done.trim_end(), format!("{}  enforce, as before  (local fence.mode)", world.server().display()));
}

#[test]
fn dry_runs_show_from_and_to_and_change_nothing() {
    let world = World::bare(&any_git(), &[]);
    let before = crate::support::tree(&world.server());
    let dry = said(&world, &["install", "--observe", "--dry-run"]);
    for part in [
        "receive.advertisePushOptions  not set -> true  would be done",
        "fence.mode  not set -> observe  would be done",
        "hooks/pre-receive  none -> git-fence's  would be done",
        "mode          no gate -> observe",
    ] {
        assert!(dry.contains(part), "{part}\n{dry}");
    }
    let below =
        world.hook_program().args(["install", "--observe", "--dry-run", "--recursive"]).arg(world.server()).output();
    let below = below.unwrap();
    assert!(text(&below.stdout).ends_with("\n1 repository: would be 1 in mode observe\n"), "{}", text(&below.stdout));
    assert_eq!(text(&below.stderr), "");
    assert!(crate::support::tree(&world.server()) == before);
    said(&world, &["install", "--observe"]);
    let before = crate::support::tree(&world.server());
    let dry = said(&world, &["enforce", "--dry-run"]);
    assert!(dry.contains("would change: observe -> enforce  (local fence.mode)"), "{dry}");
    assert!(crate::support::tree(&world.server()) == before);
    assert_enforces(&world, false);
}

/// The two names of one setting, at the levels where an operator may have put them.
#[test]
fn enforce_and_observe_change_what_counts_wherever_it_is_set() {
    let world = World::new(&any_git());
    let global = world.path("global");
    let hook = |args: &[&str]| {
        let mut command = world.hook_program();
        let ran = command.env("GIT_CONFIG_GLOBAL", &global).args(args).arg(world.server()).output().unwrap();
        assert!(ran.status.success(), "{args:?} {}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let enforces = || {
        let status: serde_json::Value = serde_json::from_str(&hook(&["status", "--json"])).unwrap();
        status["fences"][0]["mode"] == "enforce"
    };
    for (in_global, local) in [
        ("", &["fence.repo.mode"][..]),
        ("", &["fence.mode", "fence.repo.mode"]),
        ("[fence]\n\tmode = observe\n", &[]),
        ("[fence \"repo\"]\n\tmode = observe\n", &[]),
        ("[fence]\n\tmode = enforce\n", &["fence.mode"]),
        ("[fence \"repo\"]\n\tmode = observe\n", &["fence.repo.mode", "fence.mode"]),
    ] {
        fs::write(&global, in_global).unwrap();
        for key in local {
            config(&world, &[key, "observe"]);
        }
        assert!(!enforces(), "{in_global:?} {local:?}");
        let done = hook(&["enforce"]);
        assert!(enforces() && done.contains("observe -> enforce"), "{in_global:?} {local:?} {done}");
        let done = hook(&["observe"]);
        assert!(!enforces() && done.contains("enforce -> observe"), "{in_global:?} {local:?} {done}");
        for key in ["fence.mode", "fence.repo.mode"] {
            let _ = world.git("server.git").args(["config", "--unset-all", key]).output().unwrap();
        }
    }
}

/// An earlier doctor wrote `fence.repo.mode`; from then on the documented setting had no effect, silently.
#[test]
fn overridden_setting_is_said_by_status_doctor_and_install_with_the_command_that_removes_it() {
    for git in gits() {
        for (name, low, high) in [
            ("mode", "enforce", "observe"),
            ("tokenless", "refuse", "allow"),
            ("accept", "above", "at-or-above"),
            ("wait", "30s", "40s"),
            ("maxJump", "none", "9"),
            ("evictAfter", "5m", "off"),
            ("leaseMaxTtl", "1d", "2d"),
            ("tokens", "any", "own"),
            ("exempt", "anna", "bob"),
            ("allowRevoke", "anna", "bob"),
            ("refs", "refs/heads/*", "refs/heads/m*"),
        ] {
            assert_overridden_is_said(&git, name, low, high);
        }
    }
}

#[track_caller]
fn assert_overridden_is_said(git: &Git, name: &str, low: &str, high: &str) {
    let world = World::new(git);
    world.push_token("main", "1").assert_landed();
    config(&world, &[&format!("fence.{name}"), low]);
    config(&world, &[&format!("fence.repo.{name}"), high]);
    let dir = world.server().display().to_string();
    let remove = format!("git -C {dir} config --unset-all fence.repo.{name}");
    let overridden = format!(
        "fence.{name} = {low}  from {dir}/config: overridden by fence.repo.{name} = {high} from {dir}/config; remove that with  {remove}"
    );
    for command in ["status", "install"] {
        let shown = said(&world, &[command]);
        assert!(shown.contains(&overridden), "{command}\n{overridden}\n{shown}");
    }
    let found = text(&run(&world, &["doctor", "--json"]).stdout);
    let report: serde_json::Value = serde_json::from_str(&found).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["name"] == "setting-overridden").expect(&found);
    assert_eq!((&finding["severity"], &finding["mend"]), (&"note".into(), &remove.as_str().into()), "{finding}");
    let status = world.status();
    assert_eq!(status["settings"][0]["overridden_by"]["key"], format!("fence.repo.{name}"), "{status:#}");
    world.ok(Command::new("sh").args(["-c", &remove]));
    assert!(!said(&world, &["status"]).contains("overridden"));
}

#[test]
fn local_value_that_hides_a_global_one_is_said() {
    let world = World::new(&any_git());
    let global = world.path("global");
    fs::write(&global, "[fence]\n\tmode = enforce\n").unwrap();
    config(&world, &["fence.mode", "observe"]);
    let shown = |command: &str| {
        let mut program = world.hook_program();
        let ran = program.env("GIT_CONFIG_GLOBAL", &global).arg(command).arg(world.server()).output().unwrap();
        text(&ran.stdout)
    };
    let by = format!(
        "fence.mode = enforce  from {}: overridden by fence.mode = observe from {}/config",
        global.display(),
        world.server().display()
    );
    assert!(shown("status").contains(&by), "{}", shown("status"));
    assert!(shown("install").contains(&by), "{}", shown("install"));
    assert!(shown("doctor").contains("note: setting-overridden: fence.mode = enforce"), "{}", shown("doctor"));
    assert!(shown("enforce").contains(&format!("observe -> enforce  (global fence.mode in {}", global.display())));
    assert_eq!(get(&world, "fence.mode"), "", "what all repositories have counts again");
    assert!(!shown("status").contains("overridden"));
}

#[test]
fn fence_with_a_mode_of_its_own_stays_is_named_and_can_be_changed() {
    let world = World::new(&any_git());
    config(&world, &["fence.deploy.refs", "refs/heads/deploy/*"]);
    config(&world, &["fence.deploy.mode", "observe"]);
    config(&world, &["fence.docs.refs", "refs/heads/docs/*"]);
    config(&world, &["fence.mode", "observe"]);
    let change = format!("git-fence-hook enforce --fence deploy {}", world.server().display());
    let done = said(&world, &["enforce"]);
    let left = format!("fence 'deploy' stays observe  (local fence.deploy.mode); change it with  {change}");
    assert!(done.contains("observe -> enforce  (local fence.mode)") && done.contains(&left), "{done}");
    let modes = || {
        let status = world.status();
        let fences = status["fences"].as_array().unwrap().clone();
        fences.iter().map(|fence| fence["mode"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(modes(), ["observe", "enforce", "enforce"]);
    assert!(said(&world, &["install"]).contains(&change));
    let doctor = text(&run(&world, &["doctor"]).stdout);
    assert!(
        doctor.contains(&format!("fence 'deploy' only observes and refuses nothing\n  fix: {change}\n")),
        "{doctor}"
    );
    world.ok(world.hook_program().args(["enforce", "--fence", "deploy"]).arg(world.server()));
    assert_eq!(modes(), ["enforce", "enforce", "enforce"]);
    said(&world, &["observe", "--all"]);
    assert_eq!(modes(), ["observe", "observe", "observe"]);
    said(&world, &["enforce", "--fence", "repo"]);
    assert_eq!(modes(), ["observe", "observe", "enforce"], "the others keep theirs");
    let unknown = run(&world, &["enforce", "--fence", "dploy"]);
    assert!(text(&unknown.stderr).starts_with("error: there is no fence 'dploy' here"), "{}", text(&unknown.stderr));
}

#[test]
fn fleet_changes_its_mode_with_a_line_each_and_a_failure_does_not_stop_the_rest() {
    let world = World::bare(&any_git(), &[]);
    let all = tree_of(&world, &["bare"]);
    said(&world, &["install", "--observe"]);
    tree_of(&world, &["a", "b", "broken"]);
    fs::write(all.join("broken.git/config"), "[core\n").unwrap();
    let fleet = |args: &[&str]| world.hook_program().args(args).arg("--recursive").arg(&all).output().unwrap();
    let dry = fleet(&["enforce", "--dry-run"]);
    assert!(text(&dry.stdout).contains("would change: observe -> enforce"), "{}", text(&dry.stdout));
    let ran = fleet(&["enforce"]);
    let (shown, failed) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1));
    let lines: Vec<&str> = shown.lines().collect();
    for name in ["a.git", "b.git"] {
        let line = format!("ok      {}  observe -> enforce  (local fence.mode)", all.join(name).display());
        assert!(lines.contains(&line.as_str()), "{line}\n{shown}");
    }
    assert!(shown.contains("bare.git  no gate is installed in") && shown.contains("2 repositories enforce: 2 changed"));
    assert!(failed.starts_with("error: 2 of 4 repositories failed"), "{failed}");
    let json = fleet(&["observe", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let shown = text(&json.stdout);
    let reports: Vec<serde_json::Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let a = reports.iter().find(|report| Path::new(report["repository"].as_str().unwrap()).ends_with("a.git")).unwrap();
    let repo = &a["fences"][0];
    assert_eq!(
        (&repo["fence"], &repo["before"], &repo["after"], &repo["from"]),
        (&"repo".into(), &"enforce".into(), &"observe".into(), &"local fence.mode".into())
    );
    assert_eq!(reports.iter().filter(|report| report["error"].is_string()).count(), 2, "{shown}");
}

/// An included file is not changed: the command says that it could not, and where to.
#[test]
fn mode_that_an_included_file_decides_is_a_failure_that_names_the_file() {
    let world = World::new(&any_git());
    let included = world.path("included");
    fs::write(&included, "[fence]\n\tmode = observe\n").unwrap();
    config(&world, &["fence.mode", "observe"]);
    config(&world, &["include.path", included.to_str().unwrap()]);
    let ran = run(&world, &["enforce"]);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said.contains("is still in mode 'observe'") && said.contains(included.to_str().unwrap()), "{said}");
}

#[test]
fn mode_of_a_gate_that_is_not_run_carries_a_warning() {
    let world = World::new(&any_git());
    config(&world, &["hook.pre-receive.enabled", "false"]);
    let done = said(&world, &["enforce"]);
    assert!(done.contains("warning: hook.pre-receive.enabled is false"), "{done}");
}

#[test]
fn uninstall_says_which_settings_are_gone_and_which_have_their_old_value() {
    let world = World::bare(&any_git(), &[]);
    config(&world, &["receive.advertisePushOptions", "false"]);
    said(&world, &["install", "--observe", "--exempt", "anna"]);
    let done = said(&world, &["uninstall"]);
    for line in [
        "setting   fence.exempt = anna  removed",
        "setting   fence.mode = observe  removed",
        "setting   receive.advertisePushOptions = true  restored to false",
    ] {
        assert!(done.lines().any(|shown| shown == line), "{line}\n{done}");
    }
    assert_eq!(
        (get(&world, "fence.mode").as_str(), get(&world, "receive.advertisePushOptions").as_str()),
        ("", "false")
    );
}
