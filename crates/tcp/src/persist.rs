//! Persist timer, which runs while no data is outstanding and no waiting data may leave. It probes whether the
//! receiver's window has opened (RFC 9293 3.8.6.1), and releases segments that TCP_CORK holds back.

use crate::rto::TimerKind;
use crate::rtt::RTO_MAX_US;
use crate::transmit::Forced;
use crate::{CongestionControl, Sender};

/// Shortest wait before the first probe (TCP_RTO_MIN).
const LEAST_WAIT_US: u64 = 200_000;
/// Largest number of doublings of the wait between probes; after them the wait exceeds RTO_MAX_US.
const MOST_DOUBLINGS: u32 = 10;

/// Window probes since the last answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Persist {
    /// Number of probes not answered (`icsk_probes_out`).
    probes: u32,
    doublings: u32,
}

impl Persist {
    /// Reset the count of probes: the other end answered.
    pub(crate) fn on_answer(&mut self) {
        self.probes = 0;
    }

    pub(crate) fn probes(&self) -> u32 {
        self.probes
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Arm the persist timer at the end of a flight if data waits, nothing is outstanding and nothing may leave
    /// (`tcp_check_probe_timer`).
    pub(crate) fn check_persist_timer(&mut self) {
        if self.board.packets_out() == 0
            && self.timer.is_none()
            && self.has_unsent()
            && !self.has_new_data()
        {
            self.arm(TimerKind::Persist, self.persist_base_us());
        }
    }

    /// Send the data that fits the receiver's window, even if it is shorter than a segment, or a probe if none
    /// fits (`tcp_probe_timer`, `tcp_send_probe0`).
    pub(crate) fn on_persist_timer(&mut self) {
        self.timer = None;
        if self.board.packets_out() > 0 || !self.has_unsent() {
            self.persist = Persist::default();
            return;
        }
        if self.unsent().room > 0 {
            self.persist = Persist::default();
            self.forced = Some(Forced::NewData);
            return;
        }
        if self.check_probe_limit() {
            return;
        }
        self.forced = Some(Forced::Probe);
        self.persist.probes += 1;
        self.persist.doublings += 1;
        self.arm(TimerKind::Persist, self.persist_wait_us());
    }

    /// Stop or rearm the persist timer when an ACK arrives while nothing is outstanding (`tcp_ack_probe`).
    pub(crate) fn on_persist_answer(&mut self) {
        if !matches!(self.timer, Some((TimerKind::Persist, _))) {
            return;
        }
        if self.window_takes_next() {
            self.persist.doublings = 0;
            self.timer = None;
        } else {
            self.arm(TimerKind::Persist, self.persist_wait_us());
        }
    }

    /// Wait before the first probe, in microseconds (`tcp_probe0_base`).
    fn persist_base_us(&self) -> u64 {
        self.rto_us.max(LEAST_WAIT_US)
    }

    /// Wait before the next probe, with exponential back-off, in microseconds (`tcp_probe0_when`).
    fn persist_wait_us(&self) -> u64 {
        (self.persist_base_us() << self.persist.doublings.min(MOST_DOUBLINGS)).min(RTO_MAX_US)
    }
}
