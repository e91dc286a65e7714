//! Taking back a reduction that proved needless: by D-SACK (RFC 3708) or by timestamps (the Eifel
//! algorithm: RFC 3522 detects, RFC 4015 responds).

use crate::ack::AckWork;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// What has to be known for it; the count of retransmissions is in the socket, as `undo_retrans`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Undo {
    /// `una` when the reduction began; `None` where there is nothing to undo.
    pub(crate) marker: Option<u64>,
    /// The timestamp of the first retransmission; 0 where there is none (RFC 3522 3.2 step 1).
    pub(crate) retrans_stamp: u32,
}

/// Whether timestamp `a` is older than `b` (RFC 7323 5.2), where both are known.
pub(crate) const fn ts_before(a: u32, b: u32) -> bool {
    a != 0 && b != 0 && (a.wrapping_sub(b) as i32) < 0
}

impl<C: CongestionControl> Sender<C> {
    /// A reduction begins. A retransmission still in flight may be reported as duplicate later.
    pub(crate) fn begin_undo(&mut self) {
        self.undo.marker = Some(self.board.una);
        let outstanding = self.board.retrans_out + u32::from(self.tlp.retransmission_out());
        self.tp.undo_retrans = if outstanding == 0 { -1 } else { outstanding as i32 };
    }

    /// Notes a retransmission that may prove needless.
    pub(crate) fn count_retransmission(&mut self) {
        if self.undo.retrans_stamp == 0 {
            self.undo.retrans_stamp = self.timestamp_at(self.now_us);
        }
        self.tp.undo_retrans = self.tp.undo_retrans.max(0) + 1;
    }

    /// `count` retransmissions were reported as duplicates.
    pub(crate) fn uncount_retransmissions(&mut self, count: u64, end: u64) {
        if self.undo.marker.is_some_and(|marker| end > marker) && self.tp.undo_retrans > 0 {
            self.tp.undo_retrans = (i64::from(self.tp.undo_retrans) - count as i64).max(0) as i32;
        }
    }

    /// RFC 3522 3.2 step 4: the ACK was caused by a segment sent before the first retransmission; or nothing has been
    /// retransmitted yet, because pacing holds it back.
    fn packet_was_delayed(&self, work: &AckWork) -> bool {
        if self.undo.retrans_stamp != 0 {
            return ts_before(work.tsecr, self.undo.retrans_stamp);
        }
        self.rules.undoes_without_retransmission
            && (self.config.host.sack || self.board.una < self.high_seq)
    }

    fn may_undo(&self, work: &AckWork) -> bool {
        self.undo.marker.is_some() && (self.tp.undo_retrans == 0 || self.packet_was_delayed(work))
    }

    /// RFC 4015 4 and RFC 3708 5: window and threshold return to what they were.
    fn undo_cwnd_reduction(&mut self, unmark_lost: bool) {
        if unmark_lost {
            self.board.unmark_all_lost();
        }
        if self.tp.prior_ssthresh != 0 {
            self.publish();
            self.tp.snd_cwnd = self.cc.undo_cwnd(&mut self.tp).max(1);
            if self.tp.prior_ssthresh > self.tp.snd_ssthresh {
                self.tp.snd_ssthresh = self.tp.prior_ssthresh;
                self.ecn.withdraw_cwr();
            }
        }
        self.tp.snd_cwnd_stamp = self.jiffies();
        self.undo.marker = None;
        // What is still out deserves another look.
        self.rack.advanced = true;
        self.undos += 1;
    }

    /// All retransmissions were reported as duplicates.
    pub(crate) fn try_undo_dsack(&mut self) -> bool {
        if self.undo.marker.is_none() || self.tp.undo_retrans != 0 {
            return false;
        }
        self.rack.keep_reo_wnd();
        self.undo_cwnd_reduction(false);
        true
    }

    /// An ACK in mid-recovery was caused by an original: the segment was late, not lost.
    pub(crate) fn try_undo_partial(&mut self, work: &AckWork) -> bool {
        if self.undo.marker.is_none() || !self.packet_was_delayed(work) {
            return false;
        }
        self.check_reordering(work.prior_una, self.board.sacked_end());
        // While a retransmission is out, wait for its ACK to tell more.
        if self.board.retrans_out > 0 {
            return true;
        }
        self.clean_up_retrans_stamp();
        self.undo_cwnd_reduction(true);
        self.try_keep_open();
        false
    }

    /// `tcp_retrans_stamp_cleanup`: the next retransmission is the first of an episode.
    pub(crate) fn clean_up_retrans_stamp(&mut self) {
        if !self.any_retransmission_out() {
            self.undo.retrans_stamp = 0;
        }
    }

    /// The end of a recovery or loss state: back to Open, undone where it was needless. Without SACK the state may have to
    /// be held; whether it is.
    pub(crate) fn try_undo_recovery(&mut self, work: &AckWork) -> bool {
        if self.may_undo(work) {
            self.undo_cwnd_reduction(false);
        } else {
            self.rack.reo_wnd_persist = self.rack.reo_wnd_persist.saturating_sub(1);
        }
        if self.holds_state_without_sack() {
            return true;
        }
        self.set_state(CongestionState::Open);
        false
    }

    /// A timeout was spurious: F-RTO says so, D-SACK, or a timestamp.
    pub(crate) fn try_undo_loss(&mut self, work: &AckWork, by_frto: bool) -> bool {
        if !by_frto && !self.may_undo(work) {
            return false;
        }
        self.undo_cwnd_reduction(true);
        self.tp.inet_conn.icsk_retransmits = 0;
        if !self.holds_state_without_sack() && (by_frto || !self.is_reno()) {
            self.set_state(CongestionState::Open);
        }
        true
    }

    /// Whether anything outstanding has been retransmitted, as far as the kernel looks: in flight
    /// or at the head.
    pub(crate) fn any_retransmission_out(&self) -> bool {
        self.board.retrans_out > 0
            || (self.board.packets_out() > 0
                && self.board.entry(self.board.una).is(crate::scoreboard::EVER_RETRANS))
    }
}
