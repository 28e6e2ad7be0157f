//! Generators of values of every kind, small ones and those at the limits.

use crate::{
    AskedRef, Beat, Code, Event, Evidence, FenceName, Format, Heir, Holder, InFlight, Job, JobName, Jobs,
    KnownSettings, Landed, Lease, LeaseChange, LeaseId, LeaseLine, LeaseMove, LeasePart, LeaseState, Line, LostTick,
    Mark, MarkAt, MarkChange, MarkLine, MarkRecord, MarkStanding, MarkState, ObjectId, Ownership, Place, Plan,
    PlannedRef, PushId, Reason, ReceivePack, RefName, Refused, Renewed, ScheduleText, Secret, SkipCause, Source, Stake,
    Stamp, Standing, State, StorePlace, Tick, TickSkip, TickState, Token, TokenKind, Ttl, Who, few_words, hash_line,
    nonce_of, owner_name,
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

/// Small numbers collide, large ones overflow.
pub(super) fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..9u64, 1 => (most - 3)..=most, 1 => 0..=most]
}

pub(super) fn token() -> impl Strategy<Value = Token> {
    number(Token::MAX.get() - 1).prop_map(|n| (n + 1).try_into().unwrap())
}

pub(super) fn mark() -> impl Strategy<Value = Mark> {
    number(Token::MAX.get()).prop_map(|n| Mark::at(n).unwrap())
}

pub(super) fn fence() -> impl Strategy<Value = FenceName> {
    select(vec!["repo", "deploy", "a.b_c-d"]).prop_map(|name| FenceName::parse(name.as_bytes()).unwrap())
}

pub(super) fn object() -> impl Strategy<Value = ObjectId> {
    let digit = select(vec!["1", "a", "f"]);
    (digit, select(vec![40, 64])).prop_map(|(digit, n)| ObjectId::parse(digit.repeat(n).as_bytes()).unwrap().unwrap())
}

fn ref_name() -> impl Strategy<Value = RefName> {
    prop_oneof![
        select(vec!["refs/heads/a", "refs/fence/repo/lease", "refs/fence/repo/beat"]).prop_map(RefName::new),
        vec(any::<u8>(), 1..12).prop_map(RefName::new),
    ]
}

pub(super) fn stamp() -> impl Strategy<Value = Stamp> {
    (select(vec!["b", "c"]), number(u64::MAX), number(u64::MAX)).prop_map(|(boot, uptime_ms, unix_ms)| Stamp {
        boot: boot.to_owned(),
        uptime_ms,
        unix_ms,
    })
}

pub(super) fn secret(id: u8) -> Secret {
    Secret::of([id; 32])
}

pub(super) fn reason() -> impl Strategy<Value = Reason> {
    select(vec![Reason::First, Reason::Released, Reason::Expired, Reason::Revoked])
}

/// A lease of one of three owners, so that proposals often match the current lease.
pub(super) fn lease() -> impl Strategy<Value = Lease> {
    let state = select(vec![LeaseState::Held, LeaseState::Released, LeaseState::Halted]);
    let ttl = prop_oneof![1..=3u64, 604_799..=604_800u64].prop_map(|n| Ttl::of_seconds(n).unwrap());
    // Text that is too long is cut.
    let words = || prop_oneof![8 => ".{0,6}", 1 => ".{98,103}", 1 => ".{198,203}"];
    let text = (words(), option::of(words()));
    let nonce = prop_oneof![(0..3u8).prop_map(|n| [n; 16]), any::<[u8; 16]>()];
    (0..3u8, token(), state, ttl, reason(), text, (format(), nonce, jobs())).prop_map(
        |(id, token, state, ttl, reason, (owner, words), (format, nonce, jobs))| Lease {
            format,
            id: LeaseId::of([id; 16]),
            token,
            owner: owner_name(&owner).unwrap_or_else(|| "somebody".to_owned()),
            state,
            ttl,
            reason,
            since: words.as_ref().map(|_| Beat::deadline_at(token.get())),
            words: words.as_deref().and_then(few_words),
            jobs: if format == Format::OneUse { jobs } else { Jobs::default() },
            holder: match format {
                Format::OneSecret => secret(id).holder(),
                Format::OneUse => secret(id).of_record(LeasePart::Lease, &nonce_of(nonce)).holder(),
            },
            nonce: nonce_of(nonce),
        },
    )
}

pub(super) fn jobs() -> impl Strategy<Value = Jobs> {
    use TickState as S;
    let state = select(vec![S::Running, S::Done, S::Failed, S::Lost, S::Forgotten]);
    let schedule = select(vec!["every 60s", "cron Europe/Berlin 30 3 * * MON-FRI"]);
    let count = (prop_oneof![Just(0), any::<u64>()], any::<bool>(), option::weighted(0.2, token()), ".{0,6}");
    let job = (number(253_402_207_200), state, token(), schedule, count).prop_map(
        |(tick, state, token, schedule, (dropped, late, lost, owner))| Job {
            tick: Tick::at(tick).unwrap(),
            state,
            token,
            dropped,
            late,
            lost: lost.map(|token| LostTick { tick: Tick::at(9).unwrap(), token }),
            schedule: ScheduleText::parse(schedule).unwrap(),
            owner: owner_name(&owner).unwrap_or_else(|| "somebody".to_owned()),
        },
    );
    let name = select(vec!["a", "b.c"]).prop_map(|name| JobName::parse(name).unwrap());
    btree_map(name, job, 0..2).prop_map(|jobs| Jobs::try_from(jobs).unwrap())
}

/// The proof that a beat with this nonce asks for.
pub(super) fn next_beat(id: u8, nonce: [u8; 16]) -> Secret {
    secret(id).of_record(LeasePart::Beat, &nonce_of(nonce))
}

fn format() -> impl Strategy<Value = Format> {
    select(vec![Format::OneUse, Format::OneUse, Format::OneSecret])
}

pub(super) fn beat() -> impl Strategy<Value = Beat> {
    let deadline = prop_oneof![0..2_000_000_000_000u64, any::<u64>()];
    let nonce = prop_oneof![(0..3u8).prop_map(|n| [n; 16]), any::<[u8; 16]>()];
    (0..3u8, deadline, option::of(any::<String>()), any::<bool>(), (format(), nonce)).prop_map(
        |(id, deadline, progress, gate, (format, nonce))| Beat {
            lease: LeaseId::of([id; 16]),
            deadline: Beat::deadline_at(deadline),
            progress: progress.as_deref().and_then(few_words),
            gate,
            holder: (format == Format::OneUse).then(|| next_beat(id, nonce).holder()),
            nonce: nonce_of(nonce),
        },
    )
}

fn holder() -> impl Strategy<Value = Holder> {
    (0..3u8, 0..3u8).prop_map(|(id, nonce)| next_beat(id, [nonce; 16]).holder())
}

pub(super) fn standing() -> impl Strategy<Value = Standing> {
    let at = (option::of(object()), option::of(object()));
    (at, lease(), stamp(), stamp(), option::of("[a-z ]{1,9}"), option::of(holder())).prop_map(
        |((commit, parent), lease, since, heard, progress, beat)| Standing {
            commit,
            parent,
            lease,
            since,
            heard,
            progress,
            beat,
        },
    )
}

fn change() -> impl Strategy<Value = LeaseChange> {
    use LeaseMove::{Advance, Grant, Halt, Release, Renew, Resume, Revoke};
    let moves = [Grant, Advance, Release, Revoke, Renew, Halt, Resume];
    (fence(), select(moves.to_vec()), standing(), mark()).prop_map(|(fence, change, standing, raises_to)| LeaseChange {
        fence,
        change,
        standing,
        raises_to,
    })
}

/// A move of a mark, of tokens of one's own or of a lease in a store.
fn mark_change() -> impl Strategy<Value = MarkChange> {
    (fence(), mark_at(), mark()).prop_map(|(fence, at, raises_to)| MarkChange { fence, at, raises_to })
}

fn mark_at() -> impl Strategy<Value = MarkAt> {
    let by = option::of((0..3u8, token()).prop_map(|(id, first)| Ownership { lease: LeaseId::of([id; 16]), first }));
    let place = option::of(
        select(vec!["etcd://a", "redis://b"])
            .prop_map(|store| StorePlace { store: store.to_owned(), resource: "host/app".to_owned() }),
    );
    let state = select(vec![MarkState::Current, MarkState::Moved]);
    (object(), mark(), by, place, state).prop_map(|(commit, token, by, place, state)| {
        let begun = MarkRecord::begins(token, place, "agent", nonce_of([7; 16]));
        MarkAt { commit, record: MarkRecord { by, state, ..begun } }
    })
}

fn mark_line() -> impl Strategy<Value = MarkLine> {
    (fence(), option::of(mark_at()), mark(), "[a-z]{0,5}").prop_map(|(fence, at, mark, pusher)| MarkLine {
        fence,
        at,
        mark,
        pusher,
    })
}

fn who() -> impl Strategy<Value = Who> {
    (option::of("[a-z]{1,5}"), "[a-z]{0,5}", option::of("[0-9.]{1,9}")).prop_map(|(owner, pusher, address)| Who {
        owner,
        pusher,
        address,
    })
}

fn stake() -> impl Strategy<Value = Stake> {
    (fence(), option::of(token()), mark()).prop_map(|(fence, token, mark)| Stake { fence, token, mark })
}

pub(super) fn planned() -> impl Strategy<Value = PlannedRef> {
    let ids = (option::of(object()), option::of(object()));
    (ref_name(), fence(), ids, option::of("none"), option::of(ref_name()))
        .prop_map(|(name, fence, (old, new), claimed, via)| PlannedRef { name, fence, old, new, claimed, via })
}

fn place() -> impl Strategy<Value = Place> {
    let machine = option::of(select(vec!["m", "n"]).prop_map(str::to_owned));
    (stamp(), machine, number(u64::MAX)).prop_map(|(stamp, machine, pid_ns)| Place {
        boot: stamp.boot,
        machine,
        pid_ns,
        uptime_ms: stamp.uptime_ms,
    })
}

fn receive_pack() -> impl Strategy<Value = Option<ReceivePack>> {
    let process = (any::<u32>(), number(u64::MAX), option::of(number(u64::MAX)));
    option::of(process.prop_map(|(pid, start, pidfd)| ReceivePack { pid, start, pidfd }))
}

fn accepted() -> impl Strategy<Value = Event> {
    let stakes = (stake(), vec(stake(), 0..2), vec(change(), 0..2), vec(mark_change(), 0..2));
    let overruled = option::of((select(Code::ALL.to_vec()), "[a-z ]{0,9}".prop_map(String::from)));
    let source = select(vec![Source::Option, Source::Trailer, Source::None]);
    let plan = vec(planned(), 0..4).prop_map(Plan::of);
    (0..9u64, stakes, overruled, source, who(), plan, receive_pack(), place(), number(u64::MAX)).prop_map(
        |(push, (stake, also, leases, marks), overruled, source, who, plan, receive_pack, place, elapsed_us)| {
            let (code, reason) = overruled.unzip();
            let push = PushId(push);
            Event::PushAccepted {
                push,
                stake,
                also,
                leases,
                marks,
                code,
                reason,
                source,
                who,
                plan,
                receive_pack,
                place,
                elapsed_us,
            }
        },
    )
}

fn settled() -> impl Strategy<Value = Event> {
    let evidence = vec![
        Evidence::Reported,
        Evidence::RefsMoved,
        Evidence::ReceivePackGone,
        Evidence::Rebooted,
        Evidence::TimePassed,
    ];
    let counts = (0..9usize, 0..9usize, vec(fence(), 0..2));
    (0..9u64, stake(), vec(stake(), 0..2), vec(fence(), 0..3), counts, select(evidence)).prop_map(
        |(push, stake, also, spent, (moved, count, marks), evidence)| Event::PushSettled {
            push: PushId(push),
            stake,
            also,
            spent,
            moved,
            count,
            marks,
            evidence,
        },
    )
}

fn landed() -> impl Strategy<Value = Event> {
    let counts = (0..9usize, 0..9usize, option::of(0..9usize));
    (0..9u64, stake(), vec(stake(), 0..2), vec(fence(), 0..3), counts).prop_map(
        |(push, stake, also, spent, (moved, count, settled_as))| Event::PushLanded {
            push: PushId(push),
            stake,
            also,
            spent,
            moved,
            count,
            settled_as,
        },
    )
}

fn refused() -> impl Strategy<Value = Refused> {
    let asked = ("[ -~]{0,9}", option::of(object()), option::of(object()));
    let asked = asked.prop_map(|(name, old, new)| AskedRef { name, old, new });
    let about = (option::of(fence()), option::of(token()), option::of(mark()));
    let source = option::of(select(vec![Source::Option, Source::Trailer, Source::None]));
    (select(Code::ALL.to_vec()), any::<String>(), about, source, who(), vec(asked, 0..3), number(u64::MAX)).prop_map(
        |(code, reason, (fence, token, mark), source, who, refs, elapsed_us)| {
            let count = refs.len();
            Refused { code, reason, fence, token, mark, source, job: None, who, refs, count, elapsed_us }
        },
    )
}

pub(super) fn lease_line() -> impl Strategy<Value = LeaseLine> {
    let push = option::of((0..9u64).prop_map(PushId));
    (fence(), push, mark(), standing(), option::of(number(u64::MAX)), "[a-z]{0,5}").prop_map(
        |(fence, push, mark, standing, held_ms, pusher)| LeaseLine {
            ticks: Jobs::default().changes_to(&standing.lease.jobs),
            fence,
            push,
            mark,
            standing,
            held_ms,
            pusher,
        },
    )
}

fn renewed() -> impl Strategy<Value = Renewed> {
    (fence(), 0..3u8, token(), stamp(), option::of("[a-z]{1,5}"), option::of(holder()), who()).prop_map(
        |(fence, id, token, heard, progress, holder, who)| Renewed {
            fence,
            lease: LeaseId::of([id; 16]),
            token,
            heard,
            progress,
            holder,
            who,
        },
    )
}

fn settings() -> impl Strategy<Value = serde_json::Value> {
    // As older gates without kinds and current ones write them, with an additional key.
    let fences = prop_oneof![Just(serde_json::json!({})), Just(serde_json::json!({ "tokens": "any" }))];
    ("[a-z]{1,5}", number(u64::MAX), fences)
        .prop_map(|(key, n, fence)| serde_json::json!({ "fences": [fence], key: [n, null, { "token": "x" }] }))
}

pub(super) fn kind() -> impl Strategy<Value = TokenKind> {
    select(vec![TokenKind::Own, TokenKind::Lease])
}

/// Every kind of event except the one that replaces the whole state.
pub(super) fn event() -> impl Strategy<Value = Event> {
    let words = "[a-z]{0,5}";
    let lease_event = select(vec![
        Event::LeaseGranted as fn(LeaseLine) -> Event,
        Event::LeaseAdvanced,
        Event::LeaseReleased,
        Event::LeaseRevoked,
        Event::LeaseHalted,
        Event::LeaseResumed,
        Event::LeaseFound,
    ]);
    prop_oneof![
        6 => accepted(),
        6 => settled(),
        6 => (lease_event, lease_line()).prop_map(|(event, line)| event(line)),
        3 => mark_line().prop_map(Event::MarkFound),
        3 => renewed().prop_map(Event::LeaseRenewed),
        1 => refused().prop_map(Event::PushRejected),
        1 => refused().prop_map(Event::LeaseRefused),
        1 => (fence(), option::of(0..9u64), who()).prop_map(|(fence, tick, who)| {
            let job = JobName::parse("a").unwrap();
            let skip = TickSkip { job, found: SkipCause::AlreadyDone, tick: tick.and_then(Tick::at) };
            Event::TickSkipped { fence, skip, who }
        }),
        2 => landed(),
        1 => refused().prop_map(Event::PushObserved),
        1 => (0..3u32, words).prop_map(|(version, pusher)| Event::LogBegun { version, pusher }),
        1 => words.prop_map(|reason| Event::LogRecovered { reason }),
        1 => (words, words, words)
            .prop_map(|(found, reason, pusher)| Event::LogRepaired { found, reason, pusher }),
        2 => (fence(), mark(), mark(), words, words)
            .prop_map(|(fence, from, mark, reason, pusher)| Event::MarkLowered { fence, from, mark, reason, pusher }),
        2 => (fence(), mark(), words, words)
            .prop_map(|(fence, mark, reason, pusher)| Event::MarkRaised { fence, mark, reason, pusher }),
        1 => (settings(), vec((fence(), fence()), 0..2)).prop_map(|(settings, heirs)| Event::SettingsChanged {
            settings,
            digest: None,
            heirs: heirs.into_iter().map(|(fence, giver)| Heir { fence, giver }).collect(),
        }),
        2 => (fence(), kind(), option::of(kind()), mark(), words, words).prop_map(
            |(fence, tokens, before, mark, reason, pusher)| Event::TokensChanged {
                fence,
                tokens,
                before,
                mark,
                reason,
                pusher,
            },
        ),
        1 => (0..9u64, words, who())
            .prop_map(|(push, reason, who)| Event::PushEvicted { push: PushId(push), reason, who }),
    ]
}

pub(super) fn state() -> impl Strategy<Value = State> {
    let landed = (vec(fence(), 0..2), 0..3usize);
    let changes = (vec(change(), 0..2), vec(mark_change(), 0..2));
    let flight = (0..9u64, vec(stake(), 1..3), vec(planned(), 0..3), changes, who(), place(), landed);
    let flight = flight.prop_map(|(push, stakes, refs, (leases, marks), who, place, (landed, moved))| InFlight {
        push: PushId(push),
        time: "2026-01-01T00:00:00.000Z".to_owned(),
        stakes,
        plan: Plan::of(refs),
        leases,
        marks,
        who,
        place,
        receive_pack: None,
        landed: Landed { spent: landed, moved },
    });
    let marks = btree_map(fence(), mark(), 0..3);
    let leases = btree_map(fence(), standing(), 0..3);
    let kinds = btree_map(fence(), kind(), 0..3);
    let written =
        option::of(mark_at()).prop_map(|at| MarkStanding { last: at.as_ref().and_then(|at| at.record.by.clone()), at });
    let written = btree_map(fence(), written, 0..2);
    let never_granted = proptest::collection::btree_set(fence(), 0..2);
    (
        marks,
        leases,
        (kinds, written, never_granted),
        vec(flight, 0..2),
        option::of(settings().prop_map(|settings| KnownSettings::of(&settings, None))),
        0..9u64,
    )
        .prop_map(|(marks, leases, (kinds, written, never_granted), in_flight, settings, settings_since)| State {
            marks,
            leases,
            never_granted,
            written,
            kinds,
            in_flight,
            settings,
            settings_since,
            heirs: Vec::new(),
        })
}

pub(super) fn line() -> impl Strategy<Value = Line> {
    let rotated = (0..2u32, state()).prop_map(|(version, state)| Event::LogRotated {
        version,
        file: "audit.7.jsonl".to_owned(),
        state: Box::new(state),
        pusher: "anna".to_owned(),
    });
    (number(u64::MAX), prop_oneof![20 => event(), 2 => rotated], any::<[u8; 4]>()).prop_map(|(seq, event, before)| {
        Line { seq, time: "2026-01-01T00:00:00.000Z".to_owned(), event, prev: hash_line(&before) }
    })
}
