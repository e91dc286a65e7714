//! The kernel's coarse clock (jiffies) and the timers that run by it.

use skyhop_units::{Duration, Instant};

/// Buckets per level of the timer wheel, and log2 of the ratio of bucket widths between levels (`LVL_SIZE`,
/// `LVL_CLK_SHIFT` of kernel/time/timer.c).
const BUCKETS: u64 = 64;
const LEVEL_SHIFT: u32 = 3;
const LEVELS: u32 = 9;

/// Tick counter and timer granularity of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jiffies {
    tick_ns: u64,
    tick_us: u64,
    /// Reciprocal 2^64 / `tick_us`, rounded up: every ACK divides by it.
    reciprocal: u64,
    /// Reciprocal 2^64 / `tick_ns`, rounded down.
    ns_reciprocal: u64,
    /// Whether timers fire at the end of their timer-wheel bucket, rather than exactly on time.
    wheel: bool,
    now: u64,
    /// Time of the next tick, in nanoseconds.
    next_ns: u64,
}

impl Jiffies {
    pub(crate) fn new(tick: Duration, wheel: bool) -> Self {
        let tick_ns = tick.as_nanos().max(1);
        let tick_us = (tick_ns / 1000).max(1);
        let reciprocal = (u64::MAX / tick_us).wrapping_add(1);
        let ns_reciprocal = u64::MAX / tick_ns;
        Self { tick_ns, tick_us, reciprocal, ns_reciprocal, wheel, now: 0, next_ns: 0 }
    }

    /// Advance the clock to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) {
        let now_ns = now.as_nanos();
        if now_ns >= self.next_ns {
            // The quotient may be one too small.
            self.now = ((u128::from(now_ns) * u128::from(self.ns_reciprocal)) >> 64) as u64;
            self.now += u64::from((self.now + 1) * self.tick_ns <= now_ns);
            self.next_ns = (self.now + 1) * self.tick_ns;
        }
    }

    /// Number of ticks so far (`tcp_jiffies32`).
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.now as u32
    }

    pub(crate) fn tick_us(&self) -> u64 {
        self.tick_us
    }

    /// Convert microseconds to ticks, rounded up (`usecs_to_jiffies`).
    #[inline]
    pub(crate) fn ticks_in_us(&self, us: u64) -> u64 {
        let up = us + (self.tick_us - 1);
        if up > u32::MAX.into() || self.tick_us == 1 {
            return up / self.tick_us;
        }
        // Exact for 32-bit dividends (Lemire, Kaser and Kurz, Faster remainder by direct computation, 2019).
        ((u128::from(up) * u128::from(self.reciprocal)) >> 64) as u64
    }

    /// Time at which a timer fires that is set at `now` to expire `ticks` later (`mod_timer`); `now` is the
    /// time of the last [`Self::advance`]. The wheel never fires early. It is late by at most the width of a
    /// bucket, which is at most an eighth of the wait (`calc_wheel_index`).
    #[inline]
    pub(crate) fn fires_at(&self, now: Instant, ticks: u64) -> Instant {
        if !self.wheel {
            return now + Duration::from_nanos(ticks * self.tick_ns);
        }
        let shift = LEVEL_SHIFT * level_of(ticks);
        let bucket = (((self.now + ticks) >> shift) + 1) << shift;
        Instant::from_nanos(bucket * self.tick_ns)
    }
}

/// Level of the wheel that holds a timer `ticks` away (`LVL_START`).
#[inline]
fn level_of(ticks: u64) -> u32 {
    let is_below = |level: &u32| ticks < (BUCKETS - 1) << (LEVEL_SHIFT * level);
    (0..LEVELS - 1).find(is_below).unwrap_or(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the table at the head of kernel/time/timer.c for HZ 1000: levels, their width and their range in
    /// ms.
    #[test]
    fn timers_are_late_by_the_width_of_their_bucket() {
        let ms = Duration::from_millis(1);
        for (from_ms, to_ms, width_ms) in
            [(1, 62, 1), (63, 503, 8), (504, 4031, 64), (4032, 32_255, 512)]
        {
            let mut jiffies = Jiffies::new(ms, true);
            for start_us in (0..1_000_000).step_by(37_313) {
                let from = Instant::START + Duration::from_micros(start_us);
                jiffies.advance(from);
                for wait_ms in [from_ms, (from_ms + to_ms) / 2, to_ms] {
                    let late = jiffies.fires_at(from, wait_ms) - (from + ms * wait_ms);
                    assert!(late <= ms * width_ms, "{wait_ms} ms: {late} late");
                }
            }
        }
        // A timer for 1.8 s, set at 0, is in bucket 29 of 64 ms.
        let at = Jiffies::new(ms, true).fires_at(Instant::START, 1800);
        assert_eq!(at, Instant::START + ms * (64 * 29));
    }

    #[test]
    fn ticks_are_rounded_up() {
        for tick_us in [1, 7, 1000, 3333, 4000, 10_000] {
            let jiffies = Jiffies::new(Duration::from_micros(tick_us), false);
            let mut us = 0_u64;
            while us < 1 << 40 {
                for us in [us, us * tick_us, (us * tick_us).saturating_sub(1), us * tick_us + 1] {
                    assert_eq!(jiffies.ticks_in_us(us), us.div_ceil(tick_us), "{us} / {tick_us}");
                }
                us = us * 3 / 2 + 1;
            }
        }
    }

    #[test]
    fn without_the_wheel_timers_fire_on_the_dot() {
        let tick = Duration::from_millis(10);
        let from = Instant::START + Duration::from_micros(1234);
        assert_eq!(Jiffies::new(tick, false).fires_at(from, 24), from + tick * 24);
    }
}
