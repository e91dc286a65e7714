//! Sender's side of the three-way handshake (RFC 9293 3.5). The receiver sends the SYN-ACK.

use skyhop_units::Instant;

use crate::next_segment::{NextSegment, SegmentPurpose};
use crate::segment::Ack;
use crate::{CongestionControl, Sender};

/// Stage of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for a SYN (LISTEN).
    Listening,
    /// A SYN arrived and was answered at `at_us` (SYN-RECEIVED). `retransmitted`: whether the SYN-ACK was sent
    /// more than once.
    SynReceived { at_us: u64, retransmitted: bool },
    /// A SYN is due, for the `attempt`th time.
    SynDue { attempt: u32 },
    /// The `attempt`th SYN was sent at `sent_us` (SYN-SENT).
    SynSent { attempt: u32, sent_us: u64 },
    /// The acknowledgement of the SYN-ACK is due.
    AckDue,
    /// The handshake is complete (ESTABLISHED).
    Established,
}

impl<C: CongestionControl> Sender<C> {
    /// Choose the handshake segment that is due, if any.
    pub(crate) fn next_handshake_segment(&mut self) -> Option<NextSegment> {
        let purpose = match self.phase {
            Phase::SynDue { attempt } => {
                self.phase = Phase::SynSent { attempt, sent_us: self.now_us };
                self.arm_rto();
                SegmentPurpose::Syn
            }
            Phase::AckDue => {
                self.phase = Phase::Established;
                SegmentPurpose::HandshakeAck
            }
            Phase::Listening
            | Phase::SynReceived { .. }
            | Phase::SynSent { .. }
            | Phase::Established => return None,
        };
        Some(NextSegment { purpose, seq: 0, push: false })
    }

    /// Schedule another SYN, because the previous one was not answered in time (RFC 6298 5.5).
    pub(crate) fn on_syn_timer(&mut self, attempt: u32) {
        if self.check_syn_limit(attempt) {
            return;
        }
        if attempt > self.rules.linear_syns {
            self.back_off();
        } else {
            self.tp.inet_conn.icsk_retransmits += 1;
        }
        self.timer = None;
        self.phase = Phase::SynDue { attempt: attempt + 1 };
    }

    /// Record the other end's SYN, which is answered now: `window` is the window that the SYN advertises, in
    /// bytes; `ecn_enabled` is true if ECN is in use.
    pub(crate) fn on_syn(&mut self, now: Instant, window: u64, ecn_enabled: bool) {
        self.set_clock(now);
        let retransmitted = match self.phase {
            Phase::Listening => false,
            Phase::SynReceived { .. } => true,
            _ => return,
        };
        self.phase = Phase::SynReceived { at_us: self.now_us, retransmitted };
        self.ecn.set(ecn_enabled);
        (self.receive_window_end, self.peer_window) = (window, window);
    }

    /// Record that the SYN-ACK is retransmitted, so that its answer gives no RTT sample (RFC 6298 3).
    pub(crate) fn on_syn_ack_retransmitted(&mut self, now: Instant) {
        self.set_clock(now);
        if let Phase::SynReceived { retransmitted, .. } = &mut self.phase {
            *retransmitted = true;
        }
    }

    /// Complete the handshake at the passive end (`tcp_synack_rtt_meas`, `tcp_init_transfer`).
    pub(crate) fn accept(&mut self, now: Instant, ack: Option<&Ack>) {
        let Phase::SynReceived { at_us, retransmitted } = self.phase else {
            return;
        };
        self.set_clock(now);
        if let Some(ack) = ack {
            (self.receive_window_end, self.peer_window) =
                (ack.acknowledged + ack.window, ack.window);
        }
        let rtt_us = (!retransmitted).then(|| self.now_us - at_us);
        self.establish(rtt_us, self.config.initial_cwnd);
        self.phase = Phase::Established;
    }

    /// Complete the handshake at the active end; its round trip is the first RTT sample.
    pub(crate) fn on_syn_ack(&mut self, ack: &Ack, attempt: u32, sent_us: u64) {
        let rtt_us =
            if attempt == 1 { Some(self.now_us - sent_us) } else { self.echoed_rtt_us(ack.tsecr) };
        self.ecn.rcv_synack(ack);
        (self.receive_window_end, self.peer_window) = (ack.acknowledged + ack.window, ack.window);
        // RFC 6298 5.7 and RFC 5681 3.1, but as in Linux only after two lost SYNs, not after one.
        let cwnd = if attempt > 2 { 1 } else { self.config.initial_cwnd };
        self.establish(rtt_us, cwnd);
        self.phase = Phase::AckDue;
    }

    fn establish(&mut self, rtt_us: Option<u64>, cwnd: u32) {
        if let Some(rtt_us) = rtt_us {
            self.rtt.sample(rtt_us, 0, 0);
            self.rtt.sample_min(self.now_us, rtt_us, false);
            self.tp.rtt_min.s[0].v = self.rtt.min_rtt_us() as u32;
        }
        self.update_rto();
        self.timer = None;
        self.tp.inet_conn.icsk_retransmits = 0;
        // The SYN counts as delivered.
        self.tp.delivered = 1;
        self.tp.delivered_mstamp = self.now_us;
        self.tp.snd_cwnd = cwnd;
        self.tp.snd_cwnd_stamp = self.jiffies();
        self.last_sent_us = self.now_us;
        self.fill_socket();
        if !self.has_cong_control {
            self.update_pacing_rate();
        }
        self.cc.init(&mut self.tp);
        self.expand_sndbuf();
        self.fill_sndbuf();
    }
}
