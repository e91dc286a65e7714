//! Interface between TCP and a congestion control, in any language.

use std::fmt;

use skyhop_model::CongestionState;

use crate::bindings::{AckSample, CaEvent, Handover, RateSample, TcpSock};
use crate::decider::OutputCounts;
use crate::sock::Phase;

/// Congestion control of one connection: the hooks of Linux's `tcp_congestion_ops`, called when Linux calls
/// them with the current state of the connection, and skyhop's additions for handovers.
///
/// The sender owns the connection's state and fills it in with Linux's meaning before each call. A hook may
/// change the window, threshold, pacing and `app_limited`. A controller may depend only on its arguments (time
/// included: [`TcpSock::tcp_mstamp`]) and a seed.
pub trait CongestionControl: fmt::Debug + Send {
    /// Initialise the state when the connection is established, before the first data packet (`init`).
    fn init(&mut self, _tp: &mut TcpSock) {}

    /// Release the state when the connection ends; no hook is called after it (`release`).
    fn release(&mut self, _tp: &mut TcpSock) {}

    /// Whether [`Self::cong_control`] sets window and pacing; else PRR and [`Self::cong_avoid`] set the window.
    fn has_cong_control(&self) -> bool {
        false
    }

    /// Whether the controller requires ECN (`TCP_CONG_NEEDS_ECN`).
    fn needs_ecn(&self) -> bool {
        false
    }

    /// Set window and pacing after an ACK has been processed (`cong_control`). `flag` is a set of Linux's
    /// `FLAG_`.
    fn cong_control(&mut self, _tp: &mut TcpSock, _ack: u32, _flag: u32, _sample: &RateSample) {}

    /// Let the window grow after `acked` packets were acknowledged, up to sequence number `ack` (`cong_avoid`).
    fn cong_avoid(&mut self, _tp: &mut TcpSock, _ack: u32, _acked: u32) {}

    /// Return the slow start threshold after a loss, in packets (`ssthresh`).
    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32;

    /// Return the window after the undo of a spurious reduction, in packets (`undo_cwnd`).
    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32;

    /// Handle a change of the congestion state to `state`; `tp` still has the old one (`set_state`).
    fn set_state(&mut self, _tp: &mut TcpSock, _state: CongestionState) {}

    /// Handle an event of the window, or the ECN bits of received data (`cwnd_event`).
    fn cwnd_event(&mut self, _tp: &mut TcpSock, _event: CaEvent) {}

    /// Handle an ACK that is already processed into the connection's state (`in_ack_event`). `flags` is a set
    /// of Linux's `CA_ACK_`.
    fn in_ack_event(&mut self, _tp: &mut TcpSock, _flags: u32) {}

    /// Handle RTT and number of the packets that an ACK acknowledges (`pkts_acked`).
    fn pkts_acked(&mut self, _tp: &mut TcpSock, _sample: &AckSample) {}

    /// Return the smallest burst in packets (`min_tso_segs`); `None` for Linux's default (2).
    fn min_tso_segs(&mut self, _tp: &mut TcpSock) -> Option<u32> {
        None
    }

    /// Return the size of the send buffer in windows (`sndbuf_expand`); `None` for Linux's default (2).
    fn sndbuf_expand(&mut self, _tp: &mut TcpSock) -> Option<u32> {
        None
    }

    /// Set the announced handover that the controller may read. It stays set until the next call of this
    /// method.
    fn announce(&mut self, _handover: Handover) {}

    /// Whether [`Self::take_phases`] would return any phases.
    fn has_phases(&self) -> bool {
        false
    }

    /// Return and clear the phases reported since the last call, in their order.
    fn take_phases(&mut self) -> Vec<Phase> {
        Vec::new()
    }

    /// Counters of the external policy's outputs.
    fn outputs(&self) -> OutputCounts {
        OutputCounts::default()
    }
}

impl<C: CongestionControl + ?Sized> CongestionControl for Box<C> {
    fn init(&mut self, tp: &mut TcpSock) {
        (**self).init(tp);
    }

    fn release(&mut self, tp: &mut TcpSock) {
        (**self).release(tp);
    }

    fn has_cong_control(&self) -> bool {
        (**self).has_cong_control()
    }

    fn needs_ecn(&self) -> bool {
        (**self).needs_ecn()
    }

    fn cong_control(&mut self, tp: &mut TcpSock, ack: u32, flag: u32, sample: &RateSample) {
        (**self).cong_control(tp, ack, flag, sample);
    }

    fn cong_avoid(&mut self, tp: &mut TcpSock, ack: u32, acked: u32) {
        (**self).cong_avoid(tp, ack, acked);
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        (**self).ssthresh(tp)
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        (**self).undo_cwnd(tp)
    }

    fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        (**self).set_state(tp, state);
    }

    fn cwnd_event(&mut self, tp: &mut TcpSock, event: CaEvent) {
        (**self).cwnd_event(tp, event);
    }

    fn in_ack_event(&mut self, tp: &mut TcpSock, flags: u32) {
        (**self).in_ack_event(tp, flags);
    }

    fn pkts_acked(&mut self, tp: &mut TcpSock, sample: &AckSample) {
        (**self).pkts_acked(tp, sample);
    }

    fn min_tso_segs(&mut self, tp: &mut TcpSock) -> Option<u32> {
        (**self).min_tso_segs(tp)
    }

    fn sndbuf_expand(&mut self, tp: &mut TcpSock) -> Option<u32> {
        (**self).sndbuf_expand(tp)
    }

    fn announce(&mut self, handover: Handover) {
        (**self).announce(handover);
    }

    fn has_phases(&self) -> bool {
        (**self).has_phases()
    }

    fn take_phases(&mut self) -> Vec<Phase> {
        (**self).take_phases()
    }

    fn outputs(&self) -> OutputCounts {
        (**self).outputs()
    }
}
