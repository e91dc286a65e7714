//! Ideal ACK clock: a window of ACKs per RTT, evenly spaced.

use skyhop_cc::{
    AckSample, CaEvent, CongestionControl, Instance, Module, TCP_INFINITE_SSTHRESH, TcpSock,
};
use skyhop_model::CongestionState;

/// Payload of a packet, in bytes.
pub const MSS: u32 = 1448;

pub struct AckClock {
    pub cc: Instance,
    pub tp: TcpSock,
    rtt_us: u64,
}

impl AckClock {
    pub fn new(module: &str, params: &[(&str, &str)], rtt_us: u64) -> AckClock {
        let mut cc = Instance::new(Module::find(module).unwrap(), params).unwrap();
        let mut tp = TcpSock { tcp_mstamp: 5_000_000, ..TcpSock::default() };
        tp.set_cwnd_limited(true);
        cc.init(&mut tp);
        AckClock { cc, tp, rtt_us }
    }

    /// Process one ACK for one packet, `gap_us` after the one before.
    pub fn ack(&mut self, gap_us: u64, rtt_us: u64) {
        let tp = &mut self.tp;
        tp.tcp_mstamp += gap_us;
        tp.snd_una = tp.snd_una.wrapping_add(MSS);
        let sample = AckSample { pkts_acked: 1, rtt_us: rtt_us as i32, in_flight: 1 };
        self.cc.pkts_acked(tp, &sample);
        self.cc.cong_avoid(tp, tp.snd_una, 1);
        // The ACK releases packets: the whole window is outstanding again.
        tp.snd_nxt = tp.snd_una.wrapping_add(tp.snd_cwnd * MSS);
    }

    /// Process a round trip's worth of ACKs.
    pub fn round(&mut self) {
        let start_us = self.tp.tcp_mstamp;
        let acks = u64::from(self.tp.snd_cwnd);
        for ack in 1..=acks {
            let due_us = start_us + self.rtt_us * ack / acks;
            self.ack(due_us - self.tp.tcp_mstamp, self.rtt_us);
        }
    }

    /// Process a fast recovery that takes no time.
    pub fn loss(&mut self) {
        let tp = &mut self.tp;
        tp.prior_cwnd = tp.snd_cwnd;
        tp.snd_ssthresh = self.cc.ssthresh(tp);
        self.cc.set_state(tp, CongestionState::Recovery);
        tp.snd_cwnd_cnt = 0;
        self.cc.set_state(tp, CongestionState::Open);
        if tp.snd_ssthresh < TCP_INFINITE_SSTHRESH {
            tp.snd_cwnd = tp.snd_ssthresh;
        }
        self.cc.cwnd_event(tp, CaEvent::CompleteCwr);
    }

    /// Window after every round trip for `seconds`: (seconds since the first ACK's epoch, cwnd).
    pub fn curve(&mut self, seconds: f64) -> Vec<(f64, f64)> {
        let start_us = self.tp.tcp_mstamp;
        let mut curve = Vec::new();
        while ((self.tp.tcp_mstamp - start_us) as f64) < seconds * 1e6 {
            self.round();
            let t = (self.tp.tcp_mstamp - start_us) as f64 / 1e6;
            curve.push((t, f64::from(self.tp.snd_cwnd)));
        }
        curve
    }
}
