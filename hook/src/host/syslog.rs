//! Sends each decision, with its fields, to the local journald or syslog.
//!
//! This happens after the lock was released and the log written, without waiting, and errors are ignored: it never
//! affects a push. The log is authoritative; this is for monitoring.

use git_fence_core::{Event, Lease, Line, Refused, Syslog, text};
use serde_json::Value;
use std::{
    io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

const JOURNALD: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// The facility for security messages: `authpriv`.
const FACILITY: u8 = 10;
/// The private enterprise number that RFC 5612 reserves for documentation and examples.
const ENTERPRISE: u32 = 32473;

/// Sends the written lines to `listener`.
pub(crate) fn announce(listener: Option<&Syslog>, lines: &[Line]) {
    let Some((path, socket)) = listener.and_then(|listener| connect(listener).ok()) else { return };
    for line in lines {
        let message = if path == Path::new(JOURNALD) { for_journald(line) } else { for_syslog(line) };
        let _ = socket.send(message.as_bytes());
    }
}

/// Connects to the listener.
pub(crate) fn connect(listener: &Syslog) -> io::Result<(PathBuf, UnixDatagram)> {
    let paths: Vec<PathBuf> = match listener {
        Syslog::Local => vec![JOURNALD.into(), SYSLOG.into()],
        Syslog::Socket(path) => vec![path.into()],
    };
    let socket = UnixDatagram::unbound()?;
    // A listener that does not read must not block a push.
    socket.set_nonblocking(true)?;
    let mut tried = Err(io::ErrorKind::NotFound.into());
    for path in paths {
        tried = socket.connect(&path).map(|()| path);
        if tried.is_ok() {
            break;
        }
    }
    tried.map(|path| (path, socket))
}

/// Journald's native protocol: one line for each field.
fn for_journald(line: &Line) -> String {
    let mut message = format!("MESSAGE={}\nPRIORITY={}\nSYSLOG_IDENTIFIER=git-fence\n", sentence(line), severity(line));
    for (name, value) in fields(line) {
        message += &format!("FENCE_{}={}\n", name.to_ascii_uppercase(), text::one_line(value.as_bytes(), 1000));
    }
    message
}

/// RFC 5424, with the fields as structured data.
fn for_syslog(line: &Line) -> String {
    let quoted = |value: &str| {
        let value = text::one_line(value.as_bytes(), 1000);
        value.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]")
    };
    let fields: Vec<String> =
        fields(line).into_iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(&value))).collect();
    format!(
        "<{}>1 {} - git-fence {} - [fence@{ENTERPRISE} {}] {}",
        FACILITY * 8 + severity(line),
        line.time,
        std::process::id(),
        fields.join(" "),
        sentence(line)
    )
}

/// The scalar fields of a line, including the number of refs.
fn fields(line: &Line) -> Vec<(String, String)> {
    let Ok(Value::Object(all)) = serde_json::to_value(line) else { return Vec::new() };
    let scalar = |(name, value): (String, Value)| match value {
        Value::String(text) => Some((name, text)),
        Value::Number(number) => Some((name, number.to_string())),
        Value::Bool(yes) => Some((name, yes.to_string())),
        _ => None,
    };
    all.into_iter().filter(|(name, _)| name != "prev").filter_map(scalar).collect()
}

fn sentence(line: &Line) -> String {
    let kind = serde_json::to_value(&line.event).ok().and_then(|event| Some(event["event"].as_str()?.to_owned()));
    let kind = kind.unwrap_or_default();
    match &line.event {
        Event::PushRejected(Refused { code, reason, who, .. })
        | Event::LeaseRefused(Refused { code, reason, who, .. })
        | Event::PushObserved(Refused { code, reason, who, .. }) => {
            format!("{kind} {code} {reason} (pusher {})", text::in_quotes(&who.pusher))
        }
        Event::PushAccepted { stake, who, .. } => {
            let token = stake.token.map_or("no token".to_owned(), |token| format!("token {token}"));
            format!("{kind} {token} for fence '{}' (pusher {})", stake.fence, text::in_quotes(&who.pusher))
        }
        Event::PushSettled { push, stake, moved, count, .. } | Event::PushLanded { push, stake, moved, count, .. } => {
            format!("{kind} push {push} moved {moved} of {count} refs, mark {} of fence '{}'", stake.mark, stake.fence)
        }
        Event::LeaseGranted(line)
        | Event::LeaseAdvanced(line)
        | Event::LeaseReleased(line)
        | Event::LeaseRevoked(line)
        | Event::LeaseHalted(line)
        | Event::LeaseResumed(line)
        | Event::LeaseFound(line) => {
            let Lease { token, owner, .. } = &line.standing.lease;
            format!("{kind} token {token} of {} for fence '{}'", text::in_quotes(owner), line.fence)
        }
        _ => kind,
    }
}

/// Refused pushes are warnings. A skipped run is not, nor everything else is information.
fn severity(line: &Line) -> u8 {
    match line.event {
        Event::PushRejected(_)
        | Event::PushObserved(_)
        | Event::PushEvicted { .. }
        | Event::MarkLowered { .. }
        | Event::TokensChanged { .. }
        | Event::LeaseRevoked(_)
        | Event::LeaseHalted(_)
        | Event::LeaseResumed(_) => 4,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::{FenceName, LineHash, Mark};

    fn line() -> Line {
        let lowered = Event::MarkLowered {
            fence: FenceName::repo(),
            from: Mark::at(9).unwrap(),
            mark: Mark::at(5).unwrap(),
            reason: "a \"]\\ b".to_owned(),
            pusher: "root".to_owned(),
        };
        Line { seq: 7, time: "2026-01-01T00:00:00.000Z".to_owned(), event: lowered, prev: LineHash::none() }
    }

    #[test]
    fn values_are_escaped_in_their_fields() {
        let message = for_syslog(&line());
        assert!(message.starts_with("<84>1 2026-01-01T00:00:00.000Z - git-fence "), "{message}");
        assert!(message.contains(r#"reason="a \"\]\\ b""#), "{message}");
        assert!(message.ends_with("] mark.lowered"), "{message}");
        let message = for_journald(&line());
        assert!(message.contains("FENCE_REASON=a \"]\\ b\n") && message.contains("FENCE_FROM=9\n"), "{message}");
    }
}
