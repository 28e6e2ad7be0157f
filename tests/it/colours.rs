//! Colours, by the usual conventions.

use crate::support::{
    agents::{Agent, Remote},
    any_git,
    needs::{Need, lacks},
    text,
};
use std::process::Command;

const RED_ERROR: &str = "\u{1b}[1;31merror:";

/// The messages of a command that fails: of the client and of the gate's program.
fn said(agent: &Agent<'_>, args: &[&str], set: &[(&str, &str)]) -> [String; 2] {
    let (mut client, mut hook) = (agent.fence(&["renew"]), agent.world.hook_program());
    client.args(args);
    hook.args(["status", "/no/such/repository"]).args(args);
    [client, hook].map(|mut command| {
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(set.iter().copied());
        text(&command.output().unwrap().stderr)
    })
}

#[test]
fn messages_in_a_pipe_have_no_colours_unless_they_are_asked_for() {
    let world = Remote::Gate.world(&any_git());
    let agent = world.agent("a");
    for (args, set, coloured) in [
        (&[][..], &[][..], false),
        (&["--color=always"], &[], true),
        (&["--color", "always"], &[("NO_COLOR", "1")], true),
        (&[], &[("CLICOLOR_FORCE", "1")], true),
        (&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        (&["--color=never"], &[("CLICOLOR_FORCE", "1")], false),
    ] {
        for said in said(&agent, args, set) {
            assert_eq!(said.starts_with(RED_ERROR), coloured, "{args:?} {set:?}: {said:?}");
            assert!(coloured || said.starts_with("error: "), "{args:?} {set:?}: {said:?}");
        }
    }
}

#[test]
fn usage_errors_and_help_follow_the_same_flag() {
    for program in [env!("CARGO_BIN_EXE_git-fence"), env!("CARGO_BIN_EXE_git-fence-hook")] {
        let run = |args: &[&str]| {
            let ran = Command::new(program).args(args).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").output();
            let ran = ran.unwrap();
            text(&ran.stdout) + &text(&ran.stderr)
        };
        assert!(!run(&["--nonsense"]).contains('\u{1b}'));
        assert!(run(&["--color=always", "--nonsense"]).contains('\u{1b}'));
        assert!(run(&["--color=always", "--help"]).contains('\u{1b}'));
        assert!(!run(&["--help"]).contains('\u{1b}'));
        assert!(run(&["status", "--color=sometimes"]).contains("auto"));
    }
}

#[test]
fn terminal_has_colours_unless_no_color_is_set() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    for (no_color, coloured) in [(None, true), (Some("1"), false)] {
        let mut script = Command::new("script");
        world.hermetic(&mut script);
        let line = format!("{} status /no/such/repository", env!("CARGO_BIN_EXE_git-fence-hook"));
        script.args(["-qc", &line, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
        script.envs(no_color.map(|value| ("NO_COLOR", value)));
        let shown = text(&script.output().unwrap().stdout);
        assert_eq!(shown.contains(RED_ERROR), coloured, "{shown:?}");
        assert!(shown.contains("no/such"), "{shown:?}");
    }
}
