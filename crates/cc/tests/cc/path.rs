//! Sender of endless data over one FIFO bottleneck without loss: enough of TCP to drive a congestion control.

use std::collections::VecDeque;

use skyhop_cc::{AckSample, CongestionControl, Instance, RateSample, SK_PACING_NONE, TcpSock};

/// Payload of a packet, in bytes.
pub const MSS: u64 = 1500;

/// State of the connection right after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at_us: u64,
    pub cwnd: u32,
    pub ssthresh: u32,
    pub inflight: u32,
    pub pacing_rate: u64,
    /// Packet-timed round trips so far.
    pub rounds: u32,
    pub rtt_us: u32,
}

struct Packet {
    sent_us: u64,
    acked_us: u64,
    delivered: u32,
    delivered_mstamp: u64,
    first_tx_mstamp: u64,
    is_app_limited: bool,
}

/// One flow and its path.
pub struct Sender<C = Instance> {
    pub cc: C,
    pub tp: TcpSock,
    /// Transmission time of a packet at the bottleneck, in microseconds.
    pub tx_us: u64,
    /// Round-trip time without queue, in microseconds.
    pub rtt_us: u64,
    /// Interval of aggregated ACKs in microseconds: they arrive at its multiples; 1 for no aggregation.
    pub ack_grid_us: u64,
    flying: VecDeque<Packet>,
    bottleneck_free_us: u64,
    rounds: u32,
    round_end_delivered: u32,
}

impl<C: CongestionControl> Sender<C> {
    pub fn new(mut cc: C, tx_us: u64, rtt_us: u64) -> Self {
        let mut tp = TcpSock { tcp_mstamp: 1_000_000, mss_cache: MSS as u32, ..TcpSock::default() };
        tp.srtt_us = rtt_us as u32 * 8;
        cc.init(&mut tp);
        Self {
            cc,
            tp,
            tx_us,
            rtt_us,
            ack_grid_us: 1,
            flying: VecDeque::new(),
            bottleneck_free_us: 0,
            rounds: 0,
            round_end_delivered: 0,
        }
    }

    /// Send and receive until `end_us`; return the state at every ACK.
    pub fn run_until(&mut self, end_us: u64) -> Vec<Moment> {
        let mut trace = Vec::new();
        loop {
            let send_us = self.next_send_us();
            let ack_us = self.flying.front().map_or(u64::MAX, |packet| packet.acked_us);
            let now_us = send_us.min(ack_us);
            if now_us >= end_us {
                return trace;
            }
            self.tp.tcp_mstamp = now_us;
            self.tp.tcp_clock_cache = now_us * 1000;
            if ack_us <= send_us {
                trace.push(self.receive_ack());
            } else {
                self.send();
            }
        }
    }

    fn next_send_us(&self) -> u64 {
        if self.tp.packets_out >= self.tp.snd_cwnd {
            return u64::MAX;
        }
        self.tp.tcp_mstamp.max(self.tp.tcp_wstamp_ns.div_ceil(1000))
    }

    fn send(&mut self) {
        let now_us = self.tp.tcp_mstamp;
        if self.tp.packets_out == 0 {
            self.tp.first_tx_mstamp = now_us;
            self.tp.delivered_mstamp = now_us;
        }
        self.bottleneck_free_us = self.bottleneck_free_us.max(now_us) + self.tx_us;
        let arrives_us = self.bottleneck_free_us + self.rtt_us;
        self.flying.push_back(Packet {
            sent_us: now_us,
            acked_us: arrives_us.next_multiple_of(self.ack_grid_us),
            delivered: self.tp.delivered,
            delivered_mstamp: self.tp.delivered_mstamp,
            first_tx_mstamp: self.tp.first_tx_mstamp,
            is_app_limited: self.tp.app_limited != 0,
        });
        self.tp.packets_out += 1;
        self.tp.data_segs_out += 1;
        self.tp.snd_nxt = self.tp.snd_nxt.wrapping_add(MSS as u32);
        self.tp.max_packets_out = self.tp.packets_out;
        self.tp.set_cwnd_limited(self.tp.packets_out >= self.tp.snd_cwnd);
        if self.tp.sk().sk_pacing_status != SK_PACING_NONE {
            let gap_ns = MSS * 1_000_000_000 / self.tp.sk().sk_pacing_rate.max(1);
            self.tp.tcp_wstamp_ns = self.tp.tcp_wstamp_ns.max(now_us * 1000) + gap_ns;
        }
    }

    fn receive_ack(&mut self) -> Moment {
        let packet = self.flying.pop_front().expect("an ACK is due");
        let now_us = self.tp.tcp_mstamp;
        let rtt_us = (now_us - packet.sent_us) as u32;
        let prior_in_flight = self.tp.packets_in_flight();
        let tp = &mut self.tp;
        tp.packets_out -= 1;
        tp.snd_una = tp.snd_una.wrapping_add(MSS as u32);
        tp.delivered += 1;
        tp.delivered_mstamp = now_us;
        tp.first_tx_mstamp = packet.sent_us;
        if tp.app_limited != 0 && (tp.delivered.wrapping_sub(tp.app_limited) as i32) > 0 {
            tp.app_limited = 0;
        }
        let send_us = packet.sent_us - packet.first_tx_mstamp;
        let sample = RateSample {
            prior_mstamp: packet.delivered_mstamp,
            prior_delivered: packet.delivered,
            delivered: (tp.delivered - packet.delivered) as i32,
            interval_us: send_us.max(now_us - packet.delivered_mstamp) as i64,
            rtt_us: i64::from(rtt_us),
            acked_sacked: 1,
            prior_in_flight,
            is_app_limited: packet.is_app_limited,
            ..RateSample::default()
        };
        if packet.delivered >= self.round_end_delivered {
            self.rounds += 1;
            self.round_end_delivered = tp.delivered;
        }
        self.cc.pkts_acked(tp, &AckSample { pkts_acked: 1, rtt_us: rtt_us as i32, in_flight: 1 });
        match self.cc.has_cong_control() {
            true => self.cc.cong_control(tp, tp.snd_una, 0, &sample),
            false => self.cc.cong_avoid(tp, tp.snd_una, 1),
        }
        Moment {
            at_us: now_us,
            cwnd: tp.snd_cwnd,
            ssthresh: tp.snd_ssthresh,
            inflight: tp.packets_in_flight(),
            pacing_rate: tp.sk().sk_pacing_rate,
            rounds: self.rounds,
            rtt_us,
        }
    }
}
