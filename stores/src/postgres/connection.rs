//! The connection: to the first host that takes writes, and with a limit for each statement.

use super::{
    faults::{judge, not_connected, not_done},
    settings::Settings,
};
use crate::deadline::{Deadline, bounded};
use git_fence_core::{StoreFault, StoreFaultKind};
use postgres::Client;
use std::time::Duration;

const CONNECTING: Duration = Duration::from_secs(5);

/// A connection, as long as there is one.
pub(super) struct Connection {
    settings: Settings,
    /// The host that was connected to last.
    current: usize,
    connected: Option<Connected>,
}

/// A connection, and how long the server lets a statement take on it.
struct Connected {
    client: Client,
    limit: Option<Duration>,
}

impl Connection {
    pub(super) fn new(settings: Settings) -> Connection {
        Connection { settings, current: 0, connected: None }
    }

    /// Uses it no more.
    pub(super) fn leave(&mut self) {
        self.connected = None;
    }

    /// The connection; a new one if there is none, or if it broke.
    pub(super) fn client(&mut self, until: &Deadline) -> Result<&mut Client, StoreFault> {
        if self.connected.as_ref().is_none_or(|connected| connected.client.is_closed()) {
            self.connected = None;
            let client = self.connect(until)?;
            self.connected = Some(Connected { client, limit: None });
        }
        // Connecting may have taken long: nothing is sent after the deadline.
        let limit = limit_for(until.time_for_an_attempt()?);
        let connected = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        if let Err(e) = connected.limit_to(limit) {
            self.connected = None;
            return Err(not_done(judge(&e, &self.settings.place)));
        }
        let connected = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        Ok(&mut connected.client)
    }

    /// Connects to the first host that takes writes. One that accepts the connection and then says nothing is left.
    fn connect(&mut self, until: &Deadline) -> Result<Client, StoreFault> {
        let all = self.settings.hosts.len();
        let mut last = StoreFault::unreachable(format!("{} names no host", self.settings.place));
        for turn in 0..all {
            let at = (self.current + turn) % all;
            let until = &until.share(u32::try_from(all - turn).unwrap_or(1), CONNECTING);
            match self.connect_to(at, until) {
                Ok(client) => {
                    self.current = at;
                    return Ok(client);
                }
                Err(fault) if fault.kind == StoreFaultKind::Unreachable => last = fault,
                Err(fault) => return Err(fault),
            }
        }
        Err(last)
    }

    fn connect_to(&self, at: usize, until: &Deadline) -> Result<Client, StoreFault> {
        let left = until.time_for_an_attempt()?;
        let (host, port) = &self.settings.hosts[at];
        let mut config = self.settings.config.clone();
        config.host(host).port(*port).connect_timeout(left).tcp_user_timeout(CONNECTING);
        config.keepalives_idle(Duration::from_secs(30));
        let tls = self.settings.tls.clone();
        match bounded(until, move || config.connect(tls)) {
            Some(connected) => connected.map_err(|e| not_connected(&e, &self.settings.place)),
            None => Err(StoreFault::unreachable(format!("{host}:{port} did not answer in time"))),
        }
    }
}

impl Connected {
    /// The server ends what takes longer, and then it was not done. A commit that is not on disk is not one.
    fn limit_to(&mut self, limit: Duration) -> Result<(), postgres::Error> {
        if self.limit == Some(limit) {
            return Ok(());
        }
        self.limit = None;
        self.client.batch_execute(&format!(
            "SET statement_timeout = {}; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            limit.as_millis()
        ))?;
        self.limit = Some(limit);
        Ok(())
    }
}

/// The limit for a statement: whole seconds, so that it is not set anew for each of them.
fn limit_for(left: Duration) -> Duration {
    match left.as_secs() {
        0 | 1 => left,
        seconds => Duration::from_secs(seconds.min(3600)),
    }
}
