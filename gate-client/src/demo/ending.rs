//! The end of the play: what the branches show, what was written down, and what that means.

use crate::{
    demo::{
        agent::Ended,
        play::{Kind, Play},
        stage::REMOTE,
        voice::{Ink, Voice},
    },
    failure::Failure,
};
use serde_json::Value;
use std::fs;

/// What agent-2 leaves on main.
pub(super) const UNDONE: &str = "Revert \"version 1\"";
/// What customers see before anything happens, and must still see.
const BEFORE: &str = "version 0";

/// Tells the end, and returns whether the promise held: by the refs of the remote and the exit code of the late push.
pub(super) fn tell(play: &Play<'_>, late: &Ended) -> Result<bool, Failure> {
    let (main, live) = (play.stage.branch("main")?, play.stage.branch("live")?);
    let holds = main == UNDONE && live == BEFORE && late.code != Some(0);
    show_branches(play.voice, &main, &live);
    match play.kind {
        Kind::Fence => {
            show_audit(play)?;
            show_history(play)?;
        }
        Kind::Hookless => show_history(play)?,
        Kind::UsualHook => show_number(play),
    }
    conclude(play, holds, late);
    Ok(holds)
}

fn show_branches(voice: &Voice, main: &str, live: &str) {
    let ink = |is_right: bool| if is_right { Ink::Good } else { Ink::Bad };
    voice.scene("What the remote has now");
    voice.prints(ink(main == UNDONE), &format!("main   {main}"));
    voice.prints(ink(live == BEFORE), &format!("live   {live}"));
    voice.rest(2);
}

/// The gate's record, without the steps of the lease's own refs.
fn show_audit(play: &Play<'_>) -> Result<(), Failure> {
    play.voice.scene("What the remote wrote down       (in full: git-fence-hook audit)");
    play.voice.prints(Ink::Dim, "line  event           token");
    let lines = play.stage.gate(&["audit", "--json", REMOTE])?;
    for line in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Some(row) = row_of(&line) {
            let stands_out = ["push.rejected", "push.evicted"].contains(&text(&line, "event"));
            play.voice.prints(if stands_out { Ink::Bold } else { Ink::Plain }, &row);
        }
    }
    play.voice.rest(3);
    Ok(())
}

/// A line of the log in a few words; `None` if it is not about a token or a refusal.
fn row_of(line: &Value) -> Option<String> {
    let event = line["event"].as_str()?;
    let token = line["token"].as_u64().map_or_else(String::new, |token| token.to_string());
    let said = match event {
        "push.accepted" | "push.settled" if line["token"].is_null() => return None,
        "push.accepted" => branches_of(line),
        "push.settled" => format!("line {}: {} of {} refs moved", line["push"], line["moved"], line["count"]),
        // A question about a lease that is free is also answered by a refusal, which says so.
        "lease.refused" if text(line, "code") != "FENCE-LEASE-HELD" => return None,
        "push.rejected" | "lease.refused" => {
            format!("{} {}", text(line, "code"), branches_of(line)).trim_end().to_owned()
        }
        "push.evicted" => format!("line {}: it stood in the way of a newer one", line["push"]),
        "lease.granted" | "lease.released" => text(line, "owner").to_owned(),
        _ => return None,
    };
    Some(format!("{:>4}  {event:<15} {token:>5}   {said}", line["seq"].as_u64()?))
}

/// The branches that a push is about, not its lease.
fn branches_of(line: &Value) -> String {
    let names = line["refs"].as_array().into_iter().flatten().filter_map(|named| named["name"].as_str());
    names.filter_map(|name| name.strip_prefix("refs/heads/")).collect::<Vec<_>>().join(" ")
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

fn show_history(play: &Play<'_>) -> Result<(), Failure> {
    play.voice.scene("Who had the lease, newest first");
    play.voice.types("", "git fence log");
    for line in play.stage.git("agent-2", ["fence", "log"])?.lines() {
        play.voice.prints(Ink::Plain, line.trim_start());
    }
    play.voice.rest(3);
    Ok(())
}

/// What the usual hook remembers.
fn show_number(play: &Play<'_>) {
    let number = fs::read_to_string(play.stage.path(REMOTE).join("naive.mark")).unwrap_or_default();
    play.voice.scene("What the hook wrote down");
    play.voice.prints(Ink::Plain, &format!("last token: {}", number.trim()));
    play.voice.say("It looks fine. Token 1 was checked before token 2, and written after it.");
}

fn conclude(play: &Play<'_>, holds: bool, late: &Ended) {
    let code = late.code.map_or("killed by a signal".to_owned(), |code| format!("exit code {code}"));
    let (ink, text) = match (holds, play.kind) {
        (true, _) => (
            Ink::Good,
            format!(
                "The promise held, {}: once agent-2 had the lease, the late push of agent-1 could not land ({code}).",
                play.kind.title()
            ),
        ),
        (false, Kind::UsualHook) => (
            Ink::Bad,
            "The promise did not hold, as expected with the usual hook: the late push of agent-1 landed, and customers \
             see version 1, which agent-2 had taken back."
                .to_owned(),
        ),
        (false, _) => (
            Ink::Bad,
            format!("The promise did not hold, {}. This is a bug: please report it.", play.kind.title()),
        ),
    };
    play.voice.gap();
    play.voice.result(ink, &text);
    next(play);
}

fn next(play: &Play<'_>) {
    let demo = if play.by_cargo { "cargo run -- demo" } else { "git fence demo" };
    let others = [
        (Kind::Fence, "", "with the fence"),
        (Kind::UsualHook, " --without-fence", "with the usual hook: the late push lands"),
        (Kind::Hookless, " --hookless", "on a remote that runs no hook"),
    ];
    let row = |command: &str, what: &str| play.voice.lists(Ink::Plain, &format!("{command:<35} {what}"));
    play.voice.scene("Next");
    others
        .iter()
        .filter(|(kind, ..)| *kind != play.kind)
        .for_each(|(_, flag, what)| row(&format!("{demo}{flag}"), what));
    if play.by_cargo {
        row("cargo install --locked --path .", "and then");
    }
    row("git fence run -- ./agent.sh", "in a clone of yours: docs/agents.md");
}
