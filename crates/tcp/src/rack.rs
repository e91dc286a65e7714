//! RACK: loss detection by time of transmission (RFC 8985 section 6).

use crate::rate_sample::sent_after;
use crate::rto::TimerKind;
use crate::scoreboard::{EVER_RETRANS, Entry, LOST, RETRANS};
use crate::undo::ts_before;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// Number of recoveries for which a larger reordering window lasts (RFC 8985 6.2).
const REO_WND_PERSIST: u8 = 16;
/// Number of duplicate ACKs that signal a loss while no reordering has been detected (RFC 5681 3.2).
pub(crate) const DUP_THRESH: u32 = 3;
/// Largest degree of reordering that is recorded, in segments (sysctl tcp_max_reordering).
pub(crate) const MAX_REORDERING: u32 = 300;
/// Margin added to short timers, in microseconds (TCP_TIMEOUT_MIN_US); before 6.6, in ticks.
const TIMEOUT_MIN_US: u64 = 2000;
const TIMEOUT_MIN_TICKS: u64 = 2;

/// Variables of RFC 8985 5.3.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rack {
    /// Transmission time of the delivered segment that was sent last (RACK.xmit_ts), in microseconds.
    sent_us: u64,
    /// Sequence number after that segment (RACK.end_seq).
    end: u64,
    /// RTT of that segment (RACK.rtt), in microseconds.
    rtt_us: u64,
    /// Whether that segment changed since the last loss detection.
    pub(crate) advanced: bool,
    /// Reordering window in quarters of the smallest RTT (RACK.reo_wnd_mult).
    reo_wnd_steps: u32,
    pub(crate) reo_wnd_persist: u8,
    pub(crate) dsack_seen: bool,
    /// `delivered` when the reordering window last grew.
    last_delivered: u32,
    /// Whether reordering was ever detected.
    pub(crate) reordering_seen: bool,
}

impl Rack {
    pub(crate) const fn new() -> Self {
        Self {
            sent_us: 0,
            end: 0,
            rtt_us: 0,
            advanced: false,
            reo_wnd_steps: 1,
            reo_wnd_persist: 0,
            dsack_seen: false,
            last_delivered: 0,
            reordering_seen: false,
        }
    }

    /// Keep the reordering window for another recovery (RFC 8985 6.2 step 4).
    pub(crate) fn keep_reo_wnd(&mut self) {
        self.reo_wnd_persist = (self.reo_wnd_persist + 1).min(REO_WND_PERSIST);
    }

    /// Widen the reordering window after each round trip with a D-SACK; reset it after 16 recoveries without
    /// (RFC 8985 6.2 step 4).
    pub(crate) fn update_reo_wnd(&mut self, prior_delivered: u32, delivered: u32) {
        if (prior_delivered.wrapping_sub(self.last_delivered) as i32) < 0 {
            self.dsack_seen = false;
        }
        if self.dsack_seen {
            self.reo_wnd_steps = (self.reo_wnd_steps + 1).min(255);
            self.dsack_seen = false;
            self.last_delivered = delivered;
            self.reo_wnd_persist = REO_WND_PERSIST;
        } else if self.reo_wnd_persist == 0 {
            self.reo_wnd_steps = 1;
        }
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Update RACK's state for a delivered segment (RFC 8985 6.2 steps 1 and 2).
    pub(crate) fn rack_on_delivered(&mut self, seq: u64, entry: &Entry, tsecr: u32) {
        let retransmitted = entry.is(RETRANS | EVER_RETRANS);
        let rtt_us = self.now_us - entry.sent_us;
        // The ACK of a retransmission may belong to the original: its echoed timestamp shows that, or an RTT
        // that is too short. The ACK of a SACKed segment echoes the timestamp of an older segment, which shows
        // nothing.
        if retransmitted
            && (ts_before(tsecr, self.timestamp_at(entry.sent_us))
                || rtt_us < self.rtt.min_rtt_us())
        {
            return;
        }
        self.rack.advanced = true;
        self.rack.rtt_us = rtt_us;
        if sent_after(entry.sent_us, seq + 1, self.rack.sent_us, self.rack.end) {
            self.rack.sent_us = entry.sent_us;
            self.rack.end = seq + 1;
        }
    }

    /// Detect reordering: a segment was delivered below another one (RFC 8985 6.2 step 3).
    pub(crate) fn check_reordering(&mut self, lowest: u64, sacked_end: u64) {
        if lowest >= sacked_end {
            return;
        }
        let degree = (sacked_end - lowest).min(MAX_REORDERING.into()) as u32;
        self.tp.reordering = self.tp.reordering.max(degree);
        self.rack.reordering_seen = true;
    }

    /// Reordering window in microseconds (RACK_update_reo_wnd, RFC 8985 6.2 step 4).
    fn reo_wnd_us(&self) -> u64 {
        if !self.rack.reordering_seen
            && (self.tp.ca_state() >= CongestionState::Recovery
                || self.board.sacked_out >= DUP_THRESH)
        {
            return 0;
        }
        (self.rtt.min_rtt_us() / 4 * u64::from(self.rack.reo_wnd_steps)).min(self.rtt.srtt_us())
    }

    /// Detect losses after an ACK (RFC 8985 6.2 step 5); return whether the reordering timer was armed.
    pub(crate) fn rack_mark_lost(&mut self) -> bool {
        if !self.rack.advanced {
            return false;
        }
        self.rack.advanced = false;
        let Some(wait_us) = self.rack_detect_loss() else {
            return false;
        };
        let wait_us = self.whole_jiffies(wait_us + self.short_timer_margin_us());
        self.arm(TimerKind::Reordering, wait_us.min(self.rto_us));
        true
    }

    /// Margin added to the wait of short timers, in microseconds.
    pub(crate) fn short_timer_margin_us(&self) -> u64 {
        if self.rules.short_timers_in_us {
            TIMEOUT_MIN_US
        } else {
            TIMEOUT_MIN_TICKS * self.jiffies.tick_us()
        }
    }

    /// Mark as lost each segment that was sent before the newest delivered segment and more than an RTT plus
    /// the reordering window ago (RACK_detect_loss). Of the other segments sent before the newest delivered
    /// one, the last becomes overdue last: return the time until then, in microseconds.
    ///
    /// The list is in order of transmission: overdue segments come first, and the scoreboard's edge is the last
    /// one sent before the newest delivered segment. Segments in between are not examined.
    fn rack_detect_loss(&mut self) -> Option<u64> {
        let deadline_us = self.rack.rtt_us + self.reo_wnd_us();
        let edge = self.board.advance_edge(self.rack.sent_us, self.rack.end)?;
        let now_us = self.now_us;
        let remaining_us = |entry: &Entry| (entry.sent_us + deadline_us).saturating_sub(now_us);
        // A loss probe has retransmitted a segment already marked as lost, which is why it is in the list.
        let is_probe = |entry: &Entry| entry.is(LOST) && !entry.is(RETRANS);
        let last = *self.board.entry(edge);
        let mut wait_us = 0;
        let mut next = self.board.oldest_sent();
        while let Some(seq) = next {
            next = if seq == edge { None } else { self.board.sent_next(seq) };
            let entry = self.board.entry(seq);
            if is_probe(entry) {
                continue;
            }
            if remaining_us(entry) == 0 {
                self.mark_lost(seq, false);
                continue;
            }
            // Later segments in the list wait longer.
            wait_us = remaining_us(entry);
            if !is_probe(&last) {
                wait_us = remaining_us(&last);
                break;
            }
        }
        (wait_us > 0).then_some(wait_us)
    }

    /// Whether a segment was sent too recently (less than an RTT ago) to be marked as lost when the timeout
    /// fires.
    pub(crate) fn rack_still_waits(&self, entry: &Entry) -> bool {
        entry.sent_us + self.rack.rtt_us > self.now_us
    }

    pub(crate) fn mark_lost(&mut self, seq: u64, by_timeout: bool) {
        if self.board.mark_lost(seq, by_timeout) {
            self.tp.lost = self.tp.lost.wrapping_add(1);
        }
    }

    /// Detect losses when the reordering timer fires (RFC 8985 6.3).
    pub(crate) fn on_reordering_timer(&mut self) {
        let before = self.board.in_flight();
        self.rack_detect_loss();
        if self.board.in_flight() != before {
            if self.tp.ca_state() != CongestionState::Recovery {
                self.enter_recovery(false);
                if !self.has_cong_control {
                    self.reduce_cwnd(1, false);
                }
            }
            self.retransmit_lost();
        }
        self.rearm_rto();
    }
}
