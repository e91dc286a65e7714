//! Tail loss probes (RFC 8985 section 7).

use crate::ack::AckWork;
use crate::rto::TimerKind;
use crate::rtt::RTO_INITIAL_US;
use crate::transmit::Forced;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// The receiver may delay its ACK of a single segment this long: Linux takes its least RTO where
/// RFC 8985 7.2 says worst-case delayed ACK.
const SINGLE_SEGMENT_WAIT_US: u64 = 200_000;

/// RFC 8985 7.1's variables.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tlp {
    /// `nxt` when the probe left (TLP.end_seq); `None` while none is out.
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

    /// Whether a duplicate that ends at `end` is the probe.
    pub(crate) fn is_probe(&self, end: u64) -> bool {
        self.retransmitted && self.end_seq == Some(end)
    }
}

impl<C: CongestionControl> Sender<C> {
    /// RFC 8985 7.2: arms the probe timer, unless the connection recovers from a loss. `advancing`
    /// where the timeout would start anew now.
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

    /// RFC 8985 7.3: new data where there is some, else the last segment again. One probe at a
    /// time.
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

    /// RFC 8985 7.4: did the probe repair a loss?
    pub(crate) fn process_tlp_ack(&mut self, work: &AckWork) {
        let Some(end_seq) = self.tlp.end_seq.filter(|end| self.board.una >= *end) else {
            return;
        };
        if !self.tlp.retransmitted || work.dsack_of_probe {
            self.tlp.end();
        } else if self.board.una > end_seq {
            // No D-SACK: the original was lost, and that is a sign of congestion.
            self.begin_cwnd_reduction();
            self.set_state(CongestionState::Cwr);
            self.end_cwnd_reduction();
            self.try_keep_open();
        } else if work.is_pure_duplicate() {
            self.tlp.end();
        }
    }
}
