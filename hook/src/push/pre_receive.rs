//! The hook: environment and standard input in, verdict out.

use crate::{
    host::{
        clock::Patience,
        kept_hook::{self, Word},
        surroundings::Environment,
    },
    log::store::Durability,
    push::{
        arrival::Arrival,
        companion,
        gate::Gate,
        plan::{Guarded, unreadable},
        recorder::Recorder,
        settling::settle_what_is_over,
        slot::Lookout,
        tokens::Brought,
        verdict::{Admission, Objection, Refusal, Verdict},
        voice,
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

/// Runs as `pre-receive`: exit code 0 lets the push through. `args` is what the kernel and git add:
/// the file of this hook, and what it was called with.
pub(crate) fn run(args: &[OsString], environment: &Environment) -> ExitCode {
    let mut input = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut input);
    let before = match args.split_first() {
        Some((own_file, args)) => kept_hook::run(Path::new(own_file), args, &input),
        None => Ok(Word::GoOn),
    };
    let judged = match before {
        // It has said why.
        Ok(Word::Refused(code)) => return ExitCode::from(code),
        // How long the other hook took is its own affair: the clock of this push starts here.
        Ok(Word::GoOn) => {
            let own_file = args.first().map(Path::new);
            judge(read_push(&input, read), own_file, environment, Instant::now())
        }
        Err(reject) => Err(reject.into()),
    };
    let verdict = judged.unwrap_or_else(Verdict::Refused);
    voice::tell(&verdict);
    match verdict {
        Verdict::Admitted(_) | Verdict::Observed(_) => ExitCode::SUCCESS,
        Verdict::Refused(_) => ExitCode::FAILURE,
    }
}

/// Environment and standard input → push → tokens → decision under the lock → state and log → verdict.
///
/// An error is a refusal in every mode: which mode it is cannot be found out.
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
        Ok(settle_before_it_is_off(&mut recorder, &arrival, &settings))
    } else {
        decision(&arrival, &settings, &mut recorder)
    };
    Ok(recorder.verdict_on(judged))
}

/// What an enforcing gate says to the push. An admission is on record, an objection is not yet.
fn decision(arrival: &Arrival<'_>, settings: &Settings, recorder: &mut Recorder<'_>) -> Result<Admission, Objection> {
    let guarded = guarded_part(arrival, settings)?;
    if guarded.is_nothing() {
        return Ok(Admission::default());
    }
    recorder.narrow_to(&guarded, settings);
    if !guarded.is_heartbeat() {
        companion::must_be_there(arrival, settings)?;
    }
    let brought = Brought::by(arrival, &guarded, settings);
    recorder.who.owner.clone_from(&brought.offer.owner);
    let (claims, source, flaw) = (brought.claims(&guarded, settings), brought.source, brought.flaw.clone());
    let gate = Gate { arrival, settings, recorder, guarded, claims, source, flaw };
    if gate.guarded.is_heartbeat() { gate.renew() } else { gate.admit() }
}

/// A read that fails is an input that ends too soon.
fn read_push(input: &[u8], read: io::Result<usize>) -> Result<Push, PushError> {
    let push = Push::parse(input)?;
    read.map(|_| push).map_err(|_| PushError::Truncated(1))
}

/// The part of the push that fences care about.
fn guarded_part(arrival: &Arrival<'_>, settings: &Settings) -> Result<Guarded, Reject> {
    if let Some(unreadable) = &arrival.unreadable {
        return Err(Reject::malformed(unreadable.to_string()));
    }
    if arrival.environment.get(env::GIT_NAMESPACE).is_some() {
        return Err(Reject::malformed("the push is to a git namespace (GIT_NAMESPACE), which no fence can guard"));
    }
    let guarded = Guarded::part_of(&arrival.push, settings, &arrival.repository).map_err(unreadable)?;
    match guarded.flaw {
        // Nothing that could move is left to hold a slot for.
        Some(flaw) if guarded.is_nothing() => Err(flaw),
        _ => Ok(guarded),
    }
}

/// A gate that was switched off says so once in the log, and settles what is over before refs move without it. It
/// refuses nothing, so it waits for nothing but a moment for the lock.
fn settle_before_it_is_off(recorder: &mut Recorder<'_>, arrival: &Arrival<'_>, settings: &Settings) -> Admission {
    recorder.patience = Patience::of(Duration::ZERO, arrival.start);
    if recorder.has_log()
        && let Ok(mut store) = recorder.open()
    {
        let lookout = Lookout { here: &arrival.here, watched: None };
        let _ = settle_what_is_over(&mut store, &arrival.repository, settings, lookout, |_, _| true);
        let _ = store.commit(Durability::Lazy);
    }
    Admission::default()
}

fn bad_setting(error: &SettingsError) -> Reject {
    Reject::Broken {
        what: error.to_string(),
        mend: "nothing was written. The server's operator finds it with  git config --show-origin --get-regexp '^fence\\.'".to_owned(),
    }
}
