//! COBALT: CoDel for flows that respond to drops, combined with BLUE, which drops at random from flows that do not.

use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Duration, Instant, Rate};

/// Increase of BLUE's probability at an overflow, and its decrease when a queue is found empty.
const BLUE_UP: f64 = 1.0 / 256.0;
const BLUE_DOWN: f64 = 1.0 / 4096.0;

/// Parameters of COBALT, derived from a tin's rate and the RTT.
#[derive(Debug, Clone, Copy)]
pub(super) struct CobaltParams {
    target: Duration,
    interval: Duration,
    /// Transmission time of a full packet (MTU) at the tin's rate.
    packet: Duration,
}

/// State of COBALT for one queue, Linux's `cobalt_vars`.
#[derive(Debug, Clone, Default)]
pub(super) struct Cobalt {
    count: u32,
    dropping: bool,
    drop_next: Instant,
    /// BLUE's drop probability; `changed` is the time of its last change.
    pub(super) probability: f64,
    changed: Instant,
}

/// CoDel's decision about the packet at the head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Pass,
    /// Mark the packet if it is ECN-capable, and drop it otherwise.
    MarkOrDrop,
}

impl CobaltParams {
    /// Compute the times for a rate and RTT, as `cake_set_rate` does.
    pub(super) fn new(rate: Option<Rate>, rtt: Duration) -> Self {
        let rtt_target = rtt / 20;
        let packet = rate.map_or(Duration::ZERO, |rate| rate.transmit_time(LARGEST_PACKET));
        let target = rtt_target.max(packet * 3 / 2);
        let interval = (rtt + target.saturating_sub(rtt_target)).max(target * 2);
        Self { target, interval, packet }
    }
}

impl Cobalt {
    /// Time of the next drop (`cobalt_control`): CoDel's interval divided by the square root of the count,
    /// after `from`.
    fn control(&self, from: Instant, params: &CobaltParams) -> Instant {
        let interval_ns = params.interval.as_nanos() as f64;
        from + Duration::from_nanos((interval_ns / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    /// Note that a packet of this queue was dropped for lack of room: `cobalt_queue_full`.
    pub(super) fn on_overflow(&mut self, now: Instant, params: &CobaltParams) {
        if now.saturating_since(self.changed) > params.target {
            self.probability = (self.probability + BLUE_UP).min(1.0);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// Note that the queue was found empty in its turn: `cobalt_queue_empty`.
    pub(super) fn on_empty(&mut self, now: Instant, params: &CobaltParams) {
        if self.probability > 0.0 && now.saturating_since(self.changed) > params.target {
            self.probability = (self.probability - BLUE_DOWN).max(0.0);
            self.changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.step_back(params);
        }
    }

    fn step_back(&mut self, params: &CobaltParams) {
        self.count -= 1;
        self.drop_next = self.control(self.drop_next, params);
    }

    /// Decide by CoDel about a packet that waited for `waited`: first part of `cobalt_should_drop`.
    #[inline]
    pub(super) fn judge(
        &mut self,
        now: Instant,
        waited: Duration,
        params: &CobaltParams,
    ) -> Verdict {
        let is_due = self.count > 0 && now >= self.drop_next;
        if waited > params.target && waited > params.packet * 4 {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.control(now, params);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if is_due && self.dropping {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.control(self.drop_next, params);
            return Verdict::MarkOrDrop;
        }
        if is_due {
            while self.count > 0 && now >= self.drop_next {
                self.step_back(params);
            }
        }
        Verdict::Pass
    }

    /// Update `drop_next` after the decision: end of `cobalt_should_drop`. While the drop count is 0, `drop_next` is
    /// the time until which the state is kept.
    #[inline]
    pub(super) fn update_drop_next(
        &mut self,
        now: Instant,
        is_dropped: bool,
        params: &CobaltParams,
    ) {
        if self.count == 0 {
            self.drop_next = now + params.interval;
        } else if now > self.drop_next && !is_dropped {
            self.drop_next = now;
        }
    }

    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        self.probability == 0.0 && self.count == 0 && now >= self.drop_next
    }
}
