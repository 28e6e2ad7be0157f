//! What the errors of Redis and of the connection to it mean.

use crate::tls::{FILES, TlsTrouble};
use git_fence_core::{StoreFault, text};
use redis::{ErrorKind, RedisError, ServerErrorKind};

const RIGHTS: &str = "check user and password: in the URL or in REDISCLI_AUTH; \
                      the user needs  ~git-fence:* +eval +get +set +persist +time";

/// Whether a command may have been carried out.
pub(super) struct Trouble {
    pub(super) may_be_done: bool,
    pub(super) fault: StoreFault,
}

/// What an error means.
pub(super) fn judge(e: &RedisError, place: &str) -> Trouble {
    let why = format!("{place} says: {}", shown(e));
    let not = |fault| Trouble { may_be_done: false, fault };
    if let Some(tls) = TlsTrouble::of(e, FILES) {
        return Trouble { may_be_done: !tls.is_handshake, fault: tls.fault(why) };
    }
    match (e.kind(), e.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            not(StoreFault::denied(why, RIGHTS))
        }
        // In a script it is another error.
        (_, Some("ERR")) if is_about_rights(e) => not(StoreFault::denied(why, RIGHTS)),
        (_, Some("WRONGTYPE")) => {
            not(StoreFault::unusable(why, "another program uses this key: set another  ?prefix="))
        }
        (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask), _) => {
            not(StoreFault::unusable(why, "use a server that is not part of a cluster; sentinels may watch it"))
        }
        (_, Some("OOM" | "MISCONF")) => {
            not(StoreFault { hint: "make room in Redis".to_owned(), ..StoreFault::unreachable(why) })
        }
        // A replica, or a server that is starting: it has not done it.
        (ErrorKind::Server(kind), _) if kind != ServerErrorKind::ResponseError => not(StoreFault::unreachable(why)),
        (_, Some("NOREPLICAS" | "BUSY")) => not(StoreFault::unreachable(why)),
        (ErrorKind::InvalidClientConfig, _) => not(StoreFault::unusable(why, "check the URL and the files for TLS")),
        _ if e.is_connection_refusal() => not(StoreFault::unreachable(why)),
        (ErrorKind::Io, _) => Trouble { may_be_done: true, fault: StoreFault::unreachable(why) },
        (ErrorKind::MasterNameNotFoundBySentinel, _) => not(StoreFault::unreachable(why)),
        _ => not(StoreFault::unusable(why, "check the URL: is it Redis that answers there?")),
    }
}

fn is_about_rights(e: &RedisError) -> bool {
    e.detail().is_some_and(|detail| detail.contains("NOPERM") || detail.contains("user executing the script can't"))
}

pub(super) fn shown(e: &RedisError) -> String {
    match e.is_timeout() {
        true => "it did not answer in time".to_owned(),
        false => text::one_line(e.to_string().as_bytes(), 200),
    }
}
