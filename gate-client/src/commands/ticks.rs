//! `git fence ticks`: the scheduled jobs of a fence, and what is on record about their last tick.

use crate::{
    client::Client,
    commands::{
        context::{Context, LeaseArgs, Target},
        own::still_held,
        single::Output,
    },
    failure::Failure,
    files::home,
    lease::{held::TakenBy, jobs::JobsAsk},
    report::{Report, outcome::Outcome},
    run::ticks::{ScheduleArgs, job_name, schedule_of},
    store::home::LeaseHome,
};
use clap::{Args, Subcommand};
use git_fence_core::{Job, JobName, Life, LostTick, ScheduleText, Tick, TickState, text};
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
pub(crate) struct TicksArgs {
    #[command(subcommand)]
    change: Option<TicksChange>,
    #[command(flatten)]
    place: Target,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum TicksChange {
    /// Forget a job: its next run begins as if there had been none
    Forget(ForgetArgs),
    /// Give a job another schedule; its last tick stays on record
    Reschedule(RescheduleArgs),
}

#[derive(Debug, Clone, Args)]
struct ForgetArgs {
    /// The name of the job
    job: String,
    #[command(flatten)]
    place: Target,
    #[command(flatten)]
    wanted: LeaseArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Args)]
struct RescheduleArgs {
    /// The name of the job
    job: String,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    place: Target,
    #[command(flatten)]
    wanted: LeaseArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A job, as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JobEntry {
    job: JobName,
    schedule: ScheduleText,
    tick: Tick,
    state: TickState,
    owner: String,
    token: git_fence_core::Token,
    dropped: u64,
    /// The start before, if its holder was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostTick>,
    /// Not there if the schedule's time zone is not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Tick>,
}

impl TicksArgs {
    /// Whether JSON is wanted, the owner's name if it was given, and the fence.
    pub(crate) fn caller(&self) -> (bool, Option<&str>, Target) {
        let (json, owner, place) = match &self.change {
            None => (false, None, &self.place),
            Some(TicksChange::Forget(args)) => (args.json, args.wanted.owner.as_deref(), &args.place),
            Some(TicksChange::Reschedule(args)) => (args.json, args.wanted.owner.as_deref(), &args.place),
        };
        (json || self.json, owner, self.place_for(place))
    }

    /// What is said before the word `forget` or `reschedule` counts, too.
    fn place_for(&self, place: &Target) -> Target {
        let Target { fence, branch, remote, store } = place.clone();
        let of = &self.place;
        let (fence, branch) = match (fence, branch) {
            (None, None) => (of.fence.clone(), of.branch.clone()),
            named => named,
        };
        Target {
            fence,
            branch,
            remote: remote.or_else(|| of.remote.clone()),
            store: store.or_else(|| of.store.clone()),
        }
    }

    pub(crate) fn run(&self, context: &Context) -> Result<Output, Failure> {
        match &self.change {
            None => list(context, &self.place),
            Some(TicksChange::Forget(ForgetArgs { job, place, wanted, .. })) => {
                let job = job_name(job)?;
                let what = format!("forgot job '{job}' of fence");
                change(
                    context,
                    &self.place_for(place),
                    wanted,
                    JobsAsk::Forget(job.clone()),
                    (Outcome::Forgotten, &job, &what),
                )
            }
            Some(TicksChange::Reschedule(RescheduleArgs { job, schedule, place, wanted, .. })) => {
                let job = job_name(job)?;
                let (schedule, _) = schedule.schedule()?.ok_or_else(|| {
                    Failure::usage("no schedule is given", "add  --every 45m  or  --cron '30 3 * * *'")
                })?;
                let text = schedule.text().clone();
                let what = format!("job '{job}' has the schedule '{text}' from now on, in fence");
                let ask = JobsAsk::Reschedule(job.clone(), text);
                change(context, &self.place_for(place), wanted, ask, (Outcome::Rescheduled, &job, &what))
            }
        }
    }
}

fn list(context: &Context, place: &Target) -> Result<Output, Failure> {
    let client = context.client(place)?;
    let store = LeaseHome::open(&client, home(&client.local), false)?;
    let (seen, _) = store.read_for_people(1)?;
    let now = store.by_its_clock(client.clock.now());
    let is_alive = seen.life(&now, Duration::ZERO, Duration::ZERO) == Life::Alive;
    let now = Tick::at(now.unix_ms / 1000);
    let known = seen.jobs().iter().filter(|(_, job)| job.state != TickState::Forgotten);
    let jobs: Vec<JobEntry> = known.map(|(name, job)| entry(name, job, is_alive, now)).collect();
    let prose = match jobs.is_empty() {
        true => format!("fence '{}' has no scheduled jobs", client.fence),
        false => jobs.iter().map(JobEntry::prose).collect::<Vec<_>>().join("\n"),
    };
    let count = jobs.len();
    let report = Report::new(Outcome::Listed, format!("{count} scheduled jobs of fence '{}'", client.fence));
    Ok(Output::new(prose, Report { jobs: Some(jobs), ..report.about(&client).kept_in(store.place().cloned()) }))
}

fn entry(name: &JobName, job: &Job, is_alive: bool, now: Option<Tick>) -> JobEntry {
    let next = schedule_of(&job.schedule).and_then(|schedule| schedule.next_after(now?.max(job.tick)));
    // Whoever ran it holds the lease no longer; the next owner puts that on record.
    let state = if job.state == TickState::Running && !is_alive { TickState::Lost } else { job.state };
    JobEntry {
        job: name.clone(),
        schedule: job.schedule.clone(),
        tick: job.tick,
        state,
        owner: job.owner.clone(),
        token: job.token,
        dropped: job.dropped,
        lost: job.lost,
        next,
    }
}

impl JobEntry {
    fn prose(&self) -> String {
        let JobEntry { job, schedule, tick, state, owner, token, dropped, lost, next } = self;
        let lost = lost.map_or(String::new(), |lost| format!("\n  lost   {}  token {}", lost.tick, lost.token));
        let dropped = if *dropped == 0 { String::new() } else { format!(", after {dropped} dropped") };
        let next = next.map_or("not known here".to_owned(), |next| next.to_string());
        format!(
            "{job}  {schedule}\n  last   {tick}  {}, by {}, token {token}{dropped}{lost}\n  next   {next}",
            state.as_str(),
            text::in_quotes(owner)
        )
    }
}

/// Takes the lease for a change of the jobs, and gives it back.
fn change(
    context: &Context,
    place: &Target,
    wanted: &LeaseArgs,
    ask: JobsAsk,
    (outcome, job, what): (Outcome, &JobName, &str),
) -> Result<Output, Failure> {
    let mut request = context.lease_request(wanted, TakenBy::Ticks)?;
    request.jobs = ask;
    let client: Client = context.client(place)?;
    let client = context.gives_back(&client);
    let taken = context.take(&client, &request);
    let dir = taken.as_ref().ok().cloned();
    let dir = context.unless_interrupted(&client, dir.as_ref(), taken)?;
    context.interrupt.leaves(still_held(&client.fence));
    client.release(&dir)?;
    let report = Report::new(outcome, format!("{what} '{}'", client.fence)).about(&client);
    Ok(Output::of(Report { job: Some(job.clone()), words: request.words, ..report }))
}
