//! What traffic has shown: of dense samples only what estimates need is kept.

use std::collections::VecDeque;

use skyhop_units::{Duration, UtcInstant};

use super::{Estimate, Evidence, Period, Sample, levels, period, spacing};
use crate::schedule::Grid;

/// A log's worth of samples, or the last minutes of a stream that does not end.
///
/// Of each second the two largest gaps are kept, as more than one handover does not fit, and of every 10 ms
/// one delay, so that ten minutes of any traffic take about a megabyte.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    seconds: VecDeque<Second>,
    last: Option<UtcInstant>,
}

/// What the samples of one second show.
#[derive(Debug, Clone, Default)]
struct Second {
    /// Counted from 1970.
    number: i64,
    samples: usize,
    /// When the first of them arrived.
    first_ns: i64,
    /// The largest gaps that ended in it, the largest first.
    gaps: [Option<Gap>; 2],
    /// Moments and delays in ns.
    delays: Vec<(i64, u64)>,
    shortest_delay: Option<Duration>,
}

/// The time between two arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

impl Gap {
    pub(super) fn length_ns(self) -> i64 {
        self.end_ns - self.start_ns
    }
}

const SECOND_NS: i64 = 1_000_000_000;
/// Of so many ns one delay is kept.
const DELAY_EVERY_NS: i64 = 10_000_000;
/// A gap longer than this is no handover: somebody paused.
const LONGEST_GAP_NS: i64 = 1_000_000_000;

impl Traffic {
    /// Notes an arrival. One that is older than the last is left out; one that is much older means that the
    /// clock was set, and everything begins anew.
    pub fn push(&mut self, sample: Sample) {
        let at_ns = sample.at.unix_nanos();
        if let Some(last) = self.last {
            let back_ns = last.unix_nanos() - at_ns;
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
            second.note_gap(gap);
        }
        if let Some(delay) = sample.delay {
            second.note_delay(at_ns, delay);
        }
    }

    /// Forgets what is older than `before`.
    pub fn forget(&mut self, before: UtcInstant) {
        let number = before.unix_nanos().div_euclid(SECOND_NS);
        while self.seconds.front().is_some_and(|second| second.number < number) {
            self.seconds.pop_front();
        }
    }

    /// Looks for handovers in what is kept.
    pub fn estimate(&self, wanted: Period) -> Estimate {
        let samples = self.samples();
        let found = match wanted {
            Period::Known(period) => self.look(period, 1),
            Period::Searched => match period::clearest(self) {
                Some((period, tried)) => self.look(period, tried),
                None => return Estimate::nothing(samples),
            },
        };
        Estimate { samples, ..found }
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.seconds.iter().map(|second| second.samples).sum()
    }

    /// The shortest of the delays.
    pub fn shortest_delay(&self) -> Option<Duration> {
        self.seconds.iter().filter_map(|second| second.shortest_delay).min()
    }

    /// Looks at one period, as good as chosen from `tried`.
    fn look(&self, period: Duration, tried: usize) -> Estimate {
        let period_ns = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1);
        let spacing = spacing::find(self, period_ns, tried);
        // Gaps tell the moment to the millisecond, levels to some ten.
        let (found, evidence) = match spacing {
            Some(found) if found.is_certain => (Some(found), Evidence::Spacing),
            _ => (levels::find(&self.delays(), period_ns, tried), Evidence::LevelShifts),
        };
        let certain = found.filter(|found| found.is_certain);
        let grid = certain.map(|found| Grid {
            period,
            offset: Duration::from_nanos(found.phase_ns.unsigned_abs()),
        });
        let confidence = found.map_or(0.0, |found| found.confidence);
        Estimate { grid, evidence, confidence, samples: 0 }
    }

    /// The first and the last arrival, ns.
    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        Some((self.seconds.front()?.first_ns, self.last?.unix_nanos()))
    }

    /// The gaps, by time.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        self.seconds.iter().flat_map(|second| second.gaps).flatten().collect()
    }

    /// Moments and delays in ns, by time.
    pub(super) fn delays(&self) -> Vec<(i64, u64)> {
        self.seconds.iter().flat_map(|second| second.delays.iter().copied()).collect()
    }

    fn second(&mut self, at_ns: i64) -> &mut Second {
        let number = at_ns.div_euclid(SECOND_NS);
        if self.seconds.back().is_none_or(|last| last.number != number) {
            self.seconds.push_back(Second { number, first_ns: at_ns, ..Second::default() });
        }
        self.seconds.back_mut().expect("it was pushed, where it was not there")
    }
}

impl Second {
    fn note_gap(&mut self, gap: Gap) {
        let is_larger =
            |other: &Option<Gap>| other.is_none_or(|other| gap.length_ns() > other.length_ns());
        if is_larger(&self.gaps[0]) {
            self.gaps = [Some(gap), self.gaps[0]];
        } else if is_larger(&self.gaps[1]) {
            self.gaps[1] = Some(gap);
        }
    }

    fn note_delay(&mut self, at_ns: i64, delay: Duration) {
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
        // That of 48 ms is smaller, that of 2.9 s is a pause, and there is none between equals.
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
