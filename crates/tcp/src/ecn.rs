//! Explicit congestion notification (RFC 3168) as Linux has it: its `tcp_ecn_` functions, the
//! sender's and the receiver's.
//!
//! The SYN asks with ECE and CWR, the SYN-ACK agrees with ECE. Data that was never sent before is
//! ECT(0). Once a segment arrives as CE every ACK says ECE, until a segment says CWR: the sender
//! reduces its window once per round and says so on the next new segment.

use skyhop_cc::CaEvent;
use skyhop_model::{CongestionState, Ecn};
use skyhop_units::Instant;

use crate::delayed_ack::DelayedAck;
use crate::segment::{Ack, Segment, SegmentKind};
use crate::{CongestionControl, Sender};

/// ACKs that leave at once when a mark comes, or what seems to be a retransmission.
const QUICK_ACKS: u32 = 2;

/// What the end that opens the connection knows of it.
#[derive(Debug)]
pub(crate) struct SenderEcn {
    /// It is asked for, and has not been declined (TCP_ECN_OK).
    spoken: bool,
    /// The congestion control needs it: all that leaves is ECT.
    everywhere: bool,
    /// The next new segment says CWR (TCP_ECN_QUEUE_CWR).
    cwr_due: bool,
}

impl SenderEcn {
    pub(crate) const fn new(wanted: bool, needed: bool) -> Self {
        Self { spoken: wanted || needed, everywhere: needed, cwr_due: false }
    }

    /// `tcp_ecn_send_syn` and `tcp_ecn_send`: a segment leaves.
    #[inline]
    pub(crate) fn send(&mut self, segment: &mut Segment) {
        if !self.spoken {
            return;
        }
        let new_data = segment.kind == SegmentKind::Data && !segment.retransmission;
        if self.everywhere || new_data {
            segment.ecn = Ecn::Ect0;
        }
        if segment.kind == SegmentKind::Syn {
            // RFC 3168 6.1.1.1: somebody on the way may drop SYNs that ask for ECN.
            segment.cwr = !segment.retransmission;
        } else if new_data {
            segment.cwr = std::mem::take(&mut self.cwr_due);
        }
    }

    /// `tcp_ecn_rcv_synack`: without ECE the other end does not speak it.
    pub(crate) fn rcv_synack(&mut self, ack: &Ack) {
        self.spoken &= ack.ece;
    }

    pub(crate) fn is_spoken(&self) -> bool {
        self.spoken
    }

    /// The other end opened the connection; whether ECN is spoken was decided then.
    pub(crate) fn set(&mut self, spoken: bool) {
        self.spoken = spoken;
    }

    /// `tcp_ecn_rcv_ecn_echo`: whether an ACK asks for a reduction.
    pub(crate) fn rcv_ecn_echo(&self, ack: &Ack) -> bool {
        self.spoken && ack.ece && !ack.syn
    }

    /// `tcp_ecn_queue_cwr`: the window is being reduced.
    pub(crate) fn queue_cwr(&mut self) {
        self.cwr_due = self.spoken;
    }

    /// `tcp_ecn_withdraw_cwr`: the reduction was taken back.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.cwr_due = false;
    }
}

impl<C: CongestionControl> Sender<C> {
    /// `tcp_enter_cwr`: a mark reduces the window, at most once per round, and for good.
    pub(crate) fn enter_cwr(&mut self) {
        self.tp.prior_ssthresh = 0;
        if self.tp.ca_state() < CongestionState::Cwr {
            self.undo.marker = None;
            self.begin_cwnd_reduction();
            self.set_state(CongestionState::Cwr);
        }
    }

    /// A data segment of the other direction arrived at this end: a congestion control that needs ECN
    /// is told whether it was marked (`tcp_ecn_check_ce`).
    #[inline]
    pub fn on_data(&mut self, now: Instant, ecn: Ecn) {
        if self.ecn.spoken && self.ecn.everywhere && self.is_established() {
            self.set_clock(now);
            match ecn {
                Ecn::Ce => self.cwnd_event(CaEvent::EcnIsCe),
                Ecn::Ect0 | Ecn::Ect1 => self.cwnd_event(CaEvent::EcnNoCe),
                Ecn::NotEct => {}
            }
        }
    }
}

/// What the end that is opened knows of it.
#[derive(Debug)]
pub(crate) struct ReceiverEcn {
    willing: bool,
    /// Whether it is spoken (TCP_ECN_OK); `None` before the first SYN.
    spoken: Option<bool>,
    /// ACKs say ECE until the sender says CWR (TCP_ECN_DEMAND_CWR).
    cwr_demanded: bool,
    /// Something came that was not "not ECT" (TCP_ECN_SEEN).
    seen: bool,
}

impl ReceiverEcn {
    pub(crate) const fn new(willing: bool) -> Self {
        Self { willing, spoken: None, cwr_demanded: false, seen: false }
    }

    /// `tcp_ecn_create_request`: the first SYN that arrives decides. Linux declines where the SYN is
    /// ECT, unless the listener's congestion control needs ECN too, as it does here.
    pub(crate) fn rcv_syn(&mut self, syn: &Segment) {
        self.spoken.get_or_insert(self.willing && syn.cwr);
    }

    pub(crate) fn is_spoken(&self) -> bool {
        self.spoken == Some(true)
    }

    /// This end opened the connection, and has learnt from the SYN-ACK whether it is spoken.
    pub(crate) fn set(&mut self, spoken: bool) {
        self.spoken = Some(spoken);
    }

    /// Whether an ACK that leaves now says ECE.
    pub(crate) fn demands_cwr(&self) -> bool {
        self.cwr_demanded
    }

    /// `tcp_ecn_accept_cwr`: the sender has reduced its window, perhaps to so little that it waits
    /// for this ACK.
    pub(crate) fn accept_cwr(&mut self, segment: &Segment, acks: &mut DelayedAck) {
        if segment.cwr {
            self.cwr_demanded = false;
            acks.require_now();
        }
    }

    /// `tcp_ecn_check_ce`: what the ECN bits of data mean for the ACKs.
    pub(crate) fn check_ce(&mut self, segment: &Segment, acks: &mut DelayedAck) {
        if !self.is_spoken() {
            return;
        }
        match segment.ecn {
            // Where others were ECT this is probably a retransmission.
            Ecn::NotEct if self.seen => acks.quicken_for(QUICK_ACKS),
            Ecn::NotEct => {}
            Ecn::Ce => {
                if !self.cwr_demanded {
                    acks.quicken_for(QUICK_ACKS);
                    self.cwr_demanded = true;
                }
                self.seen = true;
            }
            Ecn::Ect0 | Ecn::Ect1 => self.seen = true,
        }
    }
}
