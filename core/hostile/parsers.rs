//! Parsers accept exactly their grammar, never panic, and read back what was written.

use super::{
    near::{cases, hostile, near},
    values,
};
use crate::{Beat, FenceName, Lease, LeasePart, Line, Plan, RefName, State};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::Value;

fn small_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        values::number(u64::MAX).prop_map(|n| n.to_string()),
        "922337203685477580[0-9]",
        "[a-z0-9._-]{0,66}",
        "[a-z0-9._-]{58,62}(\\.lock)?",
        "[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|0{40}",
        "([0-9]{1,3}d)?([0-9]{1,3}h)?([0-9]{1,3}m)?([0-9]{1,20}s)?([0-9]{1,5}ms)?",
        "(-|\\+|PT)?[0-9]{1,3} ?(s|S|sec|m|min|minutes|h|:30:00)( ago)?",
        "refs/(heads|tags)/[a-zäß/]{0,9}(\\\\x[0-9a-f+A-F]{2}){0,3}",
    ]
    .prop_map(String::into_bytes)
}

fn input_of_the_hook() -> impl Strategy<Value = Vec<u8>> {
    let ids = "(0{40}|[0-9a-f]{40}) ([0-9a-f]{40}|0{40}) |[0-9a-f]{64} [0-9a-f]{64} |[0-9a-f]{40} [0-9a-f]{64} ";
    vec((ids, "refs/heads/[ -~]{0,9}\n"), 1..4)
        .prop_map(|lines| lines.into_iter().map(|(ids, name)| ids + &name).collect::<String>().into_bytes())
}

fn push_options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        4 => "fence-token=(repo:|deploy:|nowhere:|:)?[0-9]{1,19}",
        2 => "fence-holder=(repo:|deploy:)?[0-9a-f]{64}",
        2 => "fence-(owner|token|holder|tokn)=?.{0,20}",
        1 => "fence-token=[12]|fence-owner|fence-token|fence-holder",
        1 => ".{0,20}",
    ];
    vec(option, 0..4).prop_map(|options| options.join("\0").into_bytes())
}

fn message(of: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    (of, "|\n|\n\n|\nFence-Extra: 1\n|Fence-Proof: [0-9a-f]{63,64}\n|Fence-Proof: \n")
        .prop_map(|(message, after)| (message + &after).into_bytes())
}

/// Values that nearly fit in place of another.
fn other_value() -> impl Strategy<Value = Value> {
    let texts = ["", "repo", "x.lock", "held", "a/b", "-1", "refs/heads/\\x+f", "first"];
    let hex = "[0-9a-f]{32}|[0-9a-f]{40}|0{40}|[0-9a-f]{64}|[0-9A-F]{40}";
    prop_oneof![
        Just(Value::Null),
        Just(Value::from(-1)),
        Just(Value::from(1.5)),
        values::number(u64::MAX).prop_map(Value::from),
        ((1 << 63) - 2..(1u64 << 63) + 2).prop_map(Value::from),
        (604_799..604_802u64).prop_map(Value::from),
        proptest::sample::select(texts.to_vec()).prop_map(Value::from),
        hex.prop_map(Value::from),
        Just(serde_json::json!([])),
        Just(serde_json::json!({})),
    ]
}

/// Every place in `value` where another value can be put.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(n, value)| places(value, format!("{at}/{n}"), all));
        }
        Value::Object(pairs) => pairs.iter().for_each(|(key, value)| places(value, format!("{at}/{key}"), all)),
        _ => {}
    }
    all.push(at);
}

fn replaced(mut value: Value, place: &Index, by: Value) -> Value {
    let mut all = Vec::new();
    places(&value, String::new(), &mut all);
    if let Some(found) = value.pointer_mut(place.get::<String>(&all)) {
        *found = by;
    }
    value
}

fn lease_ref(name: &RefName) {
    if let Some((fence, part)) = LeasePart::in_name(name) {
        assert_eq!(part.of(&fence), *name);
        assert!(name.is_lease());
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn small_values_are_parsed_strictly(bytes in hostile(small_value())) {
        super::small_values(&bytes);
    }

    #[test]
    fn hook_input_is_parsed_strictly(bytes in hostile(input_of_the_hook())) {
        super::push(&bytes);
    }

    #[test]
    fn push_options_are_parsed_strictly(bytes in hostile(push_options())) {
        super::options(&bytes);
    }

    #[test]
    fn names_of_lease_refs_are_parsed_strictly(name in near("refs/fence/[a-z]{1,4}/(lease|beat|lease/ask)".prop_map(String::into_bytes))) {
        lease_ref(&RefName::new(name));
    }

    #[test]
    fn names_of_members_are_parsed_strictly(name in near("refs/fence/[a-z]{1,4}%2f([a-z0-9_-]|%[0-9a-f]{2}){1,9}/(lease|beat|mark)".prop_map(String::into_bytes))) {
        lease_ref(&RefName::new(name));
    }

    #[test]
    fn members_are_read_as_they_are_written(name in near("[a-z]{1,4}/([a-zA-Z0-9./_-]|\\\\x[0-9a-f]{2}){1,9}(~[0-9a-f]{64})?".prop_map(String::into_bytes))) {
        if let Ok(fence) = FenceName::read(&name) {
            prop_assert!(super::grammar::is_fence_or_member(fence.as_str().as_bytes()), "{fence}");
            prop_assert_eq!(FenceName::read(fence.as_str().as_bytes()), Ok(fence.clone()));
            prop_assert_eq!(FenceName::in_component(fence.component().as_bytes()), Some(fence));
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn leases_are_parsed_strictly(bytes in hostile(message(values::lease().prop_map(|lease| lease.message(&FenceName::repo(), None))))) {
        super::record(&bytes);
    }

    #[test]
    fn beats_are_parsed_strictly(bytes in hostile(message(values::beat().prop_map(|beat| beat.message(&FenceName::repo(), None))))) {
        super::record(&bytes);
    }

    #[test]
    fn deadlines_are_parsed_strictly(
        beat in values::beat(),
        deadline in "[0-9]{4}-(0[0-9]|1[0-3])-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](Z|z|\\.5Z|\\+00:00|Z\\[UTC\\])?|-[0-9]{6}-01-01T00:00:00Z",
    ) {
        super::record(Beat { deadline, ..beat }.message(&FenceName::repo(), None).as_bytes());
    }

    #[test]
    fn leases_and_beats_round_trip(lease in values::lease(), beat in values::beat(), fence in values::fence()) {
        prop_assert_eq!(Lease::read(lease.message(&fence, None).as_bytes()), Ok(lease));
        prop_assert_eq!(Beat::read(beat.message(&fence, None).as_bytes()), Ok(beat));
    }

    #[test]
    fn line_round_trips(line in values::line()) {
        let written = serde_json::to_vec(&line).unwrap();
        prop_assert!(!written.contains(&b'\n'));
        prop_assert_eq!(serde_json::from_slice::<Line>(&written).unwrap(), line);
        super::line(&written);
    }

    #[test]
    fn line_with_another_value_is_read_exactly_or_refused(
        line in values::line(),
        place in any::<Index>(),
        by in other_value(),
    ) {
        super::line(replaced(serde_json::to_value(&line).unwrap(), &place, by).to_string().as_bytes());
    }

    #[test]
    fn line_with_a_repeated_key_is_refused(line in values::line(), which in any::<Index>()) {
        let Value::Object(pairs) = serde_json::to_value(&line).unwrap() else { unreachable!() };
        let (key, value) = which.get(&pairs.iter().collect::<Vec<_>>()).to_owned();
        let written = serde_json::to_string(&line).unwrap();
        let twice = format!("{{{}:{value},{}", Value::from(key.as_str()), &written[1..]);
        prop_assert!(serde_json::from_str::<Line>(&twice).is_err(), "{}", twice);
    }

    #[test]
    fn near_misses_of_a_line_are_read_exactly_or_refused(
        bytes in hostile(values::line().prop_map(|line| serde_json::to_vec(&line).unwrap())),
    ) {
        super::line(&bytes);
    }

    #[test]
    fn state_round_trips(state in values::state()) {
        let written = serde_json::to_vec(&state).unwrap();
        prop_assert_eq!(serde_json::from_slice::<State>(&written).unwrap(), state);
    }

    #[test]
    fn plan_round_trips_and_a_changed_plan_is_refused(
        refs in vec(values::planned(), 0..80),
        place in any::<Index>(),
        bit in 0..8u8,
    ) {
        let mut written = Plan::write_out(&refs);
        super::line(&written);
        let plan = Plan::of(refs.clone());
        prop_assert_eq!(plan.read_back(&written), Some(refs));
        if !written.is_empty() {
            let at = place.index(written.len());
            written[at] ^= 1 << bit;
            prop_assert_eq!(plan.read_back(&written), None);
        }
    }
}
