//! The hook: environment and standard input in, verdict out.

use crate::{
    host::{
        clock::Patience,
        kept_hook::{self, Word},
        process,
        surroundings::Environment,
    },
    log::{files::FenceDir, store::Durability},
    push::{
        companion,
        gate::Gate,
        leases,
        plan::{Guarded, unreadable},
        record::Recorder,
        settling::settle_what_is_over,
        slot::Lookout,
        tokens,
        voice::{self, Refusal},
    },
    repository::{OpenError, Repository, settings, whose::Asker},
};
use git_fence_core::{Claim, Mode, Offer, Push, PushError, ReceivePack, Reject, Rules, Settings, Source};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
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
    match judged {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            voice::refused(&refusal);
            ExitCode::FAILURE
        }
    }
}

/// Push and environment → the part that is guarded → tokens → the gate.
fn judge(
    input: Result<Push, PushError>,
    own_file: Option<&Path>,
    environment: &Environment,
    start: Instant,
) -> Result<(), Refusal> {
    let git_dir = environment.path("GIT_DIR").unwrap_or_else(|| PathBuf::from("."));
    let receive_pack = process::receive_packs_above().next();
    let git = receive_pack.as_ref().and_then(process::program_of);
    let repository = Repository::open(&git_dir, git.as_deref(), environment, Asker::Push);
    let repository = repository.map_err(|e| cannot_open(&e))?;
    let here = process::here().map_err(|e| no_place(&e))?;
    let push = input.as_ref().map_or_else(|_| Push::default(), Clone::clone);
    let record = |wait: Duration, enforces: bool| Recorder {
        dir: FenceDir::at(repository.fence_dir()),
        here: &here,
        who: environment.who(),
        patience: Patience::of(wait, start),
        push: &push,
        syslog: None,
        enforces,
    };
    let settings = settings::read(&repository.config)
        .map_err(|e| record(Rules::for_repo().wait, true).refuse_unread(bad_setting(&e), None))?;
    if settings.fences.iter().all(|rules| rules.mode == Mode::Off) {
        let record = record(Duration::ZERO, false);
        settle_before_it_is_off(&record, &settings, &repository);
        return Ok(());
    }
    let guarded = match look_at_push(input, environment, &settings, &repository) {
        Ok(guarded) if guarded.is_nothing() => return Ok(()),
        Ok(guarded) => guarded,
        Err(reject) => {
            let stands = settings.enforces() || reject.is_about_the_lease();
            let record = record(shortest_wait(&mut settings.fences.iter()), stands);
            let record = Recorder { syslog: settings.syslog.as_ref(), ..record };
            let refusal = record.refuse_unread(reject, Some(&settings));
            return if record.enforces { Err(refusal) } else { overrule(&refusal) };
        }
    };
    let fences = guarded.fences(&settings);
    let enforced = fences.iter().any(|rules| rules.mode == Mode::Enforce) || guarded.comes_to_leases();
    let record = record(shortest_wait(&mut fences.into_iter()), enforced);
    let record = Recorder { syslog: settings.syslog.as_ref(), ..record };
    let receive_pack = receive_pack.filter(|_| !settings.receive_pack_is_elsewhere);
    let companion =
        || companion::missing(own_file, &repository, environment).filter(|_| !settings.companion_is_optional);
    if let Some(reject) = (!guarded.is_heartbeat()).then(companion).flatten() {
        let refusal = record.refuse_unread(reject, Some(&settings));
        return if enforced { Err(refusal) } else { overrule(&refusal) };
    }
    match bring_to_gate(guarded, receive_pack, record, environment, &settings, &repository) {
        Err(refusal) if !enforced => overrule(&refusal),
        verdict => verdict,
    }
}

/// Reads the tokens and the leases, finds the receive-pack, and goes through the gate with all. Where no
/// fence enforces, what is wrong with the push is carried along and not held against it.
fn bring_to_gate(
    guarded: Guarded,
    receive_pack: Option<ReceivePack>,
    mut record: Recorder<'_>,
    environment: &Environment,
    settings: &Settings,
    repository: &Repository,
) -> Result<(), Refusal> {
    let pusher = environment.pusher();
    let tokens = tokens::brought_along(&guarded, repository, environment, settings, pusher.as_bytes());
    let (offer, source, no_tokens) = match tokens {
        Ok((offer, source)) => (offer, source, None),
        Err(reject) => (Offer::default(), Source::None, Some(reject)),
    };
    record.who.owner = offer.owner.clone();
    let may_revoke = |rules: &Rules| rules.lets_revoke(pusher.as_bytes());
    let asks = leases::asked(&guarded, &offer, settings, &may_revoke, repository, environment);
    let (asks, no_lease) = match asks {
        Ok(asks) => (asks, None),
        Err(reject) => (BTreeMap::new(), Some(reject)),
    };
    let unseen = || {
        if guarded.refs.is_empty() || guarded.is_heartbeat() { None } else { unseen(receive_pack.as_ref(), settings) }
    };
    let flaw = guarded.flaw.clone().or(no_tokens).or(no_lease).or_else(unseen);
    if let Some(reject) = flaw.clone().filter(|_| record.enforces) {
        return Err(record.refuse_unread(reject, Some(settings)));
    }
    let claims = guarded.fences(settings).into_iter().map(|rules| {
        let is_guarded = guarded.guarded_refs().any(|planned| planned.fence == rules.fence);
        // A token spends itself on refs that are guarded. Leases have their own.
        let token = offer.token(&rules.fence).filter(|_| is_guarded);
        let exempt = rules.exempts(pusher.as_bytes());
        Claim { rules, token, exempt, guarded: is_guarded, lease: asks.get(&rules.fence) }
    });
    let claims = claims.collect();
    let is_heartbeat = guarded.is_heartbeat();
    let gate = Gate { record: &record, repository, environment, settings, guarded, claims, source, flaw, receive_pack };
    if is_heartbeat { gate.hear() } else { gate.pass() }
}

/// Nothing is refused where nothing enforces, but it is said what would have been.
fn overrule(refusal: &Refusal) -> Result<(), Refusal> {
    voice::overruled(refusal);
    Ok(())
}

/// A read that fails is an input that ends too soon.
fn read_push(input: &[u8], read: io::Result<usize>) -> Result<Push, PushError> {
    let push = Push::parse(input)?;
    read.map(|_| push).map_err(|_| PushError::Truncated(1))
}

fn look_at_push(
    input: Result<Push, PushError>,
    environment: &Environment,
    settings: &Settings,
    repository: &Repository,
) -> Result<Guarded, Reject> {
    let push = input.map_err(|e| Reject::malformed(e.to_string()))?;
    if environment.get("GIT_NAMESPACE").is_some() {
        return Err(Reject::malformed("the push is to a git namespace (GIT_NAMESPACE), which no fence can guard"));
    }
    let guarded = Guarded::part_of(&push, settings, repository).map_err(unreadable)?;
    match guarded.flaw {
        // Nothing that could move is left to hold a slot for.
        Some(flaw) if guarded.is_nothing() => Err(flaw),
        _ => Ok(guarded),
    }
}

/// Without the process that moves the refs, nobody could tell when they have moved.
fn unseen(receive_pack: Option<&ReceivePack>, settings: &Settings) -> Option<Reject> {
    let is_unseen = receive_pack.is_none() && !settings.receive_pack_is_elsewhere;
    is_unseen.then(|| Reject::Unseen { why: "there is no receive-pack among the parents of this hook".to_owned() })
}

/// A gate that was switched off says so once in the log, and settles what is over before refs move without it. It
/// refuses nothing, so it waits for nothing but a moment for the lock.
fn settle_before_it_is_off(record: &Recorder<'_>, settings: &Settings, repository: &Repository) {
    if !record.dir.has(&record.dir.log()) {
        return;
    }
    if let Ok(mut store) = record.open(settings) {
        let lookout = Lookout { here: record.here, watched: None };
        let _ = settle_what_is_over(&mut store, repository, settings, lookout, |_, _| true);
        let _ = store.commit(Durability::Lazy);
    }
}

/// How long the push may wait in all: no longer than any of its fences allows.
fn shortest_wait(fences: &mut dyn Iterator<Item = &Rules>) -> Duration {
    fences.map(|rules| rules.wait).min().unwrap_or_default()
}

fn cannot_open(error: &OpenError) -> Reject {
    Reject::Broken {
        what: format!("the repository cannot be opened: {error}"),
        mend: "nothing was written. The server's operator mends that file or setting".to_owned(),
    }
}

fn bad_setting(error: &settings::SettingsError) -> Reject {
    Reject::Broken {
        what: error.to_string(),
        mend: "nothing was written. The server's operator finds it with  git config --show-origin --get-regexp '^fence\\.'".to_owned(),
    }
}

fn no_place(error: &io::Error) -> Reject {
    Reject::Broken {
        what: format!("the kernel's boot id and process namespace cannot be read: {error}"),
        mend: "nothing was written. The server's operator mounts /proc".to_owned(),
    }
}
