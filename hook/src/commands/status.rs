//! Shows the state of all fences, without changing anything.

use crate::{
    commands::{advice, doctor::gate, last_holder::last_holder, mode::plan::ModeInForce, operator::tokens},
    failure::{self, CommandError},
    host::{clock, surroundings::Environment},
    log::{files::FenceDir, history, store::read_plan},
    push::{
        catch_up,
        slot::{self, FlightState, Viewpoint},
    },
    repository::{
        Repository,
        settings::{
            self,
            configured::{ConfiguredSetting, configured},
        },
    },
};
use git_fence_core::{
    Event, FenceName, Halt, InFlight, LastHolder, Lease, LeaseId, LeaseState, Mark, MarkRecord, MarkStanding,
    MarkState, Mode, Ownership, Place, PlannedRef, PushId, Reason, ReceivePack, Rules, Settings, Stamp, Standing,
    State, StorePlace, Token, TokenKind, Ttl, Who, free_in_words, held_in_words, settle, text,
};
use git_fence_system::screen::Screen;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
    thread,
    time::Duration,
};

#[derive(Serialize)]
struct Status {
    repository: String,
    fences: Vec<FenceStatus>,
    /// The configured settings, and where they are set.
    settings: Vec<ConfiguredSetting>,
    /// Those that another one overrides, in words.
    #[serde(skip)]
    overridden: Vec<String>,
    /// Settings without effect: their file does not belong to the repository's owner.
    ignored: Vec<ConfiguredSetting>,
    /// Files of the repository's owner that may contain more settings, but cannot be read.
    unread: Vec<String>,
    /// Why pushes might not be checked at all.
    flaws: Vec<String>,
}

#[derive(Serialize)]
struct FenceStatus {
    mark: Mark,
    /// Where its mode is set.
    mode_from: String,
    /// The kind of tokens that it accepts, once decided.
    kind: Option<TokenKind>,
    /// The rules in force.
    #[serde(flatten)]
    rules: Rules,
    /// Its lease, if it has ever granted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseStatus>,
    /// Its mark in the repository, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<WrittenStatus>,
    in_flight: Vec<FlightStatus>,
}

#[derive(Serialize)]
struct LeaseStatus {
    state: LeaseCondition,
    owner: String,
    lease: LeaseId,
    /// The token of its owner's next write; of a released lease, its last token.
    token: Token,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    ttl_s: Ttl,
    /// The remaining time, by this machine's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    since: String,
    heard: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    /// Who held it last, if nobody holds it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<LastHolder>,
    /// Who halted the fence, since when and why, if it is halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    halt: Option<Halt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LeaseCondition {
    Held,
    Expired,
    Released,
    /// Nobody has it, and nobody gets it until it is resumed.
    Halted,
    /// Leases are kept elsewhere.
    Moved,
}

/// The mark in the repository: where the leases are kept, and whose write was the last.
#[derive(Serialize)]
struct WrittenStatus {
    /// Its token.
    token: Mark,
    owner: String,
    /// The ownership that wrote last, as the gate counts; none with tokens of one's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Ownership>,
    #[serde(flatten)]
    place: Option<StorePlace>,
    state: MarkState,
}

#[derive(Serialize)]
struct FlightStatus {
    push: PushId,
    token: Option<Token>,
    since: String,
    #[serde(flatten)]
    who: Who,
    receive_pack: Option<ReceivePack>,
    form: &'static str,
    refs: Vec<PlannedRef>,
    count: usize,
}

/// `git-fence-hook status`; with `watch` again and again, that often.
pub(crate) fn run(
    dir: &Path,
    json: bool,
    watch: Option<Duration>,
    environment: &Environment,
) -> Result<(), CommandError> {
    let Some(every) = watch else {
        io::stdout().lock().write_all(&text(dir, json, environment)?)?;
        return Ok(());
    };
    let mut screen = Screen::on_stdout();
    loop {
        // The settings are read again each time: they may change, too.
        screen.show(&String::from_utf8_lossy(&text(dir, json, environment)?))?;
        thread::sleep(every);
    }
}

/// The status at this moment.
fn text(dir: &Path, json: bool, environment: &Environment) -> Result<Vec<u8>, CommandError> {
    let repository = Repository::find(dir, environment)?;
    let settings = settings::read(&repository.config)?;
    let here = failure::here()?;
    let state = history::state(&FenceDir::at(repository.fence_dir()), &here.boot)?;
    let status = read_status(&repository, &settings, &here, state)?;
    let mut out = Vec::new();
    if json {
        writeln!(out, "{}", serde_json::to_string(&status).unwrap_or_default())?;
    } else {
        show(&status, &mut out)?;
    }
    Ok(out)
}

fn read_status(
    repository: &Repository,
    settings: &Settings,
    here: &Place,
    state: State,
) -> Result<Status, CommandError> {
    let state = as_next_push_sees(repository, settings, here, state)?;
    let now = clock::stamp(here);
    let configured = configured(&repository.config);
    let fences = settings.fences.iter().map(|rules| {
        let fence = state.fence(&rules.fence);
        FenceStatus {
            mark: fence.mark,
            mode_from: ModeInForce::of(&rules.fence, &configured).source(),
            kind: fence.kind(rules),
            rules: rules.clone(),
            lease: fence.lease.map(|standing| LeaseStatus::of(standing, &now, repository)),
            written: fence.written.and_then(WrittenStatus::of),
            in_flight: fence.slot.iter().map(|flight| FlightStatus::of(flight, &rules.fence, here)).collect(),
        }
    });
    Ok(Status {
        repository: repository.common_dir.display().to_string(),
        fences: fences.collect(),
        overridden: advice::overridden(repository, &configured),
        settings: configured,
        ignored: repository.ignored.clone(),
        unread: repository.unread.iter().map(|path| path.display().to_string()).collect(),
        flaws: gate::flaws(repository)?,
    })
}

/// The next push settles pushes that are over and records lease refs that differ from the log. This applies the same
/// changes, without recording them.
fn as_next_push_sees(
    repository: &Repository,
    settings: &Settings,
    here: &Place,
    mut state: State,
) -> Result<State, CommandError> {
    let dir = FenceDir::at(repository.fence_dir());
    let viewpoint = Viewpoint { here, watched: None };
    for flight in state.in_flight.clone() {
        let plan = read_plan(&dir, &flight)?;
        let bound = slot::bound_of(&flight, settings);
        if let FlightState::Over(evidence) =
            slot::state_of(&flight, &plan, viewpoint, bound, repository).map_err(unreadable)?
        {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name)).map_err(unreadable)?;
            state.settle(&flight, settle(&flight, &plan, &seen), plan.len(), evidence);
        }
    }
    let now = clock::stamp(here);
    for rules in &settings.fences {
        // Unreadable leases are reported by doctor.
        if let Ok(Some(line)) = catch_up::compare_with_log(repository, &state, rules, &now, "") {
            let applied = state.apply(0, "", &Event::LeaseFound(line));
            debug_assert!(applied.is_ok(), "a lease can be found at any time");
        }
        if let Ok(Some(line)) = catch_up::compare_mark_with_log(repository, &state, rules, "") {
            let applied = state.apply(0, "", &Event::MarkFound(line));
            debug_assert!(applied.is_ok(), "a mark can be found at any time");
        }
    }
    Ok(state)
}

impl LeaseStatus {
    fn of(standing: &Standing, now: &Stamp, repository: &Repository) -> LeaseStatus {
        let Lease { id, token, owner, ttl, reason, words, .. } = standing.lease.clone();
        let left = standing.left_at(now);
        LeaseStatus {
            state: match left {
                Some(_) => LeaseCondition::Held,
                None if standing.is_held() => LeaseCondition::Expired,
                None if standing.lease.state == LeaseState::Moved => LeaseCondition::Moved,
                None if standing.lease.state == LeaseState::Halted => LeaseCondition::Halted,
                None => LeaseCondition::Released,
            },
            owner,
            lease: id,
            token,
            reason,
            words,
            ttl_s: ttl,
            expires_in_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            since: standing.since.written(),
            heard: standing.heard.written(),
            progress: standing.progress.clone(),
            last: (left.is_none() && standing.lease.state != LeaseState::Moved)
                .then(|| last_holder(standing, repository))
                .flatten(),
            halt: standing.halt(),
        }
    }

    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        if self.state == LeaseCondition::Moved {
            return writeln!(out, "  lease      kept elsewhere since {}", self.since);
        }
        let words = match self.state {
            LeaseCondition::Held => {
                let left = self.expires_in_ms.unwrap_or(0);
                held_in_words(&text::in_quotes(&self.owner), self.token, Some(&self.since), left) + " unless renewed"
            }
            LeaseCondition::Halted => self.halt.as_ref().map_or(String::new(), ToString::to_string),
            LeaseCondition::Expired | LeaseCondition::Released | LeaseCondition::Moved => {
                free_in_words(self.last.as_ref())
            }
        };
        writeln!(out, "  lease      {words}")?;
        if self.state == LeaseCondition::Halted {
            return writeln!(out, "             nobody gets it until  git-fence-hook resume");
        }
        writeln!(out, "             last renewed {}", self.heard)?;
        match &self.progress {
            Some(progress) if self.state == LeaseCondition::Held => {
                writeln!(out, "             progress {}", text::in_quotes(progress))
            }
            _ => Ok(()),
        }
    }
}

impl WrittenStatus {
    fn of(standing: &MarkStanding) -> Option<WrittenStatus> {
        let MarkRecord { token, owner, place, state, .. } = standing.at.as_ref()?.record.clone();
        Some(WrittenStatus { token, owner, by: standing.last.clone(), place, state })
    }

    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.place {
            Some(StorePlace { store, resource }) if self.state == MarkState::Current => {
                writeln!(out, "  leases in  {store}, under {}", text::in_quotes(resource))?;
            }
            _ => {}
        }
        match &self.by {
            Some(Ownership { lease, first }) => {
                let owner = text::in_quotes(&self.owner);
                writeln!(out, "  written by {owner}, lease {lease}, which began with token {first}")
            }
            None => Ok(()),
        }
    }
}

impl FlightStatus {
    fn of(flight: &InFlight, fence: &FenceName, here: &Place) -> FlightStatus {
        FlightStatus {
            push: flight.push,
            token: flight.token_for(fence),
            since: flight.time.clone(),
            who: flight.who.clone(),
            receive_pack: flight.receive_pack,
            form: if slot::is_bounded(flight, here) { "bounded" } else { "full" },
            refs: flight.plan.refs.clone(),
            count: flight.plan.count,
        }
    }
}

fn show(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", status.repository)?;
    for flaw in &status.flaws {
        writeln!(out, "warning: {flaw}")?;
    }
    for FenceStatus { mark, mode_from, kind, rules, lease, written, in_flight } in &status.fences {
        let mode = match rules.mode {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe: refuses nothing",
            Mode::Off => "off: checks nothing",
        };
        writeln!(out, "fence '{}'  mark {mark}", rules.fence)?;
        writeln!(out, "  mode       {mode}  ({mode_from})")?;
        writeln!(out, "  guards     {}", rules.refs.join(" "))?;
        writeln!(out, "  accepts    {}", tokens::describe_kind(*kind))?;
        if let Some(lease) = lease {
            lease.show(out)?;
        }
        if let Some(written) = written {
            written.show(out)?;
        }
        for flight in in_flight {
            let token = flight.token.map_or("no token".to_owned(), |token| format!("token {token}"));
            writeln!(out, "  in flight  {token} of '{}' since {}", flight.who.pusher, flight.since)?;
            for planned in flight.refs.iter().take(3) {
                writeln!(out, "             {}", planned.name)?;
            }
            if flight.count > 3 {
                writeln!(out, "             and {} more refs", flight.count - 3)?;
            }
            match flight.receive_pack {
                Some(receive_pack) if flight.form == "full" => {
                    writeln!(out, "             receive-pack is process {}, alive", receive_pack.pid)?;
                }
                _ => writeln!(out, "             receive-pack is not visible from here: bounded form")?,
            }
        }
    }
    for ConfiguredSetting { key, value, origin, .. } in status.settings.iter().filter(|one| one.overridden_by.is_none())
    {
        writeln!(out, "setting {key} = {value}  from {origin}")?;
    }
    for overridden in &status.overridden {
        writeln!(out, "setting {overridden}")?;
    }
    for ConfiguredSetting { key, value, origin, .. } in &status.ignored {
        writeln!(out, "ignored {key} = {value}  from {origin}: not set by the repository's owner")?;
    }
    for path in &status.unread {
        writeln!(out, "unread  {path}: cannot be read, so the settings of the repository's owner in it are not shown")?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreadable(error: crate::repository::refs::RefError) -> CommandError {
    CommandError::Other { what: error.to_string(), hint: "check the repository:  git fsck".to_owned() }
}
