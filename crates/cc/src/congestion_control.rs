//! What TCP asks a congestion control, whatever that is written in.

use std::fmt;

use skyhop_model::CongestionState;

use crate::bindings::{AckSample, CaEvent, Handover, RateSample, TcpSock};
use crate::decider::Outputs;
use crate::sock::Phase;

/// The congestion control of one connection: the hooks of Linux's `tcp_congestion_ops`, called when Linux calls them,
/// each with the connection as it is at that moment, and what skyhop adds for handovers.
///
/// The connection is the sender's: it fills it with Linux's meaning before each call. A hook may change the window,
/// threshold, pacing and `app_limited`. Nothing but its arguments (time included: [`TcpSock::tcp_mstamp`]) and a seed
/// may tell a controller what to do.
pub trait CongestionControl: fmt::Debug + Send {
    /// `init`: the connection has been established; before the first packet of data.
    fn init(&mut self, _tp: &mut TcpSock) {}

    /// `release`: the connection ends; nothing is called after it.
    fn release(&mut self, _tp: &mut TcpSock) {}

    /// Whether [`Self::cong_control`] sets window and pacing; else PRR and [`Self::cong_avoid`] set the window.
    fn has_cong_control(&self) -> bool {
        false
    }

    /// Whether it has to have ECN (`TCP_CONG_NEEDS_ECN`).
    fn needs_ecn(&self) -> bool {
        false
    }

    /// `cong_control`: an ACK has been worked through; sets window and pacing. `flag` is a set of Linux's `FLAG_`.
    fn cong_control(&mut self, _tp: &mut TcpSock, _ack: u32, _flag: u32, _sample: &RateSample) {}

    /// `cong_avoid`: `acked` packets were acknowledged, up to sequence number `ack`, and the window may grow.
    fn cong_avoid(&mut self, _tp: &mut TcpSock, _ack: u32, _acked: u32) {}

    /// `ssthresh`: the slow start threshold after a loss, packets.
    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32;

    /// `undo_cwnd`: the window after a reduction that proved needless, packets.
    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32;

    /// `set_state`: the state is about to become `state`; `tp` still has the old one.
    fn set_state(&mut self, _tp: &mut TcpSock, _state: CongestionState) {}

    /// `cwnd_event`: something happened to the window, or came with an ECN mark.
    fn cwnd_event(&mut self, _tp: &mut TcpSock, _event: CaEvent) {}

    /// `in_ack_event`: an ACK, with what is new in it in the connection. `flags` is a set of Linux's `CA_ACK_`.
    fn in_ack_event(&mut self, _tp: &mut TcpSock, _flags: u32) {}

    /// `pkts_acked`: RTT and count of what an ACK acknowledges.
    fn pkts_acked(&mut self, _tp: &mut TcpSock, _sample: &AckSample) {}

    /// `min_tso_segs`: the least burst, packets; `None`: Linux's own (2).
    fn min_tso_segs(&mut self, _tp: &mut TcpSock) -> Option<u32> {
        None
    }

    /// `sndbuf_expand`: the send buffer, in windows; `None`: Linux's own (2).
    fn sndbuf_expand(&mut self, _tp: &mut TcpSock) -> Option<u32> {
        None
    }

    /// The handover that it may read, until the next call of this.
    fn announce(&mut self, _handover: Handover) {}

    /// Whether there is anything that [`Self::take_phases`] would give.
    fn has_phases(&self) -> bool {
        false
    }

    /// What it did about handovers since the last call of this, in its order.
    fn take_phases(&mut self) -> Vec<Phase> {
        Vec::new()
    }

    /// What whoever decides for it has said so far.
    fn outputs(&self) -> Outputs {
        Outputs::default()
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

    fn outputs(&self) -> Outputs {
        (**self).outputs()
    }
}
