//! The kernel's congestion control hooks, and what the sender fills in before it calls one.

use skyhop_cc::{AckSample, CaEvent, Instance, RateSample, TcpSock};
use skyhop_model::CongestionState;

use crate::Sender;

/// The hooks of `tcp_congestion_ops`. The sender owns the `TcpSock` and fills it with Linux's
/// meaning before each call; a hook may change its window, threshold, pacing and `app_limited`.
pub trait CongestionControl {
    /// The connection has been established.
    fn init(&mut self, tp: &mut TcpSock);
    /// Whether [`Self::cong_control`] does all, or the sender runs PRR and [`Self::cong_avoid`].
    fn has_cong_control(&self) -> bool;
    /// Every ACK, with its delivery rate sample.
    fn cong_control(&mut self, tp: &mut TcpSock, ack: u32, flag: i32, sample: &RateSample);
    /// An ACK that may raise the window.
    fn cong_avoid(&mut self, tp: &mut TcpSock, ack: u32, acked: u32);
    /// The threshold after a loss.
    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32;
    /// The window after a reduction that proved needless.
    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32;
    /// The state is about to change; `tp` still has the old one.
    fn set_state(&mut self, _tp: &mut TcpSock, _state: CongestionState) {}
    /// Something happened to the window.
    fn cwnd_event(&mut self, _tp: &mut TcpSock, _event: CaEvent) {}
    /// RTT and count of what was acknowledged.
    fn pkts_acked(&mut self, _tp: &mut TcpSock, _sample: &AckSample) {}
    /// The least number of segments in a burst, where the module has an opinion.
    fn min_tso_segs(&mut self, _tp: &mut TcpSock) -> Option<u32> {
        None
    }
}

/// A module of cc/ is one without further ado.
impl CongestionControl for Instance {
    fn init(&mut self, tp: &mut TcpSock) {
        Instance::init(self, tp);
    }

    fn has_cong_control(&self) -> bool {
        Instance::has_cong_control(self)
    }

    fn cong_control(&mut self, tp: &mut TcpSock, ack: u32, flag: i32, sample: &RateSample) {
        Instance::cong_control(self, tp, ack, flag, sample);
    }

    fn cong_avoid(&mut self, tp: &mut TcpSock, ack: u32, acked: u32) {
        Instance::cong_avoid(self, tp, ack, acked);
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        Instance::ssthresh(self, tp)
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        Instance::undo_cwnd(self, tp)
    }

    fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        Instance::set_state(self, tp, state);
    }

    fn cwnd_event(&mut self, tp: &mut TcpSock, event: CaEvent) {
        Instance::cwnd_event(self, tp, event);
    }

    fn pkts_acked(&mut self, tp: &mut TcpSock, sample: &AckSample) {
        Instance::pkts_acked(self, tp, sample);
    }

    fn min_tso_segs(&mut self, tp: &mut TcpSock) -> Option<u32> {
        Instance::min_tso_segs(self, tp)
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Fills in what the hooks may read and the sender keeps elsewhere.
    pub(crate) fn publish(&mut self) {
        let (tp, board, rtt) = (&mut self.tp, &self.board, &self.rtt);
        let bytes = |seq: u64| (seq as u32).wrapping_mul(tp.mss_cache);
        let (una, nxt, high) = (bytes(board.una), bytes(board.nxt), bytes(self.high_seq));
        tp.bytes_acked = board.una * u64::from(tp.mss_cache);
        tp.write_seq = bytes(self.stream.end().min(board.nxt + (1 << 16)));
        (tp.snd_una, tp.snd_nxt, tp.high_seq) = (una, nxt, high);
        tp.packets_out = board.packets_out();
        tp.sacked_out = board.sacked_out;
        tp.lost_out = board.lost_out;
        tp.retrans_out = board.retrans_out;
        tp.srtt_us = rtt.srtt_x8() as u32;
        tp.mdev_us = rtt.mdev_x4() as u32;
        tp.mdev_max_us = rtt.mdev_max_x4() as u32;
        tp.rttvar_us = rtt.rttvar_x4() as u32;
        tp.inet_conn.icsk_rto = (self.rto_us / self.jiffy_us) as u32;
    }

    pub(crate) fn set_state(&mut self, state: CongestionState) {
        self.publish();
        self.cc.set_state(&mut self.tp, state);
        self.tp.set_ca_state(state);
    }

    pub(crate) fn cwnd_event(&mut self, event: CaEvent) {
        self.publish();
        self.cc.cwnd_event(&mut self.tp, event);
    }

    pub(crate) fn ask_ssthresh(&mut self) -> u32 {
        self.publish();
        self.cc.ssthresh(&mut self.tp)
    }

    /// `tcp_cong_control`: what an ACK does to the window and the pacing rate.
    pub(crate) fn control_congestion(&mut self, may_raise: bool, advanced: bool, s: &RateSample) {
        self.publish();
        let ack = self.tp.snd_una;
        if self.cc.has_cong_control() {
            self.cc.cong_control(&mut self.tp, ack, 0, s);
            debug_assert!(self.tp.snd_cwnd >= 1, "the window holds a segment");
            return;
        }
        if self.in_cwnd_reduction() {
            self.reduce_cwnd(s.acked_sacked, s.losses > 0, advanced);
        } else if may_raise {
            self.cc.cong_avoid(&mut self.tp, ack, s.acked_sacked);
            self.tp.snd_cwnd_stamp = self.jiffies();
        }
        debug_assert!(self.tp.snd_cwnd >= 1, "the window holds a segment");
        self.update_pacing_rate();
    }
}
