//! Round-trip times: smoothed RTT, its variation, the timeout derived from them, and the smallest RTT of the
//! last minutes. Microseconds throughout.

/// Lower bound of the variation term (TCP_RTO_MIN; RFC 6298 2.4 would require 1 s for the sum).
const RTO_MIN_US: u64 = 200_000;
/// Upper bound of the timeout (TCP_RTO_MAX); RFC 6298 2.5 allows one of at least 60 s.
pub(crate) const RTO_MAX_US: u64 = 120_000_000;
/// Timeout before the first sample (RFC 6298 2.1).
pub(crate) const RTO_INITIAL_US: u64 = 1_000_000;
/// Window of the minimum RTT filter (sysctl tcp_min_rtt_wlen).
const MIN_RTT_WINDOW_US: u64 = 300_000_000;

/// RTT estimator of RFC 6298 with Linux's changes: the variation is the largest mean deviation of each round
/// trip, and has a lower bound of its own instead of one for the whole timeout.
#[derive(Debug, Clone)]
pub(crate) struct RttEstimator {
    /// Eight times the smoothed RTT; 0 before the first sample.
    srtt_x8: u64,
    /// Four times the mean deviation.
    mdev_x4: u64,
    /// Largest `mdev_x4` of the current round trip.
    mdev_max_x4: u64,
    /// Four times the variation.
    rttvar_x4: u64,
    /// Segment whose acknowledgement ends the current round trip.
    round_end: u64,
    min_rtt: WindowedMin,
}

impl RttEstimator {
    pub(crate) fn new() -> Self {
        Self {
            srtt_x8: 0,
            mdev_x4: 0,
            mdev_max_x4: 0,
            rttvar_x4: 0,
            round_end: 0,
            min_rtt: WindowedMin::new(),
        }
    }

    /// Update the estimates with one sample (RFC 6298 2.2 and 2.3).
    pub(crate) fn sample(&mut self, rtt_us: u64, una: u64, nxt: u64) {
        let rtt_us = rtt_us.max(1);
        if self.srtt_x8 == 0 {
            self.srtt_x8 = rtt_us * 8;
            self.mdev_x4 = rtt_us * 2;
            self.rttvar_x4 = self.mdev_x4.max(RTO_MIN_US);
            self.mdev_max_x4 = self.rttvar_x4;
            self.round_end = nxt;
            return;
        }
        self.smooth(rtt_us as i64);
        // Within a round trip the variation only grows; at its end it decays by a quarter.
        if self.mdev_x4 > self.mdev_max_x4 {
            self.mdev_max_x4 = self.mdev_x4;
            self.rttvar_x4 = self.rttvar_x4.max(self.mdev_max_x4);
        }
        if una > self.round_end {
            if self.mdev_max_x4 < self.rttvar_x4 {
                self.rttvar_x4 -= (self.rttvar_x4 - self.mdev_max_x4) / 4;
            }
            self.round_end = nxt;
            self.mdev_max_x4 = RTO_MIN_US;
        }
    }

    /// Smooth with alpha = 1/8 and beta = 1/4; a sample far below the mean moves the deviation by only 1/32, so
    /// that a falling RTT does not raise the timeout.
    fn smooth(&mut self, rtt_us: i64) {
        let error = rtt_us - (self.srtt_x8 >> 3) as i64;
        self.srtt_x8 = self.srtt_x8.saturating_add_signed(error).max(1);
        let mean = (self.mdev_x4 >> 2) as i64;
        let mut change = error.abs() - mean;
        if error < 0 && change > 0 {
            change >>= 3;
        }
        self.mdev_x4 = self.mdev_x4.saturating_add_signed(change);
    }

    /// Update the windowed minimum. An ACK that may have been delayed cannot raise it.
    pub(crate) fn sample_min(&mut self, now_us: u64, rtt_us: u64, maybe_delayed: bool) {
        if !(maybe_delayed && self.min_rtt.get().is_some_and(|min| rtt_us > min)) {
            self.min_rtt.update(now_us, rtt_us.max(1), MIN_RTT_WINDOW_US);
        }
    }

    pub(crate) fn has_sample(&self) -> bool {
        self.srtt_x8 != 0
    }

    pub(crate) fn srtt_us(&self) -> u64 {
        self.srtt_x8 >> 3
    }

    pub(crate) fn srtt_x8(&self) -> u64 {
        self.srtt_x8
    }

    pub(crate) fn mdev_x4(&self) -> u64 {
        self.mdev_x4
    }

    pub(crate) fn mdev_max_x4(&self) -> u64 {
        self.mdev_max_x4
    }

    pub(crate) fn rttvar_x4(&self) -> u64 {
        self.rttvar_x4
    }

    /// Smallest RTT of the window; `u32::MAX` before the first sample, as in the kernel.
    pub(crate) fn min_rtt_us(&self) -> u64 {
        self.min_rtt.get().unwrap_or(u64::from(u32::MAX))
    }

    /// Timeout without back-off: srtt + max(200 ms, 4 * rttvar).
    pub(crate) fn rto_us(&self) -> u64 {
        if self.srtt_x8 == 0 {
            return RTO_INITIAL_US;
        }
        (self.srtt_us() + self.rttvar_x4.max(RTO_MIN_US)).min(RTO_MAX_US)
    }
}

/// Smallest value of a sliding time window, from its best three (Kathleen Nichols' algorithm,
/// lib/win_minmax.c).
#[derive(Debug, Clone)]
struct WindowedMin {
    /// Pairs of time and value: the best, the second best after it, and the third best after that.
    best: Option<[(u64, u64); 3]>,
}

impl WindowedMin {
    const fn new() -> Self {
        Self { best: None }
    }

    fn get(&self) -> Option<u64> {
        self.best.map(|best| best[0].1)
    }

    fn update(&mut self, now: u64, value: u64, window: u64) {
        let sample = (now, value);
        let Some(mut best) = self.best else {
            self.best = Some([sample; 3]);
            return;
        };
        if value <= best[0].1 || now - best[2].0 > window {
            self.best = Some([sample; 3]);
            return;
        }
        if value <= best[1].1 {
            best[1] = sample;
            best[2] = sample;
        } else if value <= best[2].1 {
            best[2] = sample;
        }
        self.best = Some(Self::age(best, sample, window));
    }

    /// Drop values older than the window, and refresh the runners-up a quarter and half way through it.
    fn age(mut best: [(u64, u64); 3], sample: (u64, u64), window: u64) -> [(u64, u64); 3] {
        let age = sample.0 - best[0].0;
        if age > window {
            best = [best[1], best[2], sample];
            if sample.0 - best[0].0 > window {
                best = [best[1], best[2], sample];
            }
        } else if best[1].0 == best[0].0 && age > window / 4 {
            best[1] = sample;
            best[2] = sample;
        } else if best[2].0 == best[1].0 && age > window / 2 {
            best[2] = sample;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::{RttEstimator, WindowedMin};

    #[test]
    fn a_steady_rtt_gives_srtt_plus_200_ms() {
        let mut rtt = RttEstimator::new();
        for round in 0..200 {
            rtt.sample(40_000, round, round + 1);
        }
        assert_eq!(rtt.srtt_us(), 40_000);
        assert_eq!(rtt.rto_us(), 240_000);
    }

    #[test]
    fn the_first_sample_sets_srtt_and_half_of_it_as_variation() {
        let mut rtt = RttEstimator::new();
        rtt.sample(600_000, 0, 1);
        // RFC 6298 2.2: RTO = R + 4 * R/2.
        assert_eq!(rtt.rto_us(), 1_800_000);
    }

    #[test]
    fn the_minimum_rises_when_the_window_has_passed() {
        let mut min = WindowedMin::new();
        min.update(0, 10, 100);
        for now in (1..200).step_by(10) {
            min.update(now, 20 + now % 7, 100);
        }
        assert!(min.get().is_some_and(|value| (20..27).contains(&value)), "{min:?}");
    }
}
