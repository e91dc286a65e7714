//! When a sender stops trying (RFC 9293 3.8.3), if it is one that does.

use crate::{CongestionControl, Failure, Sender};

/// sysctl tcp_retries2 and tcp_syn_retries.
const RETRIES: u32 = 15;
const SYN_RETRIES: u32 = 6;
/// `tcp_model_timeout`: how long sysctl tcp_retries2 retransmissions take when the timeout is 200 ms at first: it
/// doubles nine times, then 120 s pass for each.
const RETRIES_TIME_MS: u32 = ((2 << 9) - 1) * 200 + (RETRIES - 9) * 120_000;

impl<C: CongestionControl> Sender<C> {
    /// `tcp_write_timeout` of an established connection, before another retransmission. What was sent since the first
    /// one has not been answered.
    pub(crate) fn gives_up_retransmitting(&mut self) -> bool {
        let since = self.undo.retrans_stamp;
        let elapsed_ms = self.timestamp_at(self.now_us).wrapping_sub(since);
        self.gives_up_if(
            self.tp.inet_conn.icsk_retransmits > 0 && since != 0 && elapsed_ms >= RETRIES_TIME_MS,
            Failure::TimedOut,
        )
    }

    /// The same before the SYN leaves again, which has left `attempts` times.
    pub(crate) fn gives_up_opening(&mut self, attempts: u32) -> bool {
        self.gives_up_if(attempts > SYN_RETRIES + self.rules.linear_syns, Failure::Unanswered)
    }

    /// The same before another window probe.
    pub(crate) fn gives_up_probing(&mut self) -> bool {
        self.gives_up_if(self.persist.probes() >= RETRIES, Failure::TimedOut)
    }

    fn gives_up_if(&mut self, exhausted: bool, failure: Failure) -> bool {
        let gives_up = exhausted && self.config.gives_up;
        if gives_up {
            self.failure = Some(failure);
            self.timer = None;
        }
        gives_up
    }
}
