//! Limits on retransmissions, SYNs and window probes (RFC 9293 3.8.3), for senders that have them.

use crate::{CongestionControl, Failure, Sender};

/// Largest number of retransmissions of data (sysctl tcp_retries2).
const RETRIES: u32 = 15;
/// Largest number of retransmissions of a SYN, not counting those before exponential back-off begins (sysctl
/// tcp_syn_retries).
const SYN_RETRIES: u32 = 6;
/// Duration of [`RETRIES`] retransmissions for a first timeout of 200 ms, in milliseconds: it doubles nine
/// times, then stays at 120 s (`tcp_model_timeout`).
const RETRIES_TIME_MS: u32 = ((2 << 9) - 1) * 200 + (RETRIES - 9) * 120_000;

impl<C: CongestionControl> Sender<C> {
    /// Give up before another retransmission if too much time has passed since the first unanswered one
    /// (`tcp_write_timeout`); return whether the sender gave up.
    pub(crate) fn check_retransmission_limit(&mut self) -> bool {
        let since = self.undo.retrans_stamp;
        let elapsed_ms = self.timestamp_at(self.now_us).wrapping_sub(since);
        self.fail_if(
            self.tp.inet_conn.icsk_retransmits > 0 && since != 0 && elapsed_ms >= RETRIES_TIME_MS,
            Failure::TimedOut,
        )
    }

    /// Give up before another SYN if `attempts` SYNs have not been answered; return whether the sender gave up.
    pub(crate) fn check_syn_limit(&mut self, attempts: u32) -> bool {
        self.fail_if(attempts > SYN_RETRIES + self.rules.linear_syns, Failure::Unanswered)
    }

    /// Give up before another window probe if too many have not been answered; return whether the sender gave
    /// up.
    pub(crate) fn check_probe_limit(&mut self) -> bool {
        self.fail_if(self.persist.probes() >= RETRIES, Failure::TimedOut)
    }

    fn fail_if(&mut self, exhausted: bool, failure: Failure) -> bool {
        let gives_up = exhausted && self.config.gives_up;
        if gives_up {
            self.failure = Some(failure);
            self.timer = None;
        }
        gives_up
    }
}
