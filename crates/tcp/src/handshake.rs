//! The three-way handshake (RFC 9293 3.5). The SYN-ACK is the receiver's.

use skyhop_units::Instant;

use crate::leaving::{Leaving, What};
use crate::segment::Ack;
use crate::{CongestionControl, Sender};

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a SYN.
    Listening,
    /// A SYN came and was answered.
    Answered { at_us: u64, again: bool },
    /// A SYN has to leave, for the `attempt`th time.
    SynDue { attempt: u32 },
    /// A SYN is out.
    SynSent { attempt: u32, sent_us: u64 },
    /// The SYN-ACK's acknowledgement has to leave.
    AckDue,
    /// Data flows.
    Established,
}

impl<C: CongestionControl> Sender<C> {
    /// A segment of the handshake, where one is due.
    pub(crate) fn next_handshake_segment(&mut self) -> Option<Leaving> {
        let what = match self.phase {
            Phase::SynDue { attempt } => {
                self.phase = Phase::SynSent { attempt, sent_us: self.now_us };
                self.arm_rto();
                What::Syn
            }
            Phase::AckDue => {
                self.phase = Phase::Established;
                What::HandshakeAck
            }
            Phase::Listening
            | Phase::Answered { .. }
            | Phase::SynSent { .. }
            | Phase::Established => return None,
        };
        Some(Leaving { what, seq: 0, push: false })
    }

    /// No answer to the SYN (RFC 6298 5.5).
    pub(crate) fn on_syn_timer(&mut self, attempt: u32) {
        if self.gives_up_opening(attempt) {
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

    /// The other end's SYN arrived, and is answered: `window` is the room that it has, and whether ECN is spoken was
    /// decided.
    pub(crate) fn on_syn(&mut self, now: Instant, window: u64, speaks_ecn: bool) {
        self.set_clock(now);
        let again = match self.phase {
            Phase::Listening => false,
            Phase::Answered { .. } => true,
            _ => return,
        };
        self.phase = Phase::Answered { at_us: self.now_us, again };
        self.ecn.set(speaks_ecn);
        (self.window_end, self.peer_window) = (window, window);
    }

    /// The SYN-ACK leaves again (RFC 6298 3: it gives no RTT sample then).
    pub(crate) fn on_syn_ack_again(&mut self, now: Instant) {
        self.set_clock(now);
        if let Phase::Answered { again, .. } = &mut self.phase {
            *again = true;
        }
    }

    /// Something arrived that completes the handshake for the end that was called (`tcp_synack_rtt_meas`,
    /// `tcp_init_transfer`).
    pub(crate) fn accept(&mut self, now: Instant, ack: Option<&Ack>) {
        let Phase::Answered { at_us, again } = self.phase else {
            return;
        };
        self.set_clock(now);
        if let Some(ack) = ack {
            (self.window_end, self.peer_window) = (ack.acknowledged + ack.window, ack.window);
        }
        let rtt_us = (!again).then(|| self.now_us - at_us);
        self.establish(rtt_us, self.config.initial_cwnd);
        self.phase = Phase::Established;
    }

    /// The connection is established; its round trip is the first RTT sample.
    pub(crate) fn on_syn_ack(&mut self, ack: &Ack, attempt: u32, sent_us: u64) {
        let rtt_us =
            if attempt == 1 { Some(self.now_us - sent_us) } else { self.echoed_rtt_us(ack.tsecr) };
        self.ecn.rcv_synack(ack);
        (self.window_end, self.peer_window) = (ack.acknowledged + ack.window, ack.window);
        // RFC 6298 5.7 and RFC 5681 3.1: a SYN lost twice, not once as there, closes the window.
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
        self.publish();
        if !self.has_cong_control {
            self.update_pacing_rate();
        }
        self.cc.init(&mut self.tp);
        self.expand_sndbuf();
        self.fill_sndbuf();
    }
}
