//! Loss recovery without SACK: duplicate ACKs stand for segments that arrived out of order (RFC 5681 3.2, RFC
//! 6582 3.2), as Linux emulates SACK (`tcp_add_reno_sack` and related functions).

use skyhop_model::CongestionState;

use crate::ack::AckContext;
use crate::rack::MAX_REORDERING;
use crate::{CongestionControl, Sender};

impl<C: CongestionControl> Sender<C> {
    /// Whether the connection lacks SACK (`tcp_is_reno`).
    pub(crate) fn is_reno(&self) -> bool {
        !self.config.host.sack
    }

    /// Count a duplicate ACK as one more segment that has left the network (`tcp_add_reno_sack`).
    pub(crate) fn add_reno_sack(&mut self, ctx: &mut AckContext) {
        if !ctx.duplicate_ack {
            return;
        }
        let before = self.board.sacked_out;
        self.board.sacked_out += 1;
        self.check_reno_reordering(0);
        let delivered = self.board.sacked_out.saturating_sub(before);
        if delivered > 0 {
            self.count_delivered_many(delivered, ctx);
        }
    }

    /// Remove emulated SACKs (`tcp_remove_reno_sacks`): one of the `acked` segments filled the hole, and the
    /// duplicate ACKs have already counted the other segments.
    pub(crate) fn remove_reno_sacks(&mut self, acked: u32, ctx: &mut AckContext) {
        if acked > 0 {
            let sacked = self.board.sacked_out;
            self.count_delivered_many(acked.saturating_sub(sacked).max(1), ctx);
            self.board.sacked_out = sacked.saturating_sub(acked - 1);
        }
        self.check_reno_reordering(acked);
    }

    /// Forget the emulated SACKs (`tcp_reset_reno_sack`).
    pub(crate) fn reset_reno_sack(&mut self) {
        self.board.sacked_out = 0;
    }

    /// Detect reordering from more duplicate ACKs than there can be holes (`tcp_check_reno_reordering`,
    /// `tcp_limit_reno_sacked`).
    fn check_reno_reordering(&mut self, acked: u32) {
        let packets_out = self.board.packets_out();
        let holes = self.board.lost_out.max(1).min(packets_out);
        if self.board.sacked_out + holes > packets_out {
            self.board.sacked_out = packets_out - holes;
            self.tp.reordering = (packets_out + acked).min(MAX_REORDERING);
            self.rack.reordering_seen = true;
        }
    }

    /// Mark the first segment as lost after more duplicate ACKs than reordering explains, and the next one when
    /// an ACK in recovery is partial (RFC 6582 3.2 step 3, `tcp_newreno_mark_lost`).
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

    /// Whether to keep the congestion state until data above `high_seq` is acknowledged
    /// (`tcp_is_non_sack_preventing_reopen`). Otherwise duplicate ACKs of retransmissions would begin another
    /// recovery (RFC 6582 3.2).
    pub(crate) fn keeps_state_without_sack(&mut self) -> bool {
        let holds = self.is_reno() && self.board.una == self.high_seq;
        if holds {
            self.clean_up_retrans_stamp();
        }
        holds
    }
}
