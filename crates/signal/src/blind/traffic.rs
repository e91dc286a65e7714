//! Samples of traffic, reduced to the data that estimates need.

use std::collections::VecDeque;

use skyhop_units::{Duration, UtcInstant};

use super::{Estimate, Evidence, Interrupted, Period, Sample, levels, period, spacing};
use crate::schedule::HandoverGrid;

/// Samples of a log, or of the last minutes of live traffic.
///
/// For each second the two largest gaps are kept, because at most one handover fits into a second, and one delay
/// per 10 ms. So ten minutes of traffic take about a megabyte, whatever its rate.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    seconds: VecDeque<Second>,
    last: Option<UtcInstant>,
}

/// Samples of one second.
#[derive(Debug, Clone, Default)]
struct Second {
    /// Index of the second, counted from 1970-01-01.
    number: i64,
    samples: usize,
    /// Arrival time of the first sample, ns.
    first_ns: i64,
    /// Largest gaps that ended in the second, the largest first.
    gaps: [Option<Gap>; 2],
    /// Arrival times and delays, ns.
    delays: Vec<(i64, u64)>,
    shortest_delay: Option<Duration>,
}

/// Gap between two consecutive arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

impl Gap {
    pub(super) fn length_ns(self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

const SECOND_NS: i64 = 1_000_000_000;
/// Length of the intervals of which one delay each is kept, ns.
const DELAY_EVERY_NS: i64 = 10_000_000;
/// Longest gap that a handover can cause, ns; a longer one is a pause of the sender.
const LONGEST_GAP_NS: i64 = 1_000_000_000;

impl Traffic {
    /// Record an arrival. A sample slightly older than the last one is ignored. A sample older than the last
    /// one by more than [`LONGEST_GAP_NS`] means that the clock was set back; all earlier samples are then
    /// dropped.
    pub fn push(&mut self, sample: Sample) {
        let at_ns = sample.at.unix_nanos();
        if let Some(last) = self.last {
            let back_ns = last.unix_nanos().saturating_sub(at_ns);
            if back_ns > LONGEST_GAP_NS {
                *self = Self::default();
            } else if back_ns > 0 {
                return;
            }
        }
        let gap = self.last.map(|last| Gap { start_ns: last.unix_nanos(), end_ns: at_ns });
        self.last = Some(sample.at);
        let second = self.second(at_ns);
        second.samples += 1;
        if let Some(gap) = gap.filter(|gap| (1..=LONGEST_GAP_NS).contains(&gap.length_ns())) {
            second.add_gap(gap);
        }
        if let Some(delay) = sample.delay {
            second.add_delay(at_ns, delay);
        }
    }

    /// Remove the samples of all seconds before `before`.
    pub fn forget(&mut self, before: UtcInstant) {
        let number = before.unix_nanos().div_euclid(SECOND_NS);
        while self.seconds.front().is_some_and(|second| second.number < number) {
            self.seconds.pop_front();
        }
    }

    /// Estimate the grid from the recorded samples.
    pub fn estimate(&self, period: Period) -> Estimate {
        self.estimate_unless(period, &|| false)
    }

    /// Estimate the grid as [`Traffic::estimate`] does; once `interrupted` returns true, the search ends soon, and its
    /// result has no meaning.
    pub fn estimate_unless(&self, period: Period, interrupted: &Interrupted<'_>) -> Estimate {
        let samples = self.samples();
        let found = match period {
            Period::Known(period) => self.estimate_period(period, 1, interrupted),
            Period::Searched => match period::clearest(self, interrupted) {
                Some((period, tried)) => self.estimate_period(period, tried, interrupted),
                None => return Estimate::nothing(samples),
            },
        };
        Estimate { samples, ..found }
    }

    /// Number of samples recorded in the seconds that are kept.
    pub fn samples(&self) -> usize {
        self.seconds.iter().map(|second| second.samples).sum()
    }

    /// Shortest delay of all samples; `None` if no sample has a delay.
    pub fn shortest_delay(&self) -> Option<Duration> {
        self.seconds.iter().filter_map(|second| second.shortest_delay).min()
    }

    /// Estimate the grid for one period, which was chosen from `tried` periods.
    fn estimate_period(
        &self,
        period: Duration,
        tried: usize,
        interrupted: &Interrupted<'_>,
    ) -> Estimate {
        let period_ns = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1);
        // The work grows with the period: a period without a sample in most of its seconds has no grid.
        if period_ns / SECOND_NS > self.seconds.len() as i64 {
            return Estimate::nothing(0);
        }
        let spacing = spacing::find(self, period_ns, tried);
        // Gaps locate a handover to the millisecond, levels only to some ten milliseconds.
        let (found, evidence) = match spacing {
            Some(found) if found.is_certain => (Some(found), Evidence::Spacing),
            _ => {
                (levels::find(&self.delays(), period_ns, tried, interrupted), Evidence::LevelShifts)
            }
        };
        let certain = found.filter(|found| found.is_certain);
        let grid = certain.map(|found| HandoverGrid {
            period,
            offset: Duration::from_nanos(found.phase_ns.unsigned_abs()),
        });
        let confidence = found.map_or(0.0, |found| found.confidence);
        Estimate { grid, evidence, confidence, samples: 0 }
    }

    /// Times of the first and the last arrival, ns.
    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        Some((self.seconds.front()?.first_ns, self.last?.unix_nanos()))
    }

    /// Gaps in order of time.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        self.seconds.iter().flat_map(|second| second.gaps).flatten().collect()
    }

    /// Arrival times and delays, ns, in order of time.
    pub(super) fn delays(&self) -> Vec<(i64, u64)> {
        self.seconds.iter().flat_map(|second| second.delays.iter().copied()).collect()
    }

    fn second(&mut self, at_ns: i64) -> &mut Second {
        let number = at_ns.div_euclid(SECOND_NS);
        if self.seconds.back().is_none_or(|last| last.number != number) {
            self.seconds.push_back(Second { number, first_ns: at_ns, ..Second::default() });
        }
        self.seconds.back_mut().expect("the second has been pushed above if it was missing")
    }
}

impl Second {
    fn add_gap(&mut self, gap: Gap) {
        let is_larger =
            |other: &Option<Gap>| other.is_none_or(|other| gap.length_ns() > other.length_ns());
        if is_larger(&self.gaps[0]) {
            self.gaps = [Some(gap), self.gaps[0]];
        } else if is_larger(&self.gaps[1]) {
            self.gaps[1] = Some(gap);
        }
    }

    fn add_delay(&mut self, at_ns: i64, delay: Duration) {
        self.shortest_delay = Some(self.shortest_delay.map_or(delay, |least| least.min(delay)));
        let cell = |ns: i64| ns.div_euclid(DELAY_EVERY_NS);
        if self.delays.last().is_none_or(|(last_ns, _)| cell(*last_ns) != cell(at_ns)) {
            self.delays.push((at_ns, delay.as_nanos()));
        }
    }
}

impl Estimate {
    pub(super) fn nothing(samples: usize) -> Self {
        Self { grid: None, evidence: Evidence::LevelShifts, confidence: 0.0, samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: i64) -> Sample {
        let delay = Some(Duration::from_millis(ms.unsigned_abs() % 7 + 20));
        Sample { at: UtcInstant::from_unix_nanos(ms * 1_000_000), delay }
    }

    #[test]
    fn the_largest_gaps_of_every_second_and_a_delay_of_every_10_ms_are_kept() {
        let mut traffic = Traffic::default();
        for ms in [0, 1, 2, 50, 53, 100, 101, 900, 1100, 1100, 1103, 1109, 4000] {
            traffic.push(at_ms(ms));
        }
        let gaps: Vec<i64> = traffic.gaps().iter().map(|gap| gap.length_ns() / 1_000_000).collect();
        // The gap of 47 ms before 100 is the third largest, 2.9 s is a pause, and equal times have no gap.
        assert_eq!(gaps, [799, 48, 200, 6]);
        let kept: Vec<i64> = traffic.delays().iter().map(|(at, _)| at / 1_000_000).collect();
        assert_eq!(kept, [0, 50, 100, 900, 1100, 4000]);
        assert_eq!(traffic.samples(), 13);
        assert_eq!(traffic.shortest_delay(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut traffic = Traffic::default();
        (0..100).for_each(|tenth| traffic.push(at_ms(tenth * 100)));
        traffic.forget(UtcInstant::from_unix_nanos(8_000_000_000));
        assert_eq!(
            (traffic.samples(), traffic.span_ns()),
            (20, Some((8_000_000_000, 9_900_000_000)))
        );
    }

    #[test]
    fn late_samples_are_left_out_and_a_clock_that_was_set_back_begins_anew() {
        let mut traffic = Traffic::default();
        for ms in [5000, 5010, 5005, 5020] {
            traffic.push(at_ms(ms));
        }
        assert_eq!(traffic.samples(), 3);
        traffic.push(at_ms(100));
        assert_eq!((traffic.samples(), traffic.span_ns()), (1, Some((100_000_000, 100_000_000))));
    }
}
