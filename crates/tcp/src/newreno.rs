//! Recovery without SACK: duplicate ACKs stand for what has arrived out of order (RFC 5681 3.2, RFC 6582 3.2), as Linux
//! emulates it: its `tcp_add_reno_sack` and what goes with it.

use skyhop_model::CongestionState;

use crate::ack::AckWork;
use crate::rack::MAX_REORDERING;
use crate::{CongestionControl, Sender};

impl<C: CongestionControl> Sender<C> {
    /// `tcp_is_reno`
    pub(crate) fn is_reno(&self) -> bool {
        !self.config.host.sack
    }

    /// `tcp_add_reno_sack`: a duplicate ACK means that one more segment has left the network.
    pub(crate) fn add_reno_sack(&mut self, work: &mut AckWork) {
        if !work.duplicate_ack {
            return;
        }
        let before = self.board.sacked_out;
        self.board.sacked_out += 1;
        self.check_reno_reordering(0);
        let delivered = self.board.sacked_out.saturating_sub(before);
        if delivered > 0 {
            self.count_delivered_many(delivered, work);
        }
    }

    /// `tcp_remove_reno_sacks`: one of the `acked` segments filled the hole, the others are those of duplicate ACKs.
    pub(crate) fn remove_reno_sacks(&mut self, acked: u32, work: &mut AckWork) {
        if acked > 0 {
            let sacked = self.board.sacked_out;
            self.count_delivered_many(acked.saturating_sub(sacked).max(1), work);
            self.board.sacked_out = sacked.saturating_sub(acked - 1);
        }
        self.check_reno_reordering(acked);
    }

    /// `tcp_reset_reno_sack`
    pub(crate) fn reset_reno_sack(&mut self) {
        self.board.sacked_out = 0;
    }

    /// `tcp_check_reno_reordering` and `tcp_limit_reno_sacked`: more duplicate ACKs than there can be holes for are a sign
    /// of reordering.
    fn check_reno_reordering(&mut self, acked: u32) {
        let packets_out = self.board.packets_out();
        let holes = self.board.lost_out.max(1).min(packets_out);
        if self.board.sacked_out + holes > packets_out {
            self.board.sacked_out = packets_out - holes;
            self.tp.reordering = (packets_out + acked).min(MAX_REORDERING);
            self.rack.reordering_seen = true;
        }
    }

    /// `tcp_newreno_mark_lost`: the first segment is lost after as many duplicate ACKs as reordering does not explain, and
    /// the next one when an ACK in recovery covers but part (RFC 6582 3.2 step 3).
    pub(crate) fn newreno_mark_lost(&mut self, advanced: bool) {
        let state = self.tp.ca_state();
        let begins =
            state < CongestionState::Recovery && self.board.sacked_out >= self.tp.reordering;
        let goes_on = state == CongestionState::Recovery && advanced;
        let head = self.board.una;
        if (begins || goes_on) && !self.board.entry(head).is(crate::scoreboard::LOST) {
            self.mark_lost(head, false);
        }
    }

    /// `tcp_is_non_sack_preventing_reopen`: the old state is held until something above `high_seq` is acknowledged (RFC
    /// 6582 3.2: else what was sent twice would begin another recovery).
    pub(crate) fn holds_state_without_sack(&mut self) -> bool {
        let holds = self.is_reno() && self.board.una == self.high_seq;
        if holds {
            self.clean_up_retrans_stamp();
        }
        holds
    }
}
