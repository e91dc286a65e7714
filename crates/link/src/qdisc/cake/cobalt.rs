//! COBALT: CoDel, which answers queues that stay, beside BLUE, which drops of what does not answer.

use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Duration, Instant, Rate};

/// By how much BLUE's probability grows with an overflow, and falls as a queue is found empty.
const BLUE_UP: f64 = 1.0 / 256.0;
const BLUE_DOWN: f64 = 1.0 / 4096.0;

/// COBALT's times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    target: Duration,
    interval: Duration,
    /// What a full packet takes.
    packet: Duration,
}

/// `cobalt_vars`
#[derive(Debug, Clone, Default)]
pub(super) struct Cobalt {
    count: u32,
    dropping: bool,
    drop_next: Instant,
    /// BLUE's probability, and when it last changed.
    pub(super) probability: f64,
    changed: Instant,
}

/// What COBALT decides about a packet that would leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Pass,
    /// It is marked if it speaks ECN, and else dropped.
    Strike,
}

impl Times {
    /// `cake_set_rate`
    pub(super) fn new(rate: Option<Rate>, rtt: Duration) -> Self {
        let rtt_target = rtt / 20;
        let packet = rate.map_or(Duration::ZERO, |rate| rate.transmit_time(LARGEST_PACKET));
        let target = rtt_target.max(packet * 3 / 2);
        let interval = (rtt + target.saturating_sub(rtt_target)).max(target * 2);
        Self { target, interval, packet }
    }
}

impl Cobalt {
    /// `cobalt_control`: an interval later, or less the more were dropped.
    fn control(&self, from: Instant, times: &Times) -> Instant {
        let interval_ns = times.interval.as_nanos() as f64;
        from + Duration::from_nanos((interval_ns / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    /// A packet of it was lost because the queue is full: `cobalt_queue_full`.
    pub(super) fn on_overflow(&mut self, now: Instant, times: &Times) {
        if now.saturating_since(self.changed) > times.target {
            self.probability = (self.probability + BLUE_UP).min(1.0);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// It had its turn and has no packet: `cobalt_queue_empty`.
    pub(super) fn on_empty(&mut self, now: Instant, times: &Times) {
        if self.probability > 0.0 && now.saturating_since(self.changed) > times.target {
            self.probability = (self.probability - BLUE_DOWN).max(0.0);
            self.changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.step_back(times);
        }
    }

    fn step_back(&mut self, times: &Times) {
        self.count -= 1;
        self.drop_next = self.control(self.drop_next, times);
    }

    /// CoDel's part of `cobalt_should_drop`.
    #[inline]
    pub(super) fn judge(&mut self, now: Instant, waited: Duration, times: &Times) -> Verdict {
        let is_due = self.count > 0 && now >= self.drop_next;
        if waited > times.target && waited > times.packet * 4 {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.control(now, times);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if is_due && self.dropping {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.control(self.drop_next, times);
            return Verdict::Strike;
        }
        if is_due {
            while self.count > 0 && now >= self.drop_next {
                self.step_back(times);
            }
        }
        Verdict::Pass
    }

    /// The end of `cobalt_should_drop`: `drop_next` is when it is at rest, too.
    #[inline]
    pub(super) fn note(&mut self, now: Instant, is_dropped: bool, times: &Times) {
        if self.count == 0 {
            self.drop_next = now + times.interval;
        } else if now > self.drop_next && !is_dropped {
            self.drop_next = now;
        }
    }

    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        self.probability == 0.0 && self.count == 0 && now >= self.drop_next
    }
}
