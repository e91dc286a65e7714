//! What leaves next: a forced segment, a retransmission or new data, as far as the window, the
//! receiver and pacing allow.

use skyhop_cc::CaEvent;
use skyhop_model::CongestionState;

use crate::leaving::{Leaving, What};
use crate::rate_sample;
use crate::rto::TimerKind;
use crate::scoreboard::Entry;
use crate::{CongestionControl, Sender};

/// Linux holds a small burst back only this long after the last one.
const TSO_DEFER_NS: u64 = 1_000_000;
/// And only for an ACK that is expected this soon.
const NEAR_ACK_US: u64 = 1000;
/// sysctl tcp_tso_win_divisor: no burst waits to be larger than this part of the window.
const TSO_WINDOW_DIVISOR: u32 = 3;

/// What the last ACK asks to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rexmit {
    /// New data only.
    None,
    /// What is lost, then new data.
    Lost,
    /// F-RTO: new data, and what is lost only where there is none (RFC 5682 3.1 step 2.b).
    NewDataFirst,
}

/// A segment that a timer sends whatever the window says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    Retransmission(u64),
    RetransmissionProbe(u64),
    NewDataProbe,
    /// What fits the receiver's window, which is too small for the next segment.
    NewData,
    /// Nothing: asks for an answer.
    Probe,
}

/// What has left since the driver began to poll.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flight {
    new: u32,
    probe: bool,
    /// The rest waits for room in the congestion window for a larger burst.
    deferred: bool,
    /// Segments of the current burst that may leave without asking pacing again, and whether it has more than one.
    burst_rest: u32,
    is_burst: bool,
    /// The largest burst now; 0 before it was worked out.
    burst_most: u32,
}

impl<C: CongestionControl> Sender<C> {
    /// The next segment of the established connection.
    pub(crate) fn next_segment(&mut self) -> Option<Leaving> {
        if let Some(forced) = self.forced.take() {
            return Some(self.send_forced(forced));
        }
        if self.rexmit == Rexmit::NewDataFirst {
            if let Some(leaving) = self.next_new_data() {
                return Some(leaving);
            }
            self.rexmit = Rexmit::None;
            if self.board.nxt <= self.high_seq {
                self.frto = false;
                self.retransmit_lost();
            }
        }
        let again = if self.retransmitting { self.next_retransmission() } else { None };
        again.or_else(|| self.next_new_data())
    }

    /// Lost segments may leave again, as the window opens.
    pub(crate) fn retransmit_lost(&mut self) {
        self.retransmitting = true;
    }

    fn send_forced(&mut self, forced: Forced) -> Leaving {
        match forced {
            Forced::Retransmission(seq) => self.retransmit(seq, true),
            Forced::RetransmissionProbe(seq) => self.retransmit(seq, false),
            Forced::NewDataProbe => {
                self.flight.probe = true;
                self.flight.is_burst = false;
                self.send_new()
            }
            Forced::NewData => {
                // `tcp_write_wakeup` has no part in Minshall's rule.
                let short_end = self.short_end;
                self.flight.probe = true;
                let leaving = self.send_new();
                self.short_end = short_end;
                leaving
            }
            Forced::Probe => Leaving { what: What::Probe, seq: 0, push: false },
        }
    }

    /// RFC 6675 5 step C with the pipe against the window.
    fn next_retransmission(&mut self) -> Option<Leaving> {
        if self.board.in_flight() >= self.tp.snd_cwnd {
            self.retransmitting = false;
            return None;
        }
        let Some(seq) = self.board.next_pending() else {
            self.retransmitting = false;
            return None;
        };
        if self.pacing_release().is_some() {
            return None;
        }
        if seq == self.board.una && !matches!(self.timer, Some((TimerKind::Reordering, _))) {
            self.arm_rto();
        }
        if self.in_cwnd_reduction() {
            self.prr.out += 1;
        }
        Some(self.retransmit(seq, true))
    }

    fn next_new_data(&mut self) -> Option<Leaving> {
        if !self.has_new_data() {
            return None;
        }
        let in_flight = self.board.in_flight();
        if in_flight >= self.tp.snd_cwnd {
            self.flight.burst_rest = 0;
            return None;
        }
        self.continue_burst(in_flight).then(|| self.send_new())
    }

    /// Whether a new segment may go now: as part of the burst under way or of a new one, which
    /// neither pacing nor the wish for a larger one holds back.
    fn continue_burst(&mut self, in_flight: u32) -> bool {
        if self.flight.burst_rest > 0 {
            self.flight.burst_rest -= 1;
            return true;
        }
        if self.pacing_release().is_some() {
            return false;
        }
        let room = self.tp.snd_cwnd - in_flight;
        if self.flight.burst_most == 0 {
            self.flight.burst_most = self.burst_segments();
        }
        let most = self.flight.burst_most;
        if self.defers_burst(room, most) {
            self.flight.deferred =
                u64::from(room) * u64::from(self.config.host.mss) < self.unsent().room;
            return false;
        }
        // A burst takes at most half of the window (RFC 3465 has the same concern).
        let quota = room.min((self.tp.snd_cwnd / 2).max(1));
        let (segments, bytes) = self.next_burst(most.min(quota));
        self.flight.burst_rest = segments - 1;
        self.flight.is_burst = segments > 1;
        self.pace(segments, bytes);
        true
    }

    /// Whether Linux waits for the next ACK rather than build a TSO packet below its size: while
    /// the last one left less than 1 ms ago, the window has room for neither a full one nor a third
    /// of itself (sysctl tcp_tso_win_divisor), and the ACK of the head cannot be far.
    fn defers_burst(&self, room: u32, most: u32) -> bool {
        let board = &self.board;
        let mss = self.current_mss();
        let unsent = self.unsent();
        let limit = unsent.room.min(u64::from(room) * mss);
        let peer_window = self.window_end - self.lengths.begin();
        let window = peer_window.min(u64::from(self.tp.snd_cwnd) * mss);
        let since_last_ns = self.now.as_nanos().saturating_sub(self.tp.tcp_wstamp_ns);
        if limit >= u64::from(most) * mss
            || u64::from(TSO_WINDOW_DIVISOR) * limit >= window
            || since_last_ns > TSO_DEFER_NS
            || self.tp.ca_state() >= CongestionState::Recovery
            || board.packets_out() == 0
            || unsent.bytes <= mss
        {
            return false;
        }
        let head_age_us = self.now_us - board.entry(board.una).sent_us;
        let srtt_us = self.rtt.srtt_us();
        let ack_is_near = if self.rules.defers_for_near_ack {
            srtt_us <= head_age_us + (srtt_us / 2).min(NEAR_ACK_US)
        } else {
            head_age_us >= srtt_us / 2
        };
        let is_the_end = self.stream.is_finished() && unsent.bytes.div_ceil(mss) < limit / mss;
        ack_is_near && !is_the_end
    }

    fn send_new(&mut self) -> Leaving {
        let seq = self.board.nxt;
        let packets_out = self.board.packets_out();
        if std::mem::take(&mut self.resumes) {
            self.restart_after_idle();
        }
        if self.board.in_flight() == 0 {
            self.cwnd_event(CaEvent::TxStart);
        }
        self.cut_segment(seq);
        let mut entry = Entry::default();
        rate_sample::stamp(&mut self.tp, &mut entry, self.now_us, packets_out);
        self.board.push(entry);
        self.flight.new += 1;
        if packets_out == 0 || matches!(self.timer, Some((TimerKind::LossProbe, _))) {
            self.rearm_rto();
        }
        self.count_sent(self.lengths.of(seq));
        // `__tcp_transmit_skb` pushes what leaves as a burst, `tcp_push` the end of what is written.
        let ends_burst = self.flight.is_burst && self.flight.burst_rest == 0;
        let push = ends_burst || self.stream.written() == self.lengths.end();
        Leaving { what: What::NewData, seq, push }
    }

    /// Sends a segment again; `counted` unless it is a loss probe.
    fn retransmit(&mut self, seq: u64, counted: bool) -> Leaving {
        if self.board.in_flight() == 0 {
            self.cwnd_event(CaEvent::TxStart);
        }
        let packets_out = self.board.packets_out();
        let entry = self.board.entry_mut(seq);
        rate_sample::stamp(&mut self.tp, entry, self.now_us, packets_out);
        self.board.mark_retransmitted(seq, counted);
        if counted {
            self.count_retransmission();
        }
        self.tp.total_retrans += 1;
        let len = self.lengths.of(seq);
        self.pace(1, len.into());
        self.count_sent(len);
        Leaving { what: What::DataAgain, seq, push: false }
    }

    fn count_sent(&mut self, len: u32) {
        self.data_sent += 1;
        self.last_sent_us = self.now_us;
        self.tp.lsndtime = self.jiffies();
        self.tp.bytes_sent += u64::from(len);
    }

    /// Nothing more leaves now: what the kernel does at the end of a flight.
    pub(crate) fn end_flight(&mut self) {
        let Flight { new, probe, deferred, .. } = std::mem::take(&mut self.flight);
        let limited = deferred || self.board.in_flight() >= self.tp.snd_cwnd;
        if new > 0 || limited {
            self.validate_cwnd(limited);
        }
        if new > 0 {
            if self.in_cwnd_reduction() {
                self.prr.out += new;
            }
            if !probe {
                self.schedule_loss_probe(false);
            }
        }
        self.check_persist_timer();
    }

    /// Draft delivery-rate-estimation 3.4: nothing to send, room to send it, nothing to repair.
    pub(crate) fn check_app_limited(&mut self) {
        let in_flight = self.board.in_flight();
        if !self.has_more()
            && in_flight < self.tp.snd_cwnd
            && self.board.lost_out <= self.board.retrans_out
        {
            rate_sample::mark_app_limited(&mut self.tp, in_flight);
        }
    }
}
