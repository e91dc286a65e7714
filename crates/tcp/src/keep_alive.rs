//! Keepalive: probes of an idle connection, to find out whether the other end is still there (RFC 9293 3.8.4).

use skyhop_units::{Duration, Instant};

use skyhop_model::KeepAlive;

/// Keepalive timer of an established connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepAliveTimer {
    config: KeepAlive,
    /// Arrival time of the last packet from the other end.
    last_received: Instant,
    probes: u32,
    at: Instant,
}

/// Action to take when the keepalive timer fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepAliveAction {
    Nothing,
    Probe,
    Failure,
}

impl KeepAliveTimer {
    /// Start the timer of a connection established at `now`.
    pub(crate) fn new(config: KeepAlive, now: Instant) -> Self {
        Self { config, last_received: now, probes: 0, at: now + config.time }
    }

    /// Restart the idle time: a packet arrived from the other end.
    pub(crate) fn on_received(&mut self, now: Instant) {
        self.last_received = now;
        self.probes = 0;
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Choose the action and rearm the timer (`tcp_keepalive_timer`). While data is outstanding (`busy`), the
    /// retransmission timer detects a dead peer instead.
    pub(crate) fn on_timer(&mut self, now: Instant, busy: bool) -> KeepAliveAction {
        let KeepAlive { time, interval, probes } = self.config;
        let idle = now - self.last_received;
        let (due, wait) = if busy {
            (KeepAliveAction::Nothing, time)
        } else if idle < time {
            (KeepAliveAction::Nothing, time - idle)
        } else if self.probes >= probes {
            (KeepAliveAction::Failure, Duration::MAX)
        } else {
            self.probes += 1;
            (KeepAliveAction::Probe, interval)
        };
        self.at = now + wait;
        due
    }
}
