//! Tail loss probes (RFC 8985 section 7).

use crate::ack::AckContext;
use crate::rto::TimerKind;
use crate::rtt::RTO_INITIAL_US;
use crate::transmit::Forced;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// Allowance for a delayed ACK of a single segment: Linux uses its smallest RTO instead of the worst-case
/// delayed-ACK timer of RFC 8985 7.2.
const SINGLE_SEGMENT_WAIT_US: u64 = 200_000;

/// Variables of RFC 8985 7.1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tlp {
    /// Value of `nxt` when the probe was sent (TLP.end_seq); `None` while none is outstanding.
    end_seq: Option<u64>,
    /// Whether the probe was a retransmission (TLP.is_retrans).
    retransmitted: bool,
}

impl Tlp {
    pub(crate) fn end(&mut self) {
        self.end_seq = None;
    }

    pub(crate) fn is_out(&self) -> bool {
        self.end_seq.is_some()
    }

    pub(crate) fn retransmission_out(&self) -> bool {
        self.end_seq.is_some() && self.retransmitted
    }

    /// Whether a D-SACK that ends at `end` reports the probe.
    pub(crate) fn is_probe(&self, end: u64) -> bool {
        self.retransmitted && self.end_seq == Some(end)
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Arm the probe timer, unless the connection is in recovery (RFC 8985 7.2). `advancing` is true if the
    /// retransmission timer would restart now: its full timeout then limits the wait, otherwise its remaining
    /// time. Return whether the timer was armed.
    pub(crate) fn schedule_loss_probe(&mut self, advancing: bool) -> bool {
        let state = self.tp.ca_state();
        let packets_out = self.board.packets_out();
        if packets_out == 0
            || self.is_reno()
            || !matches!(state, CongestionState::Open | CongestionState::Cwr)
        {
            return false;
        }
        let mut wait_us = RTO_INITIAL_US;
        if self.rtt.has_sample() {
            wait_us = 2 * self.rtt.srtt_us();
            wait_us += if packets_out == 1 {
                SINGLE_SEGMENT_WAIT_US
            } else {
                self.short_timer_margin_us()
            };
        }
        let rto_us = if advancing { self.rto_us } else { self.rto_remaining_us() };
        if rto_us > 0 {
            wait_us = wait_us.min(rto_us);
        }
        self.arm(TimerKind::LossProbe, wait_us);
        true
    }

    /// Send a probe, at most one per flight: new data if there is any, else the last segment again (RFC 8985
    /// 7.3).
    pub(crate) fn on_probe_timer(&mut self) {
        if !self.tlp.is_out() && self.board.packets_out() > 0 {
            let new_data = self.window_takes_next();
            self.forced = Some(if new_data {
                Forced::NewDataProbe
            } else {
                Forced::RetransmissionProbe(self.board.nxt - 1)
            });
            self.probes += 1;
            self.tlp.end_seq = Some(self.board.nxt + u64::from(new_data));
            self.tlp.retransmitted = !new_data;
            self.timer = None;
        }
        self.rearm_rto();
    }

    /// Detect whether the probe repaired a loss, which then reduces the window (RFC 8985 7.4).
    pub(crate) fn process_tlp_ack(&mut self, ctx: &AckContext) {
        let Some(end_seq) = self.tlp.end_seq.filter(|end| self.board.una >= *end) else {
            return;
        };
        if !self.tlp.retransmitted || ctx.dsack_of_probe {
            self.tlp.end();
        } else if self.board.una > end_seq {
            // No D-SACK: the original was lost, which is a sign of congestion.
            self.begin_cwnd_reduction();
            self.set_state(CongestionState::Cwr);
            self.end_cwnd_reduction();
            self.try_keep_open();
        } else if ctx.is_pure_duplicate() {
            self.tlp.end();
        }
    }
}
