//! RACK: loss detection by time of transmission (RFC 8985 section 6).

use crate::rate_sample::sent_after;
use crate::rto::TimerKind;
use crate::scoreboard::{EVER_RETRANS, Entry, LOST, RETRANS};
use crate::undo::ts_before;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

/// RFC 8985 6.2.: a larger reordering window lasts this many recoveries.
const REO_WND_PERSIST: u8 = 16;
/// Duplicate ACKs that count as a loss while no reordering has been seen (RFC 5681 3.2).
pub(crate) const DUP_THRESH: u32 = 3;
/// Degrees of reordering beyond this count the same (sysctl tcp_max_reordering).
pub(crate) const MAX_REORDERING: u32 = 300;
/// Linux's TCP_TIMEOUT_MIN_US, added to the short timers; before it was so many ticks.
const TIMEOUT_MIN_US: u64 = 2000;
const TIMEOUT_MIN_TICKS: u64 = 2;

/// RFC 8985 5.3's variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rack {
    /// When the most recently sent of the delivered segments was sent.
    sent_us: u64,
    /// Its end.
    end: u64,
    /// Its RTT.
    rtt_us: u64,
    /// Whether it changed since the last look for losses.
    pub(crate) advanced: bool,
    /// The reordering window in quarters of the least RTT.
    reo_wnd_steps: u32,
    pub(crate) reo_wnd_persist: u8,
    pub(crate) dsack_seen: bool,
    /// `delivered` when the reordering window last grew.
    last_delivered: u32,
    /// Whether any reordering was ever seen.
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

    /// The reordering window is kept for another recovery (RFC 8985 6.2 step 4).
    pub(crate) fn keep_reo_wnd(&mut self) {
        self.reo_wnd_persist = (self.reo_wnd_persist + 1).min(REO_WND_PERSIST);
    }

    /// RFC 8985 6.2 step 4: grows with each round trip that saw a D-SACK, falls back after 16
    /// recoveries without.
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
    /// RFC 8985 6.2 steps 1 and 2: a segment has been delivered.
    pub(crate) fn rack_on_delivered(&mut self, seq: u64, entry: &Entry, tsecr: u32) {
        let retransmitted = entry.is(RETRANS | EVER_RETRANS);
        let rtt_us = self.now_us - entry.sent_us;
        // The ACK of a retransmission may belong to the original: its timestamp tells, or an RTT
        // that is too short. A SACK echoes an older segment's timestamp, which tells nothing.
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

    /// RFC 8985 6.2 step 3: a segment was delivered below another one.
    pub(crate) fn check_reordering(&mut self, lowest: u64, sacked_end: u64) {
        if lowest >= sacked_end {
            return;
        }
        let degree = (sacked_end - lowest).min(MAX_REORDERING.into()) as u32;
        self.tp.reordering = self.tp.reordering.max(degree);
        self.rack.reordering_seen = true;
    }

    /// RFC 8985 6.2 step 4: RACK_update_reo_wnd.
    fn reo_wnd_us(&self) -> u64 {
        if !self.rack.reordering_seen
            && (self.tp.ca_state() >= CongestionState::Recovery
                || self.board.sacked_out >= DUP_THRESH)
        {
            return 0;
        }
        (self.rtt.min_rtt_us() / 4 * u64::from(self.rack.reo_wnd_steps)).min(self.rtt.srtt_us())
    }

    /// RFC 8985 6.2 step 5 after an ACK; whether it left the reordering timer armed.
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

    /// What short timers wait longer than what they wait for.
    pub(crate) fn short_timer_margin_us(&self) -> u64 {
        if self.rules.short_timers_in_us {
            TIMEOUT_MIN_US
        } else {
            TIMEOUT_MIN_TICKS * self.jiffies.tick_us()
        }
    }

    /// RACK_detect_loss: what was sent a round trip and the reordering window before now, and before
    /// the newest delivered segment, is lost. Returns how long until the last of the others that
    /// were sent before it may be.
    ///
    /// The list is in order of transmission, so that what is overdue comes first and the last of
    /// the others is where the scoreboard's edge stands: nothing in between is looked at.
    fn rack_detect_loss(&mut self) -> Option<u64> {
        let deadline_us = self.rack.rtt_us + self.reo_wnd_us();
        let edge = self.board.advance_edge(self.rack.sent_us, self.rack.end)?;
        let now_us = self.now_us;
        let remaining_us = |entry: &Entry| (entry.sent_us + deadline_us).saturating_sub(now_us);
        // A loss probe has sent again what is deemed lost already, and so it is in the list.
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
            // Those behind it wait longer.
            wait_us = remaining_us(entry);
            if !is_probe(&last) {
                wait_us = remaining_us(&last);
                break;
            }
        }
        (wait_us > 0).then_some(wait_us)
    }

    /// Whether a segment cannot be called lost yet when the timeout strikes.
    pub(crate) fn rack_still_waits(&self, entry: &Entry) -> bool {
        entry.sent_us + self.rack.rtt_us > self.now_us
    }

    pub(crate) fn mark_lost(&mut self, seq: u64, by_timeout: bool) {
        if self.board.mark_lost(seq, by_timeout) {
            self.tp.lost = self.tp.lost.wrapping_add(1);
        }
    }

    /// The reordering timer (RFC 8985 6.3) fired.
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
