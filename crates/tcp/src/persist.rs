//! What a sender does when nothing is outstanding and nothing may leave: it asks whether the receiver's window has
//! opened (RFC 9293 3.8.6.1), and ends the waiting of what a cork holds back.

use crate::rto::TimerKind;
use crate::rtt::RTO_MAX_US;
use crate::transmit::Forced;
use crate::{CongestionControl, Sender};

/// The first probe waits no less (TCP_RTO_MIN).
const LEAST_WAIT_US: u64 = 200_000;
/// So often the wait doubles: until it would exceed RTO_MAX_US.
const MOST_DOUBLINGS: u32 = 10;

/// The probes since the last answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Persist {
    /// `icsk_probes_out`
    probes: u32,
    doublings: u32,
}

impl Persist {
    /// The other end is there.
    pub(crate) fn on_answer(&mut self) {
        self.probes = 0;
    }

    pub(crate) fn probes(&self) -> u32 {
        self.probes
    }
}

impl<C: CongestionControl> Sender<C> {
    /// `tcp_check_probe_timer`, where a flight ends: something is there, nothing is outstanding and nothing left.
    pub(crate) fn check_persist_timer(&mut self) {
        if self.board.packets_out() == 0
            && self.timer.is_none()
            && self.has_unsent()
            && !self.has_new_data()
        {
            self.arm(TimerKind::Persist, self.persist_base_us());
        }
    }

    /// `tcp_probe_timer` and `tcp_send_probe0`: what fits the window leaves, however short; else a probe.
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
        if self.gives_up_probing() {
            return;
        }
        self.forced = Some(Forced::Probe);
        self.persist.probes += 1;
        self.persist.doublings += 1;
        self.arm(TimerKind::Persist, self.persist_wait_us());
    }

    /// `tcp_ack_probe`: an ACK arrived while nothing was outstanding.
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

    /// `tcp_probe0_base`
    fn persist_base_us(&self) -> u64 {
        self.rto_us.max(LEAST_WAIT_US)
    }

    /// `tcp_probe0_when`
    fn persist_wait_us(&self) -> u64 {
        (self.persist_base_us() << self.persist.doublings.min(MOST_DOUBLINGS)).min(RTO_MAX_US)
    }
}
