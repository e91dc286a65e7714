//! Whether the other end of an idle connection is still there (RFC 9293 3.8.4).

use skyhop_units::{Duration, Instant};

use skyhop_model::KeepAlive;

/// The timer of a connection that is kept alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepAliveTimer {
    config: KeepAlive,
    /// When something was last heard of the other end.
    heard: Instant,
    probes: u32,
    at: Instant,
}

/// What is to be done when it fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Probe,
    Failure,
}

impl KeepAliveTimer {
    /// The connection is established.
    pub(crate) fn new(config: KeepAlive, now: Instant) -> Self {
        Self { config, heard: now, probes: 0, at: now + config.time }
    }

    /// The other end sent something.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.heard = now;
        self.probes = 0;
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// `tcp_keepalive_timer`. While data is `busy`, its own timers do that.
    pub(crate) fn on_timer(&mut self, now: Instant, busy: bool) -> Due {
        let KeepAlive { time, interval, probes } = self.config;
        let idle = now - self.heard;
        let (due, wait) = if busy {
            (Due::Nothing, time)
        } else if idle < time {
            (Due::Nothing, time - idle)
        } else if self.probes >= probes {
            (Due::Failure, Duration::MAX)
        } else {
            self.probes += 1;
            (Due::Probe, interval)
        };
        self.at = now + wait;
        due
    }
}
