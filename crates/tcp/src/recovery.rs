//! The congestion states Open, Disorder, CWR, Recovery and Loss, and what moves between them.

use crate::ack::AckWork;
use crate::transmit::Rexmit;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

impl<C: CongestionControl> Sender<C> {
    /// Every ACK that is not plain good news comes through here, after the scoreboard knows it.
    pub(crate) fn react(&mut self, work: &mut AckWork) {
        if work.ece {
            // The reduction is called for: nothing undoes it.
            self.tp.prior_ssthresh = 0;
        }
        if self.board.packets_out() == 0 && self.is_reno() {
            self.reset_reno_sack();
        }
        if !self.leave_finished_episode(work) {
            return;
        }
        let go_on = match self.tp.ca_state() {
            CongestionState::Recovery => self.react_in_recovery(work),
            CongestionState::Loss => self.react_in_loss(work),
            CongestionState::Open | CongestionState::Disorder | CongestionState::Cwr => {
                self.react_otherwise(work)
            }
        };
        if go_on {
            self.rexmit = Rexmit::Lost;
        }
    }

    /// RFC 6582 3.2 step 3: everything that was outstanding when the episode began has arrived.
    /// Whether there is more to be done: without SACK it may have to be held.
    fn leave_finished_episode(&mut self, work: &AckWork) -> bool {
        let state = self.tp.ca_state();
        if state == CongestionState::Open {
            self.undo.retrans_stamp = 0;
        } else if self.board.una >= self.high_seq {
            match state {
                // An ACK of exactly high_seq may be of the data sent before the reduction.
                CongestionState::Cwr if self.board.una != self.high_seq => {
                    self.end_cwnd_reduction();
                    self.set_state(CongestionState::Open);
                }
                CongestionState::Recovery => {
                    if self.is_reno() {
                        self.reset_reno_sack();
                    }
                    if self.try_undo_recovery(work) {
                        return false;
                    }
                    self.end_cwnd_reduction();
                }
                _ => {}
            }
        }
        true
    }

    fn react_in_recovery(&mut self, work: &mut AckWork) -> bool {
        if !work.advanced {
            if self.is_reno() {
                self.add_reno_sack(work);
            }
        } else if self.try_undo_partial(work) {
            return false;
        }
        if self.try_undo_dsack() {
            self.try_to_open(work);
        }
        self.identify_losses(work);
        if self.tp.ca_state() != CongestionState::Recovery {
            // An undo ended the recovery; a new loss begins another.
            if self.board.lost_out == 0 {
                return false;
            }
            self.enter_recovery(work.ece);
        }
        true
    }

    fn react_in_loss(&mut self, work: &mut AckWork) -> bool {
        self.process_loss(work);
        self.identify_losses(work);
        if !(self.tp.ca_state() == CongestionState::Open || work.lost_retransmission) {
            return false;
        }
        self.react_otherwise(work)
    }

    fn react_otherwise(&mut self, work: &mut AckWork) -> bool {
        if self.is_reno() {
            if work.advanced {
                self.reset_reno_sack();
            }
            self.add_reno_sack(work);
        }
        if self.tp.ca_state() <= CongestionState::Disorder {
            self.try_undo_dsack();
        }
        self.identify_losses(work);
        if self.board.lost_out == 0 {
            self.try_to_open(work);
            return false;
        }
        self.enter_recovery(work.ece);
        true
    }

    /// RACK looks for losses (RFC 8985 6.2 step 5).
    fn identify_losses(&mut self, work: &mut AckWork) {
        if self.board.packets_out() == 0 {
            return;
        }
        if self.is_reno() {
            self.newreno_mark_lost(work.advanced);
            return;
        }
        let before = self.board.retrans_out;
        if self.rack_mark_lost() {
            work.set_timer = false;
        }
        work.lost_retransmission |= self.board.retrans_out < before;
    }

    /// RFC 6675 5 step 4: fast recovery begins.
    /// `marked`: a mark asks for the reduction too, so that it is not undone.
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

    fn try_to_open(&mut self, work: &AckWork) {
        self.clean_up_retrans_stamp();
        if work.ece {
            self.enter_cwr();
        }
        if self.tp.ca_state() != CongestionState::Cwr {
            self.try_keep_open();
        }
    }

    /// Open where nothing is missing, Disorder where something is.
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

    /// The threshold that fits the present window: three quarters of it, unless a reduction has
    /// just set one.
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.in_cwnd_reduction() {
            return self.tp.snd_ssthresh;
        }
        let cwnd = self.tp.snd_cwnd;
        self.tp.snd_ssthresh.max(cwnd / 2 + cwnd / 4)
    }
}
