//! Congestion states Open, Disorder, CWR, Recovery and Loss, and the transitions between them.

use crate::ack::AckContext;
use crate::transmit::Rexmit;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

impl<C: CongestionControl> Sender<C> {
    /// Process an ACK that is not a plain advance, after the scoreboard is updated (`tcp_fastretrans_alert`).
    pub(crate) fn fastretrans_alert(&mut self, ctx: &mut AckContext) {
        if ctx.ece {
            // A reduction for an ECN mark is justified, so it is never undone.
            self.tp.prior_ssthresh = 0;
        }
        if self.board.packets_out() == 0 && self.is_reno() {
            self.reset_reno_sack();
        }
        if !self.leave_finished_episode(ctx) {
            return;
        }
        let go_on = match self.tp.ca_state() {
            CongestionState::Recovery => self.react_in_recovery(ctx),
            CongestionState::Loss => self.react_in_loss(ctx),
            CongestionState::Open | CongestionState::Disorder | CongestionState::Cwr => {
                self.react_otherwise(ctx)
            }
        };
        if go_on {
            self.rexmit = Rexmit::Lost;
        }
    }

    /// Leave the recovery episode once all segments outstanding at its start have arrived (RFC 6582 3.2 step
    /// 3). Return false if the caller must skip the remaining steps because the state must not change yet,
    /// which happens only without SACK.
    fn leave_finished_episode(&mut self, ctx: &AckContext) -> bool {
        let state = self.tp.ca_state();
        if state == CongestionState::Open {
            self.undo.retrans_stamp = 0;
        } else if self.board.una >= self.high_seq {
            match state {
                // An ACK of exactly high_seq may be for data sent before the reduction.
                CongestionState::Cwr if self.board.una != self.high_seq => {
                    self.end_cwnd_reduction();
                    self.set_state(CongestionState::Open);
                }
                CongestionState::Recovery => {
                    if self.is_reno() {
                        self.reset_reno_sack();
                    }
                    if self.try_undo_recovery(ctx) {
                        return false;
                    }
                    self.end_cwnd_reduction();
                }
                _ => {}
            }
        }
        true
    }

    fn react_in_recovery(&mut self, ctx: &mut AckContext) -> bool {
        if !ctx.advanced {
            if self.is_reno() {
                self.add_reno_sack(ctx);
            }
        } else if self.try_undo_partial(ctx) {
            return false;
        }
        if self.try_undo_dsack() {
            self.try_to_open(ctx);
        }
        self.identify_losses(ctx);
        if self.tp.ca_state() != CongestionState::Recovery {
            // An undo ended the recovery; a new loss begins another one.
            if self.board.lost_out == 0 {
                return false;
            }
            self.enter_recovery(ctx.ece);
        }
        true
    }

    fn react_in_loss(&mut self, ctx: &mut AckContext) -> bool {
        self.process_loss(ctx);
        self.identify_losses(ctx);
        if !(self.tp.ca_state() == CongestionState::Open || ctx.lost_retransmission) {
            return false;
        }
        self.react_otherwise(ctx)
    }

    fn react_otherwise(&mut self, ctx: &mut AckContext) -> bool {
        if self.is_reno() {
            if ctx.advanced {
                self.reset_reno_sack();
            }
            self.add_reno_sack(ctx);
        }
        if self.tp.ca_state() <= CongestionState::Disorder {
            self.try_undo_dsack();
        }
        self.identify_losses(ctx);
        if self.board.lost_out == 0 {
            self.try_to_open(ctx);
            return false;
        }
        self.enter_recovery(ctx.ece);
        true
    }

    /// Detect losses by RACK (RFC 8985 6.2 step 5), or by duplicate ACKs without SACK.
    fn identify_losses(&mut self, ctx: &mut AckContext) {
        if self.board.packets_out() == 0 {
            return;
        }
        if self.is_reno() {
            self.newreno_mark_lost(ctx.advanced);
            return;
        }
        let before = self.board.retrans_out;
        if self.rack_mark_lost() {
            ctx.set_timer = false;
        }
        ctx.lost_retransmission |= self.board.retrans_out < before;
    }

    /// Begin fast recovery (RFC 6675 5 step 4). `marked` is true if an ECN mark also requires the reduction,
    /// which is then never undone.
    pub(crate) fn enter_recovery(&mut self, marked: bool) {
        if self.rules.undoes_without_retransmission {
            self.clean_up_retrans_stamp();
        }
        self.tp.prior_ssthresh = 0;
        self.begin_undo();
        if !self.in_cwnd_reduction() {
            if !marked {
                self.tp.prior_ssthresh = self.current_ssthresh();
            }
            self.begin_cwnd_reduction();
        }
        self.recoveries += 1;
        self.set_state(CongestionState::Recovery);
    }

    fn try_to_open(&mut self, ctx: &AckContext) {
        self.clean_up_retrans_stamp();
        if ctx.ece {
            self.enter_cwr();
        }
        if self.tp.ca_state() != CongestionState::Cwr {
            self.try_keep_open();
        }
    }

    /// Set the state to Open if nothing is missing, else to Disorder (`tcp_try_keep_open`).
    pub(crate) fn try_keep_open(&mut self) {
        let missing = self.board.sacked_out + self.board.lost_out > 0;
        let state = if missing || self.any_retransmission_out() {
            CongestionState::Disorder
        } else {
            CongestionState::Open
        };
        if self.tp.ca_state() != state {
            self.set_state(state);
            self.note_high_seq();
        }
    }

    /// Threshold for the current window: three quarters of it, unless a reduction has just set one
    /// (`tcp_current_ssthresh`).
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.in_cwnd_reduction() {
            return self.tp.snd_ssthresh;
        }
        let cwnd = self.tp.snd_cwnd;
        self.tp.snd_ssthresh.max(cwnd / 2 + cwnd / 4)
    }
}
