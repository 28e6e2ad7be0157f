//! The hook: from environment and standard input to a verdict.

use crate::{
    host::{
        clock::WaitBudget,
        kept_hook::{self, HookOutcome},
        surroundings::Environment,
    },
    log::store::Durability,
    push::{
        arrival::Arrival,
        companion,
        gate::{Gate, Waiting},
        messages,
        plan::{Guarded, unreadable},
        recorder::Recorder,
        settling::settle_finished,
        slot::Viewpoint,
        tokens::Presented,
        verdict::{Admission, Objection, Refusal, Verdict},
    },
    repository::settings::{self, SettingsError},
};
use git_fence_core::{Push, PushError, Reject, Settings};
use git_fence_system::env;
use std::{
    ffi::OsString,
    io::{self, Read},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Runs as `pre-receive`: exit code 0 admits the push. `args` is what the kernel and git add: the file of this hook and
/// its arguments.
pub(crate) fn run(args: &[OsString], environment: &Environment) -> ExitCode {
    let mut input = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut input);
    let before = match args.split_first() {
        Some((own_file, args)) => kept_hook::run(Path::new(own_file), args, &input),
        None => Ok(HookOutcome::Continue),
    };
    let judged = match before {
        // The other hook has already printed why.
        Ok(HookOutcome::Refused(code)) => return ExitCode::from(code),
        // The time that the other hook took does not count: the clock of this push starts here.
        Ok(HookOutcome::Continue) => {
            let own_file = args.first().map(Path::new);
            judge(read_push(&input, read), own_file, environment, Instant::now())
        }
        Err(reject) => Err(reject.into()),
    };
    let verdict = judged.unwrap_or_else(Verdict::Refused);
    messages::print(&verdict);
    match verdict {
        Verdict::Admitted(_) | Verdict::Observed(_) => ExitCode::SUCCESS,
        Verdict::Refused(_) => ExitCode::FAILURE,
    }
}

/// Environment and standard input → push → tokens → decision under the lock → state and log → verdict.
///
/// An error is a refusal in every mode, because the mode cannot be read.
fn judge(
    input: Result<Push, PushError>,
    own_file: Option<&Path>,
    environment: &Environment,
    start: Instant,
) -> Result<Verdict, Refusal> {
    let arrival = Arrival::of(input, own_file, environment, start)?;
    let settings = settings::read(&arrival.repository.config)
        .map_err(|e| Recorder::refuse_without_settings(&arrival, bad_setting(&e)))?;
    let mut recorder = Recorder::of(&arrival, &settings);
    let judged = if settings.are_all_off() {
        Ok(settle_before_switch_off(&mut recorder, &arrival, &settings))
    } else {
        decision(&arrival, &settings, &mut recorder)
    };
    Ok(recorder.verdict_on(judged))
}

/// What an enforcing gate decides. An admission has been recorded, an objection has not.
fn decision(arrival: &Arrival<'_>, settings: &Settings, recorder: &mut Recorder<'_>) -> Result<Admission, Objection> {
    let guarded = guarded_part(arrival, settings)?;
    if guarded.is_empty() {
        return Ok(Admission::default());
    }
    recorder.narrow_to(&guarded, settings);
    if !guarded.is_heartbeat() {
        companion::require(arrival, settings)?;
    }
    let mut presented = Presented::read(arrival, &guarded, settings);
    recorder.who.owner.clone_from(&presented.offer.owner);
    recorder.stopped = presented.stopped().cloned();
    let fences = guarded.fences(settings);
    (recorder.skip, recorder.job) = (presented.skip().cloned(), presented.job().cloned());
    let mut waiting = Waiting::default();
    loop {
        let answered = presented.ask_stores(&guarded, settings, &recorder.budget);
        let (claims, source, flaw) = (presented.claims(&guarded, &fences), presented.source, presented.flaw.clone());
        let gate = Gate { arrival, settings, recorder, guarded: &guarded, claims, source, flaw, answered };
        if guarded.is_heartbeat() {
            return gate.renew();
        }
        // Otherwise the answers of the stores are too old: the push has waited.
        if let Some(admission) = gate.admit(&mut waiting)? {
            return Ok(admission);
        }
    }
}

/// A failed read counts as truncated input.
fn read_push(input: &[u8], read: io::Result<usize>) -> Result<Push, PushError> {
    let push = Push::parse(input)?;
    read.map(|_| push).map_err(|_| PushError::Truncated(1))
}

/// The part of the push that concerns fences.
fn guarded_part(arrival: &Arrival<'_>, settings: &Settings) -> Result<Guarded, Reject> {
    if let Some(unreadable) = &arrival.unreadable {
        return Err(Reject::malformed(unreadable.to_string()));
    }
    if arrival.environment.get(env::GIT_NAMESPACE).is_some() {
        return Err(Reject::malformed("the push is to a git namespace (GIT_NAMESPACE), which no fence can guard"));
    }
    let guarded = Guarded::part_of(&arrival.push, settings, &arrival.repository).map_err(unreadable)?;
    match guarded.flaw {
        // No ref is left that could move, so there is no slot to take.
        Some(flaw) if guarded.is_empty() => Err(flaw),
        _ => Ok(guarded),
    }
}

/// A gate that was switched off records that once, and settles pushes that are over before refs move without it. It
/// refuses nothing, so it waits only briefly for the lock.
fn settle_before_switch_off(recorder: &mut Recorder<'_>, arrival: &Arrival<'_>, settings: &Settings) -> Admission {
    recorder.budget = WaitBudget::of(Duration::ZERO, arrival.start);
    if recorder.has_log()
        && let Ok(mut store) = recorder.open()
    {
        let viewpoint = Viewpoint { here: &arrival.here, watched: None };
        let _ = settle_finished(&mut store, &arrival.repository, settings, viewpoint, |_, _| true);
        let _ = store.commit(Durability::Lazy);
    }
    Admission::default()
}

fn bad_setting(error: &SettingsError) -> Reject {
    Reject::Broken {
        what: error.to_string(),
        fix: "nothing was written. Ask the server's operator to find the setting with  git config --show-origin --get-regexp '^fence\\.'".to_owned(),
    }
}
