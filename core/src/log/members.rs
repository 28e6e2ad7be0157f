//! The members of families in the state: their floor, and how they are forgotten.
//!
//! A member that is forgotten leaves nothing but the floor of its family, which is at least its mark and at least every
//! token that it was granted. Whoever is not in the state begins on that floor, so no token from before is ever new again.

use crate::{Accept, Event, FenceName, LeaseState, Mark, Rules, Stamp, Standing, State};
use std::collections::BTreeMap;

impl State {
    /// The mark on which a member begins that is not in the state: the mark of its family.
    pub(crate) fn floor_of(&self, name: &FenceName) -> Mark {
        let family = name.is_member().then(|| self.marks.get(&name.configured()));
        family.flatten().copied().unwrap_or_default()
    }

    /// The members of `family` that are known: those that have a mark of their own.
    pub fn members<'s>(&'s self, family: &'s FenceName) -> impl Iterator<Item = &'s FenceName> {
        members_of(&self.marks, family)
    }

    /// The highest mark or granted token of a fence and, if it is a family, of its members.
    pub fn highest_of(&self, fence: &FenceName) -> Mark {
        let of = |name: &FenceName| {
            let granted = self.leases.get(name).map_or(Mark::default(), |standing| standing.lease.token.into());
            self.fence(name).mark.max(granted)
        };
        let members = members_of(&self.marks, fence).chain(members_of(&self.leases, fence));
        members.map(of).fold(of(fence), Mark::max)
    }

    /// Raises the mark of a fence; of a family, the floor and the marks of all members.
    pub(super) fn raise_all(&mut self, fence: &FenceName, mark: Mark) {
        let members: Vec<FenceName> =
            members_of(&self.marks, fence).chain(members_of(&self.leases, fence)).cloned().collect();
        for name in members.iter().chain([fence]) {
            self.raise(name, mark);
        }
    }

    /// Forgets members of `family`, whose floor rises to their marks and tokens, and at least to `floor`.
    pub(super) fn forget(&mut self, family: &FenceName, members: &[FenceName], floor: Mark) {
        let floor = members.iter().map(|member| self.highest_of(member)).fold(floor, Mark::max);
        for member in members {
            self.marks.remove(member);
            self.leases.remove(member);
            self.never_granted.remove(member);
        }
        self.raise(family, floor);
    }

    /// The members of the family `rules` that may be forgotten once their refs are gone: at most `most`.
    ///
    /// Nobody holds them, and nothing has been heard of them for [`Rules::forget_after`]. None while a push to the family is in
    /// flight: what it is granted is not in the state yet, so it could end below the floor.
    pub fn forgettable(&self, rules: &Rules, now: &Stamp, most: usize) -> Vec<FenceName> {
        let family = &rules.fence;
        let Some(after) = rules.forget_after else { return Vec::new() };
        let is_moving = self.in_flight.iter().any(|flight| self.is_in_the_way(flight, family));
        if is_moving || !rules.forgets(self.fence(family).kind(rules)) {
            return Vec::new();
        }
        let is_old = |name: &&FenceName| {
            let is_over = |standing: &Standing| {
                let has_ended = matches!(standing.lease.state, LeaseState::Held | LeaseState::Released);
                // Its jobs are the only memory of which ticks were started.
                let is_plain = standing.lease.jobs.is_empty();
                has_ended && is_plain && standing.left_at(now).is_none() && standing.heard.age_at(now) >= after
            };
            // The ref of a mark is kept, because the store expects it.
            self.leases.get(*name).is_some_and(is_over) && !self.written.contains_key(*name)
        };
        members_of(&self.leases, family).filter(is_old).take(most).cloned().collect()
    }

    /// The line that forgets `members`.
    pub fn forgetting(&self, rules: &Rules, members: Vec<FenceName>) -> Event {
        let highest = members.iter().map(|member| self.highest_of(member)).fold(Mark::default(), Mark::max);
        // Where a token may write twice, the mark itself must be a token that nobody has.
        let floor = match rules.accept {
            Accept::Above => highest,
            Accept::AtOrAbove => Mark::at(highest.get().saturating_add(1)).unwrap_or(highest),
        };
        let mark = floor.max(self.fence(&rules.fence).mark);
        Event::MembersForgotten { fence: rules.fence.clone(), members, mark }
    }
}

/// The names of members of `family` among the keys.
fn members_of<'m, T>(map: &'m BTreeMap<FenceName, T>, family: &'m FenceName) -> impl Iterator<Item = &'m FenceName> {
    // Names sort as text, so members come right after their family, or after names that begin like it. A member has none:
    // 'branch/a/b' is a member of 'branch', not of 'branch/a'.
    let near = map.range(family.clone()..).map(|(name, _)| name);
    let near = near.take_while(move |name| name.as_str().starts_with(family.as_str()));
    near.filter(move |name| *name != family && name.is_of(family))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Heir, Lease, LeaseLine, TickState, Token,
        lease::{
            record::tests::lease,
            ticks::{job::tests::job, jobs::tests::jobs},
        },
        log::flight::tests::in_flight,
        next_token,
        rule::family::tests::family,
    };
    use proptest::{collection::vec, prelude::*};

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn name(text: &str) -> FenceName {
        FenceName::read(text.as_bytes()).unwrap()
    }

    fn at(day: u64) -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: day * DAY_MS, unix_ms: day * DAY_MS }
    }

    fn mark(n: u64) -> Mark {
        Mark::at(n).unwrap()
    }

    /// Records that `member` has this lease since `day`.
    fn record(state: &mut State, member: &FenceName, lease: Lease, day: u64) {
        let raised = Accept::Above.mark_before(lease.token).max(state.fence(member).mark);
        let (since, heard) = (at(day), at(day));
        let standing = Standing { commit: None, parent: None, lease, since, heard, progress: None, beat: None };
        let (fence, pusher) = (member.clone(), String::new());
        let line = LeaseLine { fence, push: None, mark: raised, standing, ticks: Vec::new(), held_ms: None, pusher };
        state.apply(1, "", &Event::LeaseGranted(line)).unwrap();
    }

    fn forget(state: &mut State, rules: &Rules, now: &Stamp) -> Vec<FenceName> {
        let members = state.forgettable(rules, now, usize::MAX);
        let event = state.forgetting(rules, members.clone());
        state.apply(1, "", &event).unwrap();
        members
    }

    #[test]
    fn only_members_that_nobody_has_held_for_long_are_forgotten() {
        let rules = family("branch", "refs/heads/*");
        let mut state = State::default();
        for (member, state_of, day) in [
            ("branch/released", LeaseState::Released, 0),
            ("branch/expired", LeaseState::Held, 0),
            ("branch/moved", LeaseState::Moved, 0),
            ("branch/new", LeaseState::Released, 9),
            ("branch-2", LeaseState::Released, 0),
            ("other/x", LeaseState::Released, 0),
        ] {
            record(&mut state, &name(member), lease(1, 5, state_of), day);
        }
        let jobs = jobs([("yearly", job(60, TickState::Done, 5))]);
        record(&mut state, &name("branch/scheduled"), Lease { jobs, ..lease(1, 5, LeaseState::Released) }, 0);
        // Only its mark is known, as an operator raised it: not how old it is.
        state.raise(&name("branch/raised"), mark(9));
        let forgettable = |state: &State, rules: &Rules, day| {
            let found = state.forgettable(rules, &at(day), usize::MAX);
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(forgettable(&state, &rules, 29), "");
        assert_eq!(forgettable(&state, &rules, 30), "branch/expired branch/released");
        assert_eq!(forgettable(&state, &rules, 50), "branch/expired branch/new branch/released");
        assert_eq!(state.forgettable(&rules, &at(50), 1).len(), 1);
        assert_eq!(forgettable(&state, &Rules { forget_after: None, ..rules.clone() }, 99), "");
        assert_eq!(forgettable(&state, &Rules { each: false, ..rules.clone() }, 99), "");
        let own = Rules { tokens: Some(crate::TokenKind::Own), ..rules.clone() };
        assert_eq!(forgettable(&state, &own, 99), "", "tokens of one's own may come at any time");
        let mut busy = state.clone();
        busy.in_flight.push(in_flight(7, Some(9), &[]));
        assert_ne!(forgettable(&busy, &rules, 99), "");
        busy.in_flight[0].stakes[0].fence = name("branch/another");
        assert_eq!(forgettable(&busy, &rules, 99), "", "a grant in flight could end below the floor");
        forget(&mut state, &rules, &at(50));
        assert_eq!(state.fence(&name("branch/released")).mark, mark(5));
        assert_eq!(state.fence(&name("branch/raised")).mark, mark(9));
        assert_eq!(state.fence(&name("branch-2")).mark, mark(4));
        assert_eq!(state.fence(&name("repo")).mark, mark(0));
    }

    #[test]
    fn members_inherit_and_give_as_a_whole() {
        let heir = |giver: &str, fence: &str| [Heir { fence: name(fence), giver: name(giver) }];
        let mut state = State::default();
        state.raise(&name("repo"), mark(3));
        state.raise(&name("branch/a"), mark(7));
        state.raise(&name("branch/a/b"), mark(1));
        state.raise(&name("trunk/a"), mark(2));
        record(&mut state, &name("branch/b"), lease(1, 9, LeaseState::Held), 0);
        let mark_of = |state: &State, fence: &str| state.fence(&name(fence)).mark.get();
        let mut to_repo = state.clone();
        to_repo.inherit(&heir("branch", "repo"));
        assert_eq!(mark_of(&to_repo, "repo"), 9);
        assert_eq!(mark_of(&to_repo, "branch/a"), 7);
        let mut to_family = state.clone();
        to_family.inherit(&heir("repo", "trunk"));
        assert_eq!((mark_of(&to_family, "trunk/a"), mark_of(&to_family, "trunk/new")), (3, 3));
        // Its star names other members now.
        let mut renamed = state.clone();
        renamed.inherit(&heir("branch", "branch"));
        for member in ["branch/a", "branch/a/b", "branch/b", "branch/new"] {
            assert_eq!(mark_of(&renamed, member), 9, "{member}");
        }
        // A new member never begins below the floor, whatever raises it first.
        renamed.raise(&name("branch/newer"), mark(1));
        assert_eq!(mark_of(&renamed, "branch/newer"), 9);
        // What a push from before moves counts for the heirs.
        renamed.settings_since = 5;
        renamed.raise_by(crate::PushId(4), &name("branch/a"), mark(20));
        assert_eq!(mark_of(&renamed, "branch/new"), 20);
        renamed.raise_by(crate::PushId(6), &name("branch/a"), mark(30));
        assert_eq!(mark_of(&renamed, "branch/new"), 20);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Grant(usize),
        Write(usize),
        Release(usize),
        Forget,
        ReadAgain,
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..4usize).prop_map(Step::Grant),
            3 => (0..4usize).prop_map(Step::Write),
            2 => (0..4usize).prop_map(Step::Release),
            2 => Just(Step::Forget),
            1 => Just(Step::ReadAgain),
            2 => (1..40u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Whatever is forgotten and comes back: of all tokens that a member was ever granted, only that of its lease is new.
        #[test]
        fn no_old_token_comes_back(steps in vec(step(), 1..60), accept in prop_oneof![Just(Accept::Above), Just(Accept::AtOrAbove)]) {
            let rules = Rules { accept, ..family("branch", "refs/heads/*") };
            let members: Vec<FenceName> = ["a", "a/b", "b", "c"].iter().map(|it| name(&format!("branch/{it}"))).collect();
            let (mut state, mut day) = (State::default(), 0);
            let mut granted: Vec<Vec<Token>> = vec![Vec::new(); members.len()];
            // The token with which the last ownership began.
            let mut begun = vec![Token::try_from(1).unwrap(); members.len()];
            for (n, step) in steps.iter().enumerate() {
                match *step {
                    Step::Grant(at) => {
                        let known = state.fence(&members[at]);
                        let last = known.lease.map(|it| it.lease.token);
                        let token = next_token(last, known.mark).unwrap();
                        prop_assert!(granted[at].iter().all(|old| *old < token), "step {n}: {token} was granted before");
                        record(&mut state, &members[at], lease(1, token.get(), LeaseState::Held), day);
                        state.raise(&members[at], accept.mark_before(token));
                        granted[at].push(token);
                        begun[at] = token;
                    }
                    Step::Write(at) => {
                        let Some(held) = state.leases.get(&members[at]).map(|it| it.lease.clone()) else { continue };
                        if held.state != LeaseState::Held || !accept.admits(held.token, state.fence(&members[at]).mark) {
                            continue;
                        }
                        state.raise(&members[at], held.token.into());
                        let next = next_token(Some(held.token), Mark::default()).unwrap();
                        record(&mut state, &members[at], Lease { token: next, ..held }, day);
                        granted[at].push(next);
                    }
                    Step::Release(at) => {
                        let Some(held) = state.leases.get(&members[at]).map(|it| it.lease.clone()) else { continue };
                        record(&mut state, &members[at], Lease { state: LeaseState::Released, ..held }, day);
                    }
                    Step::Forget => _ = forget(&mut state, &rules, &at(day)),
                    Step::ReadAgain => {
                        state = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
                    }
                    Step::Wait(days) => day += days,
                }
                for (at, member) in members.iter().enumerate() {
                    let fence = state.fence(member);
                    let is_old = |token: &Token| match (fence.lease, accept) {
                        (None, _) => true,
                        (Some(standing), Accept::Above) => *token != standing.lease.token,
                        // There the tokens of one ownership write more than once.
                        (Some(_), Accept::AtOrAbove) => *token < begun[at],
                    };
                    for old in granted[at].iter().filter(|token| is_old(token)) {
                        prop_assert!(!accept.admits(*old, fence.mark), "step {n}: {old} of {member}, mark {}", fence.mark);
                    }
                }
            }
        }
    }
}
