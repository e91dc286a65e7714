//! Choice of the next segment: a forced segment, a retransmission or new data, as far as the congestion window,
//! the receiver's window and pacing allow.

use skyhop_cc::CaEvent;
use skyhop_model::CongestionState;

use crate::next_segment::{NextSegment, SegmentPurpose};
use crate::rate_sample;
use crate::rto::TimerKind;
use crate::scoreboard::Entry;
use crate::{CongestionControl, Sender};

/// Longest time since the last transmission for which Linux defers a small burst (`tcp_tso_should_defer`).
const TSO_DEFER_NS: u64 = 1_000_000;
/// Longest time until the expected arrival of the next ACK for which a burst is deferred.
const NEAR_ACK_US: u64 = 1000;
/// Divisor of the window that gives the smallest burst that is never deferred: a third of the window (sysctl
/// tcp_tso_win_divisor).
const TSO_WINDOW_DIVISOR: u32 = 3;

/// Transmissions that the last ACK allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rexmit {
    /// New data, no retransmissions.
    None,
    /// Lost segments, then new data.
    Lost,
    /// F-RTO: new data; lost segments only if there is no new data (RFC 5682 3.1 step 2.b).
    NewDataFirst,
}

/// Segment that a timer sends regardless of the congestion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    Retransmission(u64),
    RetransmissionProbe(u64),
    NewDataProbe,
    /// New data cut to the receiver's window, which is too small for a whole segment.
    NewData,
    /// Empty segment that the other end has to acknowledge.
    Probe,
}

/// Segments sent since the driver began to poll, and state of the current burst.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flight {
    new: u32,
    probe: bool,
    /// Whether the remaining data was deferred until the congestion window has room for a larger burst.
    deferred: bool,
    /// Segments of the current burst that may leave without another pacing check, and whether the burst has
    /// more than one segment.
    burst_remaining: u32,
    is_burst: bool,
    /// Largest burst now, in segments; 0 until it is computed.
    max_burst: u32,
}

impl<C: CongestionControl> Sender<C> {
    /// Choose the next segment of the established connection.
    pub(crate) fn choose_next_segment(&mut self) -> Option<NextSegment> {
        if let Some(forced) = self.forced.take() {
            return Some(self.send_forced(forced));
        }
        if self.rexmit == Rexmit::NewDataFirst {
            if let Some(next) = self.next_new_data() {
                return Some(next);
            }
            self.rexmit = Rexmit::None;
            if self.board.nxt <= self.high_seq {
                self.frto = false;
                self.retransmit_lost();
            }
        }
        let retransmission = if self.retransmitting { self.next_retransmission() } else { None };
        retransmission.or_else(|| self.next_new_data())
    }

    /// Start retransmitting lost segments, as the window allows.
    pub(crate) fn retransmit_lost(&mut self) {
        self.retransmitting = true;
    }

    fn send_forced(&mut self, forced: Forced) -> NextSegment {
        match forced {
            Forced::Retransmission(seq) => self.retransmit(seq, true),
            Forced::RetransmissionProbe(seq) => self.retransmit(seq, false),
            Forced::NewDataProbe => {
                self.flight.probe = true;
                self.flight.is_burst = false;
                self.send_new()
            }
            Forced::NewData => {
                // `tcp_write_wakeup` does not take part in Minshall's rule.
                let short_end = self.short_end;
                self.flight.probe = true;
                let next = self.send_new();
                self.short_end = short_end;
                next
            }
            Forced::Probe => NextSegment { purpose: SegmentPurpose::Probe, seq: 0, push: false },
        }
    }

    /// Choose the next lost segment while the pipe is below the window (RFC 6675 5 step C).
    fn next_retransmission(&mut self) -> Option<NextSegment> {
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

    fn next_new_data(&mut self) -> Option<NextSegment> {
        if !self.has_new_data() {
            return None;
        }
        let in_flight = self.board.in_flight();
        if in_flight >= self.tp.snd_cwnd {
            self.flight.burst_remaining = 0;
            return None;
        }
        self.continue_burst(in_flight).then(|| self.send_new())
    }

    /// Whether a new segment may leave now: as part of the current burst, or of a new one that neither pacing
    /// nor TSO deferral holds back.
    fn continue_burst(&mut self, in_flight: u32) -> bool {
        if self.flight.burst_remaining > 0 {
            self.flight.burst_remaining -= 1;
            return true;
        }
        if self.pacing_release().is_some() {
            return false;
        }
        let room = self.tp.snd_cwnd - in_flight;
        if self.flight.max_burst == 0 {
            self.flight.max_burst = self.burst_segments();
        }
        let most = self.flight.max_burst;
        if self.should_defer_burst(room, most) {
            self.flight.deferred =
                u64::from(room) * u64::from(self.config.host.mss) < self.unsent().room;
            return false;
        }
        // A burst takes at most half of the window, against line-rate bursts (RFC 3465 has the same concern).
        let quota = room.min((self.tp.snd_cwnd / 2).max(1));
        let (segments, bytes) = self.next_burst(most.min(quota));
        self.flight.burst_remaining = segments - 1;
        self.flight.is_burst = segments > 1;
        self.pace(segments, bytes);
        true
    }

    /// Whether to wait for the next ACK rather than send a TSO packet below its target size
    /// (`tcp_tso_should_defer`). The conditions are: the last packet left less than 1 ms ago; the room in the
    /// window is smaller than a full TSO packet and than a third of the window (sysctl tcp_tso_win_divisor);
    /// and the ACK of the oldest outstanding segment is expected soon.
    fn should_defer_burst(&self, room: u32, most: u32) -> bool {
        let board = &self.board;
        let mss = self.current_mss();
        let unsent = self.unsent();
        let limit = unsent.room.min(u64::from(room) * mss);
        let peer_window = self.receive_window_end - self.lengths.begin();
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

    fn send_new(&mut self) -> NextSegment {
        let seq = self.board.nxt;
        let packets_out = self.board.packets_out();
        if std::mem::take(&mut self.endless_write_began) {
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
        self.count_sent(self.lengths.len_of(seq));
        // `__tcp_transmit_skb` sets PSH at the end of a burst, `tcp_push` at the end of the written data.
        let ends_burst = self.flight.is_burst && self.flight.burst_remaining == 0;
        let push = ends_burst || self.stream.written() == self.lengths.end();
        NextSegment { purpose: SegmentPurpose::NewData, seq, push }
    }

    /// Retransmit segment `seq`. `counted` is false for a loss probe, which the kernel leaves out of its
    /// counters.
    fn retransmit(&mut self, seq: u64, counted: bool) -> NextSegment {
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
        let len = self.lengths.len_of(seq);
        self.pace(1, len.into());
        self.count_sent(len);
        NextSegment { purpose: SegmentPurpose::RetransmittedData, seq, push: false }
    }

    fn count_sent(&mut self, len: u32) {
        self.data_sent += 1;
        self.last_sent_us = self.now_us;
        self.tp.lsndtime = self.jiffies();
        self.tp.bytes_sent += u64::from(len);
    }

    /// End a flight as the kernel does: validate the congestion window, and arm the timers of the tail loss
    /// probe and of the window probe.
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

    /// Mark the flow application-limited (draft-cheng-iccrg-delivery-rate-estimation 3.4) if there is no new
    /// data to send, the congestion window has room, and no lost segment waits for retransmission.
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
