//! Undo of window reductions that proved spurious, by D-SACK (RFC 3708) or by timestamps (Eifel algorithm: RFC
//! 3522 detection, RFC 4015 response).

use crate::ack::AckContext;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// State for the undo of a window reduction; the number of retransmissions that may be spurious is in the
/// socket (`undo_retrans`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Undo {
    /// Value of `una` when the reduction began; `None` if there is nothing to undo.
    pub(crate) marker: Option<u64>,
    /// Timestamp of the first retransmission; 0 if there is none (RFC 3522 3.2 step 1).
    pub(crate) retrans_stamp: u32,
}

/// Whether timestamp `a` is older than `b` (RFC 7323 5.2); `false` if either is unknown.
pub(crate) const fn ts_before(a: u32, b: u32) -> bool {
    a != 0 && b != 0 && (a.wrapping_sub(b) as i32) < 0
}

impl<C: CongestionControl> Sender<C> {
    /// Begin to track a window reduction. A retransmission that is still in flight counts, as the receiver may
    /// later report it as a duplicate.
    pub(crate) fn begin_undo(&mut self) {
        self.undo.marker = Some(self.board.una);
        let outstanding = self.board.retrans_out + u32::from(self.tlp.retransmission_out());
        self.tp.undo_retrans = if outstanding == 0 { -1 } else { outstanding as i32 };
    }

    /// Count a retransmission that may prove spurious.
    pub(crate) fn count_retransmission(&mut self) {
        if self.undo.retrans_stamp == 0 {
            self.undo.retrans_stamp = self.timestamp_at(self.now_us);
        }
        self.tp.undo_retrans = self.tp.undo_retrans.max(0) + 1;
    }

    /// Subtract `count` retransmissions that a D-SACK reported as duplicates; `end` is the sequence number
    /// after the reported block. Segments sent before the reduction do not count.
    pub(crate) fn uncount_retransmissions(&mut self, count: u64, end: u64) {
        if self.undo.marker.is_some_and(|marker| end > marker) && self.tp.undo_retrans > 0 {
            self.tp.undo_retrans = (i64::from(self.tp.undo_retrans) - count as i64).max(0) as i32;
        }
    }

    /// Whether the ACK was caused by a segment sent before the first retransmission (RFC 3522 3.2 step 4), or
    /// nothing has been retransmitted yet, because pacing holds it back.
    fn packet_was_delayed(&self, ctx: &AckContext) -> bool {
        if self.undo.retrans_stamp != 0 {
            return ts_before(ctx.tsecr, self.undo.retrans_stamp);
        }
        self.rules.undoes_without_retransmission
            && (self.config.host.sack || self.board.una < self.high_seq)
    }

    fn may_undo(&self, ctx: &AckContext) -> bool {
        self.undo.marker.is_some() && (self.tp.undo_retrans == 0 || self.packet_was_delayed(ctx))
    }

    /// Restore the congestion window and ssthresh (RFC 4015 4, RFC 3708 5).
    fn undo_cwnd_reduction(&mut self, unmark_lost: bool) {
        if unmark_lost {
            self.board.unmark_all_lost();
        }
        if self.tp.prior_ssthresh != 0 {
            self.fill_socket();
            self.tp.snd_cwnd = self.cc.undo_cwnd(&mut self.tp).max(1);
            if self.tp.prior_ssthresh > self.tp.snd_ssthresh {
                self.tp.snd_ssthresh = self.tp.prior_ssthresh;
                self.ecn.withdraw_cwr();
            }
        }
        self.tp.snd_cwnd_stamp = self.jiffies();
        self.undo.marker = None;
        // Examine the outstanding segments for losses again.
        self.rack.advanced = true;
        self.undos += 1;
    }

    /// Undo the reduction if all retransmissions were reported as duplicates.
    pub(crate) fn try_undo_dsack(&mut self) -> bool {
        if self.undo.marker.is_none() || self.tp.undo_retrans != 0 {
            return false;
        }
        self.rack.keep_reo_wnd();
        self.undo_cwnd_reduction(false);
        true
    }

    /// Undo the reduction during recovery if an original segment caused the ACK: it was late, not lost.
    pub(crate) fn try_undo_partial(&mut self, ctx: &AckContext) -> bool {
        if self.undo.marker.is_none() || !self.packet_was_delayed(ctx) {
            return false;
        }
        self.check_reordering(ctx.prior_una, self.board.sacked_end());
        // Wait for the ACK of an outstanding retransmission.
        if self.board.retrans_out > 0 {
            return true;
        }
        self.clean_up_retrans_stamp();
        self.undo_cwnd_reduction(true);
        self.try_keep_open();
        false
    }

    /// Make the next retransmission the first of an episode (`tcp_retrans_stamp_cleanup`).
    pub(crate) fn clean_up_retrans_stamp(&mut self) {
        if !self.any_retransmission_out() {
            self.undo.retrans_stamp = 0;
        }
    }

    /// End Recovery or Loss: return to Open, and undo a spurious reduction. Return true if the state must not
    /// change yet, which happens only without SACK.
    pub(crate) fn try_undo_recovery(&mut self, ctx: &AckContext) -> bool {
        if self.may_undo(ctx) {
            self.undo_cwnd_reduction(false);
        } else {
            self.rack.reo_wnd_persist = self.rack.reo_wnd_persist.saturating_sub(1);
        }
        if self.keeps_state_without_sack() {
            return true;
        }
        self.set_state(CongestionState::Open);
        false
    }

    /// Undo a spurious timeout, found by F-RTO, D-SACK or a timestamp; return whether it was undone.
    pub(crate) fn try_undo_loss(&mut self, ctx: &AckContext, by_frto: bool) -> bool {
        if !by_frto && !self.may_undo(ctx) {
            return false;
        }
        self.undo_cwnd_reduction(true);
        self.tp.inet_conn.icsk_retransmits = 0;
        if !self.keeps_state_without_sack() && (by_frto || !self.is_reno()) {
            self.set_state(CongestionState::Open);
        }
        true
    }

    /// Whether any outstanding segment was retransmitted, as far as the kernel checks: a retransmission is in
    /// flight, or the first outstanding segment was retransmitted.
    pub(crate) fn any_retransmission_out(&self) -> bool {
        self.board.retrans_out > 0
            || (self.board.packets_out() > 0
                && self.board.entry(self.board.una).is(crate::scoreboard::EVER_RETRANS))
    }
}
