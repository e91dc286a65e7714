//! Calls of the congestion control's hooks, and the socket fields that the sender fills in before them.

use skyhop_cc::{CaEvent, Caller, CongestionControl};
use skyhop_model::CongestionState;

use crate::Sender;
use crate::ack::AckContext;

/// Hooks that the simulator's TCP calls, and whether it has ECN.
pub const CALLER: Caller =
    Caller { name: "the simulator's TCP", calls: Caller::LINUX_CALLS, has_ecn: true };

/// Largest number of unsent bytes that a congestion control sees, for endless streams (`write_seq` -
/// `snd_nxt`).
const MOST_WRITTEN: u64 = 64 << 20;

impl<C: CongestionControl> Sender<C> {
    /// Fill in the socket fields that hooks may read and that the sender keeps elsewhere.
    pub(crate) fn fill_socket(&mut self) {
        let (tp, board, rtt) = (&mut self.tp, &self.board, &self.rtt);
        let (una, nxt) = (self.lengths.begin(), self.lengths.end());
        tp.bytes_acked = una;
        tp.write_seq = self.stream.written().min(nxt + MOST_WRITTEN) as u32;
        (tp.snd_una, tp.snd_nxt) = (una as u32, nxt as u32);
        tp.packets_out = board.packets_out();
        tp.sacked_out = board.sacked_out;
        tp.lost_out = board.lost_out;
        tp.retrans_out = board.retrans_out;
        tp.data_segs_out = self.data_sent as u32;
        tp.srtt_us = rtt.srtt_x8() as u32;
        tp.mdev_us = rtt.mdev_x4() as u32;
        tp.mdev_max_us = rtt.mdev_max_x4() as u32;
        tp.rttvar_us = rtt.rttvar_x4() as u32;
    }

    /// Begin or extend a recovery episode: it ends when everything sent so far has been acknowledged.
    pub(crate) fn note_high_seq(&mut self) {
        self.high_seq = self.board.nxt;
        self.tp.high_seq = self.lengths.end() as u32;
    }

    pub(crate) fn set_state(&mut self, state: CongestionState) {
        self.fill_socket();
        self.cc.set_state(&mut self.tp, state);
        self.tp.set_ca_state(state);
    }

    pub(crate) fn cwnd_event(&mut self, event: CaEvent) {
        self.fill_socket();
        self.cc.cwnd_event(&mut self.tp, event);
    }

    pub(crate) fn call_ssthresh(&mut self) -> u32 {
        self.fill_socket();
        self.cc.ssthresh(&mut self.tp)
    }

    /// Let an ACK change the window and the pacing rate (`tcp_cong_control`).
    pub(crate) fn control_congestion(&mut self, may_raise: bool, ctx: &AckContext) {
        let s = &ctx.sampler.sample;
        self.fill_socket();
        let ack = self.tp.snd_una;
        if self.has_cong_control {
            self.cc.cong_control(&mut self.tp, ack, ctx.flags(), s);
            debug_assert!(self.tp.snd_cwnd >= 1, "the window holds a segment");
            return;
        }
        if self.in_cwnd_reduction() {
            let may_grow = self.prr_may_grow(ctx);
            self.reduce_cwnd(s.acked_sacked, may_grow);
        } else if may_raise {
            self.cc.cong_avoid(&mut self.tp, ack, s.acked_sacked);
            self.tp.snd_cwnd_stamp = self.jiffies();
        }
        debug_assert!(self.tp.snd_cwnd >= 1, "the window holds a segment");
        self.update_pacing_rate();
    }

    /// Whether PRR may grow the window on this ACK: it advances and shows no new loss; before 5.14, it
    /// acknowledges retransmissions, none of which was lost again.
    fn prr_may_grow(&self, ctx: &AckContext) -> bool {
        if self.rules.prr_grows_on_advance {
            ctx.advanced && ctx.sampler.sample.losses == 0
        } else {
            ctx.retransmission_acked && !ctx.lost_retransmission
        }
    }
}

/// Calls the `release` hook when the socket is dropped (`tcp_cleanup_congestion_control`).
impl<C: CongestionControl> Drop for Sender<C> {
    fn drop(&mut self) {
        if self.is_established() {
            self.fill_socket();
            self.cc.release(&mut self.tp);
        }
    }
}
