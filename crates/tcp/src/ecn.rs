//! Explicit congestion notification (RFC 3168) as in Linux: the `tcp_ecn_` functions of sender and receiver.
//!
//! The SYN requests ECN with ECE and CWR, the SYN-ACK accepts it with ECE. Data sent for the first time is
//! ECT(0). After a segment has arrived with CE, every ACK has ECE set, until a segment arrives with CWR set.
//! The sender reduces its window at most once per round trip, and sets CWR on the next new segment.

use skyhop_cc::CaEvent;
use skyhop_model::{CongestionState, Ecn};
use skyhop_units::Instant;

use crate::delayed_ack::DelayedAck;
use crate::segment::{Ack, Segment, SegmentKind};
use crate::{CongestionControl, Sender};

/// Number of immediate ACKs after a mark, or after a segment that seems to be a retransmission.
const QUICK_ACKS: u32 = 2;

/// ECN state of a sending half.
#[derive(Debug)]
pub(crate) struct SenderEcn {
    /// Whether ECN is requested and has not been declined (TCP_ECN_OK).
    enabled: bool,
    /// Whether all packets are ECT, because the congestion control needs ECN.
    ect_on_all_packets: bool,
    /// Whether the next new segment has CWR set (TCP_ECN_QUEUE_CWR).
    cwr_due: bool,
}

impl SenderEcn {
    pub(crate) const fn new(wanted: bool, needed: bool) -> Self {
        Self { enabled: wanted || needed, ect_on_all_packets: needed, cwr_due: false }
    }

    /// Set the ECN bits of a segment to send (`tcp_ecn_send_syn`, `tcp_ecn_send`).
    #[inline]
    pub(crate) fn send(&mut self, segment: &mut Segment) {
        if !self.enabled {
            return;
        }
        let new_data = segment.kind == SegmentKind::Data && !segment.retransmission;
        if self.ect_on_all_packets || new_data {
            segment.ecn = Ecn::Ect0;
        }
        if segment.kind == SegmentKind::Syn {
            // RFC 3168 6.1.1.1: a middlebox may drop SYNs that request ECN, so a retransmitted SYN does not.
            segment.cwr = !segment.retransmission;
        } else if new_data {
            segment.cwr = std::mem::take(&mut self.cwr_due);
        }
    }

    /// Read the answer in the SYN-ACK: without ECE the other end declines ECN (`tcp_ecn_rcv_synack`).
    pub(crate) fn rcv_synack(&mut self, ack: &Ack) {
        self.enabled &= ack.ece;
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Set whether ECN is in use, as the other end's SYN decided.
    pub(crate) fn set(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Whether an ACK echoes a mark and so asks for a reduction (`tcp_ecn_rcv_ecn_echo`).
    pub(crate) fn rcv_ecn_echo(&self, ack: &Ack) -> bool {
        self.enabled && ack.ece && !ack.syn
    }

    /// Set CWR on the next new segment, because the window is being reduced (`tcp_ecn_queue_cwr`).
    pub(crate) fn queue_cwr(&mut self) {
        self.cwr_due = self.enabled;
    }

    /// Withdraw a CWR that was not sent yet, because the reduction was undone (`tcp_ecn_withdraw_cwr`).
    pub(crate) fn withdraw_cwr(&mut self) {
        self.cwr_due = false;
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Reduce the window for a mark, at most once per round trip and without undo (`tcp_enter_cwr`).
    pub(crate) fn enter_cwr(&mut self) {
        self.tp.prior_ssthresh = 0;
        if self.tp.ca_state() < CongestionState::Cwr {
            self.undo.marker = None;
            self.begin_cwnd_reduction();
            self.set_state(CongestionState::Cwr);
        }
    }

    /// Report the ECN bits of data received at this end to a congestion control that needs ECN
    /// (`tcp_ecn_check_ce`).
    #[inline]
    pub fn on_data(&mut self, now: Instant, ecn: Ecn) {
        if self.ecn.enabled && self.ecn.ect_on_all_packets && self.is_established() {
            self.set_clock(now);
            match ecn {
                Ecn::Ce => self.cwnd_event(CaEvent::EcnIsCe),
                Ecn::Ect0 | Ecn::Ect1 => self.cwnd_event(CaEvent::EcnNoCe),
                Ecn::NotEct => {}
            }
        }
    }
}

/// ECN state of a receiving half.
#[derive(Debug)]
pub(crate) struct ReceiverEcn {
    allowed: bool,
    /// Whether ECN is in use (TCP_ECN_OK); `None` before the first SYN.
    enabled: Option<bool>,
    /// Whether ACKs have ECE set, until the sender sets CWR (TCP_ECN_DEMAND_CWR).
    cwr_demanded: bool,
    /// Whether an ECN-capable segment has arrived (TCP_ECN_SEEN).
    seen: bool,
}

impl ReceiverEcn {
    pub(crate) const fn new(allowed: bool) -> Self {
        Self { allowed, enabled: None, cwr_demanded: false, seen: false }
    }

    /// Decide on ECN from the first SYN that arrives (`tcp_ecn_create_request`). Linux declines a SYN that is
    /// itself ECT, unless the listener's congestion control needs ECN too; here both ends have the same one.
    pub(crate) fn rcv_syn(&mut self, syn: &Segment) {
        self.enabled.get_or_insert(self.allowed && syn.cwr);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled == Some(true)
    }

    /// Set whether ECN is in use, as the other end's SYN-ACK decided.
    pub(crate) fn set(&mut self, enabled: bool) {
        self.enabled = Some(enabled);
    }

    /// Whether an ACK sent now has ECE set.
    pub(crate) fn demands_cwr(&self) -> bool {
        self.cwr_demanded
    }

    /// Stop setting ECE once the sender has reduced its window (`tcp_ecn_accept_cwr`). Acknowledge the segment
    /// at once, because the window may now be so small that the sender waits for this ACK.
    pub(crate) fn accept_cwr(&mut self, segment: &Segment, acks: &mut DelayedAck) {
        if segment.cwr {
            self.cwr_demanded = false;
            acks.require_now();
        }
    }

    /// Process the ECN bits of a data segment (`tcp_ecn_check_ce`).
    pub(crate) fn check_ce(&mut self, segment: &Segment, acks: &mut DelayedAck) {
        if !self.is_enabled() {
            return;
        }
        match segment.ecn {
            // After ECT segments, one that is not ECT is probably a retransmission.
            Ecn::NotEct if self.seen => acks.enter_quick_mode_for(QUICK_ACKS),
            Ecn::NotEct => {}
            Ecn::Ce => {
                if !self.cwr_demanded {
                    acks.enter_quick_mode_for(QUICK_ACKS);
                    self.cwr_demanded = true;
                }
                self.seen = true;
            }
            Ecn::Ect0 | Ecn::Ect1 => self.seen = true,
        }
    }
}
