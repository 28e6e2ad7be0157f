//! Parsers accept exactly their grammar.

use super::near::{cases, hostile};
use crate::surroundings::{Environment, GitSettings as _};
use proptest::{collection::vec, prelude::*};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

fn commands() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        "capabilities|list|list for-push|",
        "push \\+?(HEAD|refs/heads/[a-z]{1,3}|:/x|):refs/(heads/[a-z]{1,3}|fence/repo/lease)",
        "fetch ([0-9a-f]{40}|0{40}|[0-9a-f]{64}|--x) refs/heads/[a-z]{1,3}",
        "option (verbosity|depth|filter|deepen-relative|pushcert|dry-run|atomic|x) ([0-9]{1,3}|true|false|)",
        "option cas refs/heads/[a-z]:(0{40}|[0-9a-f]{40})",
        "option push-option (\"([a-z]|\\\\[abtnvfrq\"\\\\]|\\\\[0-9]{3}){0,5}\"|[ -~]{0,9})",
    ];
    vec(line, 0..6).prop_map(|lines| lines.join("\n").into_bytes())
}

fn report() -> impl Strategy<Value = Vec<u8>> {
    let line =
        "(!|\\*| |=)\tHEAD:refs/heads/[a-z]\t\\[(remote rejected|rejected|remote failure|new branch)\\] \\(.{0,9}\\)\n";
    let said = prop_oneof![
        2 => "error: src refspec x does not match any\n|fatal: [ -~]{0,9}\n|",
        1 => "fatal: the receiving end does not support (push options|--atomic push)\n",
        2 => "remote: fence: \\{\"verdict\":\"rejected\",\"code\":\"FENCE-(STALE|X)\",\"mark\":(4|-1|9223372036854775808)\\}  \n",
        2 => "remote: fence: \\{\"verdict\":\"rejected\",\"holder\":\\{\"owner\":\"a?(\\\\u001b|\\\\n|.){0,4}\",\"lease\":\"0{32}\",\"token\":5,\"(left_ms|expires_in_ms)\":1\\}\\}\n",
    ];
    (prop_oneof![Just(0), Just(1u8), Just(128)], vec(line, 0..3), "(Done\n)?", vec(said, 0..3)).prop_map(
        |(code, lines, done, said)| {
            [&[code][..], b"To x\n", lines.concat().as_bytes(), done.as_bytes(), b"\0", said.concat().as_bytes()]
                .concat()
        },
    )
}

fn variables() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "(https?://|ssh://|file://|)([a-z]{1,3}(:[a-z@]{1,3})?@)?[a-z]{0,3}[:/][a-z@/.]{0,9}(\\.git)?/?",
        "(GIT_CONFIG_(COUNT|KEY_[01]|VALUE_[01])=([0-2]|18446744073709551615|url\\.fence::x\\.pushInsteadOf|[a-z.]{0,9})\0){0,6}",
    ]
    .prop_map(String::into_bytes)
}

/// A list in shell quotes, as git reads it.
fn unquoted(list: &[u8]) -> Vec<u8> {
    let (mut out, mut inside, mut bytes) = (Vec::new(), false, list.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\'' => inside = !inside,
            b'\\' if !inside => out.extend(bytes.next()),
            byte => out.push(*byte),
        }
    }
    out
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn commands_are_parsed_strictly(bytes in hostile(commands())) {
        super::helper(&bytes);
    }

    #[test]
    fn only_complete_push_reports_count(bytes in hostile(report())) {
        super::answer(&bytes);
    }

    #[test]
    fn urls_and_settings_are_parsed_strictly(bytes in hostile(variables())) {
        super::surroundings(&bytes);
    }

    #[test]
    fn quoted_setting_round_trips(value in vec(any::<u8>(), 0..12)) {
        let mut environment = Environment::default();
        environment.set_last("push.pushOption", OsStr::from_bytes(&value));
        let quoted = environment.get(git_fence_system::env::GIT_CONFIG_PARAMETERS).unwrap().as_bytes().to_vec();
        prop_assert_eq!(unquoted(&quoted), [b"push.pushOption=", &value[..]].concat());
    }
}
