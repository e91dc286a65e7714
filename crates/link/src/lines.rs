//! Lines over which a background load reaches a queue: none brings fluid and packets faster than its rate.
//!
//! A line serves its fluid first in, first out, and hands over each packet of it whole. What has come faster than the
//! line can carry waits at its near end, where the fluid has queued already: it does not queue twice.

use crate::background::{Line, LineLoad};
use crate::timeline::Timeline;
use crate::{Background, Piece};

/// Largest fraction of a packet by which sums of times may be wrong.
const ROUNDING: f64 = 1e-6;

/// Lines of a queue, with the packet size of their fluid.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) all: Vec<LineState>,
    /// Bits of a packet that a line hands over whole; 0 for an even load.
    pub(crate) unit_bits: f64,
}

/// Fluid of one line. Its work is in bits, as of the last change.
#[derive(Debug)]
pub(crate) struct LineState {
    from: u32,
    pub(crate) load: Timeline<Piece<LineLoad>>,
    /// Load of the moment in bit/s.
    pub(crate) load_bps: f64,
    /// Rate in bit/s, at least that of the queue's own transmitter.
    pub(crate) rate_bps: f64,
    /// Fluid at the near end that has not been handed over, and the rest of the packet that was handed over last, which
    /// occupies the line.
    pub(crate) work_bits: f64,
    /// Part of `work_bits` that stands for a packet that is not of the fluid.
    foreign_bits: f64,
    /// Fluid that has been handed over before it came.
    owed_bits: f64,
    /// Fluid that was at the near end at the last arrival of any packet, or has come since.
    offered_bits: f64,
    /// Whether a packet that is not of the fluid holds the line.
    pub(crate) is_held: bool,
}

impl Lines {
    /// Create the idle lines of a load that goes on at a rate in bit/s.
    pub(crate) fn new(background: &Background, rate_bps: f64) -> Self {
        let state = |line: &Line| LineState {
            from: line.from,
            load: Timeline::new(line.load.clone()),
            load_bps: 0.0,
            // Fluid of a slower line queues less than this at the own transmitter, where it never meets itself.
            rate_bps: (line.rate.bits_per_second() as f64).max(rate_bps),
            work_bits: 0.0,
            foreign_bits: 0.0,
            owed_bits: 0.0,
            offered_bits: 0.0,
            is_held: false,
        };
        let is_even = background.burst == 0;
        Self {
            all: background.lines.iter().map(state).collect(),
            unit_bits: if is_even { 0.0 } else { 8.0 * background.packet.as_u64() as f64 },
        }
    }

    /// Number of the line from a node.
    pub(crate) fn number_of(&self, from: u32) -> Option<usize> {
        self.all.iter().position(|line| line.from == from)
    }

    /// Fluid at the near ends of the lines that are not held.
    pub(crate) fn waiting_bits(&self) -> f64 {
        let free = self.all.iter().filter(|line| !line.is_held);
        free.map(|line| line.waiting_bits(self.unit_bits)).sum()
    }

    /// Fluid at the near ends of all lines after some more time without changes.
    pub(crate) fn waiting_after(&self, span_s: f64) -> f64 {
        let waiting = |line: &LineState| {
            waiting_bits(line.work_bits - line.rate_bps * span_s, self.unit_bits)
        };
        self.all.iter().map(waiting).sum()
    }

    /// Least work at the transmitter, of this rate: the rest of the packet that a line has handed over last.
    pub(crate) fn least_work_bits(&self, rate_bps: f64) -> f64 {
        let rest = |line: &LineState| {
            let rest_bits = line.rest_bits(self.unit_bits);
            let is_own = line.foreign_bits <= 0.0 && rest_bits > 0.0;
            let sent = rate_bps / line.rate_bps * (self.unit_bits - rest_bits);
            if is_own && !line.is_held { self.unit_bits - sent } else { 0.0 }
        };
        self.all.iter().map(rest).fold(0.0, f64::max)
    }
}

impl LineState {
    /// Fluid at the near end.
    pub(crate) fn waiting_bits(&self, unit_bits: f64) -> f64 {
        waiting_bits(self.work_bits, unit_bits)
    }

    /// Rest of the packet that occupies the line.
    fn rest_bits(&self, unit_bits: f64) -> f64 {
        if unit_bits == 0.0 { 0.0 } else { self.work_bits.max(0.0) - self.waiting_bits(unit_bits) }
    }

    /// Fluid that has been handed over since the last arrival of any packet.
    pub(crate) fn passed_bits(&self, unit_bits: f64) -> f64 {
        self.offered_bits - self.waiting_bits(unit_bits)
    }

    /// Carry fluid for some time, at the begin or during which so many bits come; returns those of them that are not
    /// owed, or 0 while the line is held.
    pub(crate) fn carry(&mut self, came_bits: f64, span_s: f64) -> f64 {
        let paid_bits = self.owed_bits.min(came_bits);
        let came_bits = came_bits - paid_bits;
        self.owed_bits -= paid_bits;
        self.offered_bits += came_bits;
        self.work_bits += came_bits;
        if self.is_held {
            return 0.0;
        }
        let sent_bits = self.rate_bps * span_s;
        self.work_bits = (self.work_bits - sent_bits).max(0.0);
        self.foreign_bits = (self.foreign_bits - sent_bits).max(0.0);
        came_bits
    }

    /// Let a packet of the fluid have been handed over right now: the last one since the last arrival, or if there is
    /// none the next one, even if it has not come yet. Returns the bits of a packet that has not come.
    pub(crate) fn hand_over(&mut self, unit_bits: f64) -> f64 {
        let mut waiting_bits = self.waiting_bits(unit_bits);
        let mut missing_bits = 0.0;
        if self.passed_bits(unit_bits) < unit_bits / 2.0 {
            if waiting_bits > 0.0 {
                waiting_bits -= unit_bits;
            } else {
                missing_bits = unit_bits;
                self.owed_bits += unit_bits;
                self.offered_bits += unit_bits;
            }
        }
        self.work_bits = waiting_bits + unit_bits;
        self.foreign_bits = 0.0;
        missing_bits
    }

    /// Let a packet that is not of the fluid have arrived right now. The next packet of the fluid comes a packet's time
    /// later at the earliest.
    pub(crate) fn end_of_packet(&mut self, unit_bits: f64) {
        self.work_bits = self.waiting_bits(unit_bits) + unit_bits;
        self.foreign_bits = unit_bits;
        self.is_held = false;
    }

    /// Count what is handed over from now on. Fluid at the near end for which there is no room is lost; returns its bits.
    pub(crate) fn begin_interval(&mut self, unit_bits: f64, room_bits: f64) -> f64 {
        let waiting_bits = self.waiting_bits(unit_bits);
        let lost_bits = (waiting_bits - room_bits).max(0.0);
        self.work_bits -= lost_bits;
        self.offered_bits = waiting_bits - lost_bits;
        lost_bits
    }

    /// Carry fluid for a long time, in which so many bits come, as a motion that zero reflects, given its way and its
    /// lowest point without that.
    pub(crate) fn reflect(&mut self, came_bits: f64, moved_bits: f64, lowest_bits: f64) {
        self.work_bits = reflected(self.work_bits, moved_bits, lowest_bits);
        self.offered_bits = (self.offered_bits + came_bits).max(self.work_bits);
        self.foreign_bits = 0.0;
        self.owed_bits = 0.0;
    }
}

/// Work at the end of a motion that zero reflects, given the way and the lowest point of the motion without it.
pub(crate) fn reflected(bits: f64, moved_bits: f64, lowest_bits: f64) -> f64 {
    bits + moved_bits - (bits + lowest_bits).min(0.0)
}

/// Part of a line's work that has not been handed over: all but the packet that occupies the line.
fn waiting_bits(work_bits: f64, unit_bits: f64) -> f64 {
    if unit_bits == 0.0 || work_bits <= 0.0 {
        return work_bits.max(0.0);
    }
    let packets = (work_bits / unit_bits - ROUNDING).ceil().max(1.0);
    (packets - 1.0) * unit_bits
}
