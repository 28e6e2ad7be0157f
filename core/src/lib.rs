//! The values and pure decisions of git-fence.
//!
//! Nothing here reads a file, an environment variable or a clock, and nothing blocks: arguments come in as values and
//! decisions go out as values. So the rules can be tested as tables, and a model checker can drive the same functions
//! that run in the hook.
//!
//! The order in which the gate calls them, always under its lock:
//!
//! 1. [`State`] is the fold of the log's [`Event`]s.
//! 2. Earlier pushes are settled. Normally git's own report settles a push at once: [`settle_as_reported`] takes the
//!    list that git gives to `post-receive`. For a push that is over without a report, [`settle`] compares the refs
//!    with the recorded values; [`landed_so_far`] finds what a push that is still in flight has moved already. The
//!    result is folded in: a token is spent only if a ref moved. If a lease's ref is not where the log says,
//!    [`Fence::lease_found`] is recorded first.
//! 3. [`decide`] judges the new push against the marks. It may answer "wait": refs of another push are still moving.
//!    [`judge_lease`] judges what the push asks of leases, and [`Enforcement`] which refusals are only observed.
//! 4. [`outdated`] tells whether a ref does not have the value that the pusher claims: git would decline the push.
//! 5. An admitted push becomes an [`InFlight`] record, which occupies its fences from then on.
//!
//! What this crate does not guarantee: that the caller holds the lock, reads refs in a way that survives a concurrent
//! `git pack-refs`, or syncs the log before it answers. That is the job of `hook/`.
//!
//! ```
//! use git_fence_core::{decide, Claim, Decision, Rules, Stamp, State, Token};
//!
//! let rules = Rules::for_repo();
//! let token = Token::parse(b"5").unwrap();
//! let claim = Claim { rules: &rules, token: Some(token), exempt: false, guarded: true, lease: None };
//! let now = Stamp { boot: "b".to_owned(), uptime_ms: 0, unix_ms: 0 };
//!
//! // Nothing has been pushed yet, so the mark is 0 and 5 is above it.
//! assert!(matches!(decide(&State::default(), &[claim], &now), Decision::Admit { overruled: None, .. }));
//! assert!(Token::parse(b"05").is_err());
//! ```

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[path = "../hostile/mod.rs"]
pub mod hostile;
mod lease;
mod log;
mod report;
mod rule;
mod value;

pub use lease::found::FoundLease;
pub use lease::in_store::entry::{EntryError, FenceEntry, MovedTo, PreparedPart};
pub use lease::in_store::exchange::{
    StoreCheck, StoreCheckStep, StoreClock, StoreFault, StoreFaultKind, StoreReading, StoreRecord, StoreReply,
    StoreRequest,
};
pub use lease::in_store::mark::{MarkRecord, MarkState, Ownership, StorePlace};
pub use lease::in_store::one_place::{Claimed, Elsewhere, may_be_in_remote, may_be_in_store, may_be_own};
pub use lease::judge::judge_lease;
pub use lease::judge::mark::MarkJudged;
pub use lease::part::LeasePart;
pub use lease::purpose::Purpose;
pub use lease::pushing::{HolderMove, Note, Pushing, PushingAnswer, PushingEnd, PushingNext, PushingStep, Whereabouts};
pub use lease::record::{Beat, Lease, is_time};
pub use lease::secret::{Holder, Secret};
pub use lease::snapshot::{Ahead, LeaseSnapshot, Life, StoredLease, Version};
pub use lease::standing::{LeaseAsk, LeaseChange, LeaseMove, MarkAsk, Proposal, Standing, next_token};
pub use lease::stopped::StoppedPush;
pub use lease::store::{GateAnswer, GateSays, LeaseStore, Record, Swap, SwapRefused, Swapped};
pub use lease::taking::{MOST_TRIES, Sight, Taking, TakingAnswer, TakingEnd, TakingNext, TakingRefusal};
pub use lease::ticks::change::{JobFault, TICK_ALLOWANCE_MS, TickChange};
pub use lease::ticks::due::{Due, DueError, LONGEST_JITTER, MOST_CAUGHT_UP, Scheduled, Start, jitter_part};
pub use lease::ticks::job::{Job, JobName, LostTick, ScheduleText, Tick, TickState};
pub use lease::ticks::jobs::{Jobs, MOST_JOBS, TooManyJobs};
pub use lease::ticks::schedule::{Pending, Schedule, ScheduleError};
pub use lease::ticks::skip::{SkipCause, TickSkip};
pub use lease::trailers::RecordError;
pub use lease::value::{
    Format, JOBS_FORMAT, LEASE_FORMAT, LeaseId, LeaseState, Reason, Ttl, few_words, nonce_of, owner_name,
};
pub use lease::words::{Halt, LastHolder, free_in_words, held_in_words};
pub use log::chain::{LineHash, hash_line};
pub use log::event::{Event, LeaseLine, Line, MarkLine, Renewed, Stake, Who};
pub use log::filter::Filter;
pub use log::flight::{InFlight, Landed, Plan, PlannedRef, PushId};
pub use log::fold::{FoldError, LOG_VERSION};
pub use log::marks::{MarkAt, MarkChange, MarkStanding};
pub use log::place::{Place, ReceivePack, View};
pub use log::ref_watch::{KnownRefs, RefWatch};
pub use log::refused::{AskedRef, Refused};
pub use log::settle::{Evidence, Settlement, landed_so_far, refs_say_over, settle, settle_as_reported};
pub use log::stamp::Stamp;
pub use log::state::State;
pub use report::healthy::HealthyRuns;
pub use report::leases::LeaseTally;
pub use report::scheduled::{JobTally, ScheduledTally};
pub use report::spread::Spread;
pub use report::tally::{FenceTally, Observed, Tally};
pub use rule::code::Code;
pub use rule::decide::{Claim, Decision, decide, moved_marks, outdated};
pub use rule::enforcement::{Enforcement, Ground};
pub use rule::family::NoFence;
pub use rule::fence::Fence;
pub use rule::heirs::{Heir, KnownSettings, heirs};
pub use rule::offer::{Offer, OptionsError, Source, TRAILER, read_options, read_trailer};
pub use rule::pattern::{pattern_flaw, pattern_matches};
pub use rule::reject::{HeldBy, MovedRef, Reject, StoreBehind, TickAhead};
pub use rule::rules::{Accept, CountedTrailers, Mode, Rules, Settings, Syslog, TokenKind};
pub use rule::store_setting::{NAME_PARAMETER, StoreUrl, WRONG_NAME, is_store_name, shown_url};
pub use value::clone_setting;
pub use value::length::length_of_time;
pub use value::names::{FenceName, FenceNameError, RefName};
pub use value::object_id::{ObjectId, ObjectIdError};
pub use value::push::{Push, PushError, RefUpdate};
pub use value::text;
pub use value::token::{Mark, Token, TokenError};
