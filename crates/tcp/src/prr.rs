//! Proportional rate reduction (RFC 6937bis): the window moves gradually from its old size to ssthresh.

use skyhop_cc::CaEvent;
use skyhop_model::CongestionState;

use crate::{CongestionControl, Sender};

/// Variables of RFC 6937bis 6; `prior_cwnd` (RecoverFS) is in the socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prr {
    /// Segments delivered since the reduction began.
    delivered: u32,
    /// Segments sent since the reduction began.
    pub(crate) out: u32,
}

impl<C: CongestionControl> Sender<C> {
    /// Whether PRR governs the window.
    pub(crate) fn in_cwnd_reduction(&self) -> bool {
        matches!(self.tp.ca_state(), CongestionState::Cwr | CongestionState::Recovery)
    }

    /// Begin a reduction: record the prior window and ask the congestion control for ssthresh (RFC 6937bis
    /// 6.1).
    pub(crate) fn begin_cwnd_reduction(&mut self) {
        self.note_high_seq();
        self.tlp.end();
        self.tp.snd_cwnd_cnt = 0;
        self.tp.prior_cwnd = self.tp.snd_cwnd;
        self.prr = Prr::default();
        self.tp.snd_ssthresh = self.call_ssthresh();
        self.ecn.queue_cwr();
    }

    /// Update the window once per ACK (RFC 6937bis 6.2). `may_grow` is true if the ACK advances without new
    /// losses: the slow-start bound then applies.
    pub(crate) fn reduce_cwnd(&mut self, newly_delivered: u32, may_grow: bool) {
        if newly_delivered == 0 || self.tp.prior_cwnd == 0 {
            return;
        }
        self.prr.delivered += newly_delivered;
        let in_flight = self.board.in_flight();
        let (ssthresh, prior) = (self.tp.snd_ssthresh, self.tp.prior_cwnd);
        let send = if in_flight > ssthresh {
            // Proportional part: segments leave at the ratio of the new to the old window.
            let due = (u64::from(ssthresh) * u64::from(self.prr.delivered)).div_ceil(prior.into());
            due as i64 - i64::from(self.prr.out)
        } else {
            // Below ssthresh: conservative bound, or the slow-start bound if the window may grow.
            let owed = i64::from(self.prr.delivered) - i64::from(self.prr.out);
            let room = i64::from(ssthresh - in_flight);
            match (may_grow, self.rules.prr_grows_on_advance) {
                (true, _) => (owed.max(newly_delivered.into()) + 1).min(room),
                (false, true) => owed.max(newly_delivered.into()).min(room),
                // RFC 6937 3.1: conservation of packets.
                (false, false) => i64::from(newly_delivered).min(room),
            }
        };
        // The first retransmission leaves in any case.
        let send = send.max(i64::from(self.prr.out == 0)).max(0);
        self.tp.snd_cwnd = (in_flight + send as u32).max(1);
    }

    /// Set the window to ssthresh at the end of the reduction (RFC 6937bis 6.3).
    pub(crate) fn end_cwnd_reduction(&mut self) {
        if self.has_cong_control {
            return;
        }
        let reduced = self.tp.ca_state() == CongestionState::Cwr || self.undo.marker.is_some();
        if self.tp.snd_ssthresh < skyhop_cc::TCP_INFINITE_SSTHRESH && reduced {
            self.tp.snd_cwnd = self.tp.snd_ssthresh;
            self.tp.snd_cwnd_stamp = self.jiffies();
        }
        self.cwnd_event(CaEvent::CompleteCwr);
    }
}
