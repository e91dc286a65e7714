//! Retransmission timer: RFC 6298's timeout and back-off, the loss state, and F-RTO (RFC 5682).

use skyhop_cc::CaEvent;
use skyhop_model::CongestionState;
use skyhop_units::Instant;

use crate::ack::AckContext;
use crate::rack::DUP_THRESH;
use crate::rtt::RTO_MAX_US;
use crate::transmit::{Forced, Rexmit};
use crate::{CongestionControl, Sender};

/// Purpose for which a sender's only transmission timer is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// Retransmission timeout of RFC 6298.
    Retransmission,
    /// Reordering timer of RACK (RFC 8985 6.3).
    Reordering,
    /// Tail loss probe (RFC 8985 7).
    LossProbe,
    /// Probe of a closed window, or release of a corked segment.
    Persist,
}

impl<C: CongestionControl> Sender<C> {
    /// Arm the timer, replacing its earlier purpose. The kernel counts its timers in jiffies, rounded up.
    pub(crate) fn arm(&mut self, kind: TimerKind, wait_us: u64) {
        self.arm_ticks(kind, self.jiffies.ticks_in_us(wait_us));
    }

    fn arm_ticks(&mut self, kind: TimerKind, ticks: u64) {
        let now = Instant::from_nanos(self.now_us * 1000);
        self.timer = Some((kind, self.jiffies.fires_at(now, ticks)));
    }

    /// Arm the timer for a full retransmission timeout from now.
    pub(crate) fn arm_rto(&mut self) {
        self.arm_ticks(TimerKind::Retransmission, self.tp.inet_conn.icsk_rto.into());
    }

    pub(crate) fn whole_jiffies(&self, us: u64) -> u64 {
        self.jiffies.ticks_in_us(us) * self.jiffies.tick_us()
    }

    /// Restart the retransmission timer (RFC 6298 5.1-5.3). If a reordering or loss-probe timer had replaced
    /// it, the timeout counts from the transmission of the first outstanding segment, otherwise from now.
    pub(crate) fn rearm_rto(&mut self) {
        if self.board.packets_out() == 0 {
            self.timer = None;
            return;
        }
        let displaced =
            matches!(self.timer, Some((TimerKind::Reordering | TimerKind::LossProbe, _)));
        if displaced {
            self.arm(TimerKind::Retransmission, self.rto_remaining_us().max(1));
        } else {
            self.arm_rto();
        }
    }

    /// Time until the timeout of the first segment outstanding, in microseconds.
    pub(crate) fn rto_remaining_us(&self) -> u64 {
        let sent_us = self.board.entry(self.board.una).sent_us;
        (sent_us + self.rto_us).saturating_sub(self.now_us)
    }

    /// Set the timeout from the RTT estimate and end the back-off (RFC 6298 2 and 5.7).
    pub(crate) fn update_rto(&mut self) {
        self.set_rto(self.whole_jiffies(self.rtt.rto_us()));
        self.tp.inet_conn.icsk_backoff = 0;
    }

    /// Double the timeout (RFC 6298 5.5).
    pub(crate) fn back_off(&mut self) {
        let connection = &mut self.tp.inet_conn;
        connection.icsk_retransmits = connection.icsk_retransmits.saturating_add(1);
        connection.icsk_backoff = connection.icsk_backoff.saturating_add(1);
        self.set_rto((2 * self.rto_us).min(RTO_MAX_US));
    }

    fn set_rto(&mut self, rto_us: u64) {
        if rto_us != self.rto_us {
            self.rto_us = rto_us;
            self.tp.inet_conn.icsk_rto = self.jiffies.ticks_in_us(rto_us) as u32;
        }
    }

    /// Handle a retransmission timeout: the first segment is retransmitted (RFC 6298 5.4-5.6).
    pub(crate) fn on_retransmission_timer(&mut self) {
        if self.board.packets_out() == 0 || self.check_retransmission_limit() {
            return;
        }
        self.enter_loss();
        self.timeouts += 1;
        self.forced = Some(Forced::Retransmission(self.board.una));
        self.back_off();
        self.arm_rto();
    }

    /// Enter the Loss state: the congestion window shrinks to the segments in flight plus one (RFC 5681 3.1,
    /// equation 4 and below).
    fn enter_loss(&mut self) {
        let state = self.tp.ca_state();
        let new_recovery = state < CongestionState::Recovery;
        self.mark_lost_by_timeout();
        let retransmits = self.tp.inet_conn.icsk_retransmits;
        // Only the first timeout of a window may reduce it: RFC 5681 3.1, RFC 6582 3.2 step 6.
        if state <= CongestionState::Disorder
            || self.high_seq <= self.board.una
            || (state == CongestionState::Loss && retransmits == 0)
        {
            self.tp.prior_ssthresh = self.current_ssthresh();
            self.tp.prior_cwnd = self.tp.snd_cwnd;
            self.tp.snd_ssthresh = self.call_ssthresh();
            self.cwnd_event(CaEvent::Loss);
            self.begin_undo();
        }
        self.tp.snd_cwnd = self.board.in_flight() + 1;
        self.tp.snd_cwnd_cnt = 0;
        self.tp.snd_cwnd_stamp = self.jiffies();
        // A timeout although at least DupThresh segments are SACKed: the degree of reordering was
        // overestimated.
        if state <= CongestionState::Disorder && self.board.sacked_out >= DUP_THRESH {
            self.tp.reordering = self.tp.reordering.min(DUP_THRESH);
        }
        self.set_state(CongestionState::Loss);
        self.note_high_seq();
        self.tlp.end();
        self.ecn.queue_cwr();
        // RFC 5682 3.1 step 1: only the first timeout, or one after progress, can be spurious.
        self.frto = new_recovery || retransmits > 0;
    }

    /// Mark as lost the first outstanding segment, and every other that was sent more than an RTT ago (RFC 8985
    /// 6.3).
    fn mark_lost_by_timeout(&mut self) {
        if self.is_reno() {
            self.reset_reno_sack();
        }
        let head = self.board.una;
        let mut next = self.board.first_unsacked(head, self.board.nxt);
        while let Some(seq) = next {
            if seq == head || !self.rack_still_waits(self.board.entry(seq)) {
                self.mark_lost(seq, true);
            }
            next = self.board.first_unsacked(seq + 1, self.board.nxt);
        }
    }

    /// Process an ACK in the Loss state (RFC 5682 3.1 and the SACK variant in 3.2).
    pub(crate) fn process_loss(&mut self, ctx: &mut AckContext) {
        let recovered = self.board.una >= self.high_seq;
        if ctx.advanced && self.try_undo_loss(ctx, false) {
            return;
        }
        if self.frto {
            // Step 3.b: a segment that was sent only once arrived, so not all were lost.
            if ctx.original_acked && self.try_undo_loss(ctx, true) {
                return;
            }
            if self.board.nxt > self.high_seq {
                // Step 3.a: new data was sent and there is still a gap.
                if ctx.data_sacked || ctx.duplicate_ack {
                    self.frto = false;
                }
            } else if ctx.advanced && !recovered {
                // Step 2.b: try new data before retransmitting any more.
                self.note_high_seq();
                if self.has_new_data() {
                    self.rexmit = Rexmit::NewDataFirst;
                    return;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(ctx);
            return;
        }
        if self.is_reno() {
            if self.board.nxt > self.high_seq && ctx.duplicate_ack {
                self.add_reno_sack(ctx);
            } else if ctx.advanced {
                self.reset_reno_sack();
            }
        }
        self.rexmit = Rexmit::Lost;
    }
}
