//! Gaps between arrivals, folded modulo the period: Algorithm 1 of SatPipe.

use super::chance::{CHANCE, above_chance, at_least};
use super::traffic::{Gap, Traffic};
use super::{MIN_MOMENTS, PhaseEstimate};

/// Width of the histogram's bins (SatPipe: 1 ms).
const FINE_NS: i64 = 1_000_000;
/// Number of gaps used per period of the log, the largest ones: with this number, random gaps cover a few per cent
/// of all phases.
const GAPS_PER_PERIOD: usize = 2;
/// Minimum count of a bin that belongs to the peak, as a share of the highest count.
const AS_GOOD: f64 = 0.8;
/// Time after an outage in which its losses may still be retransmitted, including a retransmission
/// timeout, in bins (ms).
const AFTERMATH_BINS: usize = 1000;

/// Find the first phase of the peak, which consists of the phases that most of the largest gaps cover.
/// `tried` is the number of periods that are tried.
pub(super) fn find(traffic: &Traffic, period_ns: i64, tried: usize) -> Option<PhaseEstimate> {
    let peak = Peak::of(traffic.span_ns()?, &by_size(traffic), period_ns)?;
    let share = peak.hits as f64 / peak.periods as f64;
    Some(PhaseEstimate {
        phase_ns: peak.phase_ns,
        confidence: above_chance(share, peak.chance),
        is_certain: peak.by_chance() * (tried as f64) < CHANCE,
    })
}

/// Gaps sorted by size, the largest first, then by time.
pub(super) fn by_size(traffic: &Traffic) -> Vec<Gap> {
    let mut gaps = traffic.gaps();
    gaps.sort_by_key(|gap| (-gap.length_ns(), gap.start_ns));
    gaps
}

/// Peak of the histogram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peak {
    phase_ns: i64,
    /// Number of gaps that cover the peak.
    hits: usize,
    periods: usize,
    /// Probability that a gap covers a given phase in one period.
    chance: f64,
    /// Number of independent phases: the period divided by the mean gap.
    phases: f64,
}

impl Peak {
    /// Find the peak of `gaps`, which are sorted by size and lie within `span_ns`; `None` for too few periods or no
    /// gaps.
    pub(super) fn of(span_ns: (i64, i64), gaps: &[Gap], period_ns: i64) -> Option<Self> {
        let periods = usize::try_from(span_ns.1.saturating_sub(span_ns.0) / period_ns).ok()?;
        let gaps = &gaps[..gaps.len().min(periods.saturating_mul(GAPS_PER_PERIOD))];
        if periods < MIN_MOMENTS || gaps.is_empty() {
            return None;
        }
        let counts = histogram(gaps, period_ns);
        let most = *counts.iter().max()?;
        let phase = first_of_peak(&counts)?;
        let covered: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let mean_ns = gaps.iter().map(|gap| gap.length_ns()).sum::<i64>() / gaps.len() as i64;
        Some(Self {
            phase_ns: phase as i64 * FINE_NS,
            hits: (most as usize).min(periods),
            periods,
            chance: (covered as f64 / (counts.len() * periods) as f64).min(1.0),
            phases: period_ns as f64 / mean_ns.max(FINE_NS) as f64,
        })
    }

    /// Probability that, without a grid, a peak as high arises at some phase.
    pub(super) fn by_chance(&self) -> f64 {
        at_least(self.hits, self.periods, self.chance) * self.phases
    }
}

/// Count the gaps that cover each millisecond of the period. Of two adjacent gaps, such as during loss recovery, only
/// one covers the millisecond between them.
fn histogram(gaps: &[Gap], period_ns: i64) -> Vec<u32> {
    let bins = (period_ns / FINE_NS).max(1) as usize;
    let mut counts = vec![0_u32; bins];
    let mut by_time = gaps.to_vec();
    by_time.sort_by_key(|gap| gap.start_ns);
    let mut covered_until = i64::MIN;
    for gap in by_time {
        let ms = |ns: i64| ns.div_euclid(FINE_NS);
        for covered in ms(gap.start_ns).max(covered_until)..=ms(gap.end_ns) {
            let covered_ns = i128::from(covered) * i128::from(FINE_NS);
            let phase = covered_ns.rem_euclid(period_ns.into()) / i128::from(FINE_NS);
            counts[phase as usize % bins] += 1;
        }
        covered_until = ms(gap.end_ns) + 1;
    }
    counts
}

/// Return the bin in which the peak begins; it may extend over the end of the period.
///
/// A single gap that is slightly earlier or later does not move the beginning. Loss recovery after a handover
/// causes gaps that may agree as well as those over the outage itself; the first such bin is used.
fn first_of_peak(counts: &[u32]) -> Option<usize> {
    let bins = counts.len();
    let most = *counts.iter().max()?;
    let peak = counts.iter().position(|count| *count == most)?;
    let least = (f64::from(most) * AS_GOOD).ceil() as u32;
    let aftermath = AFTERMATH_BINS.min(bins / 4);
    let mut back = 0;
    for step in 1..bins {
        if counts[(peak + bins - step) % bins] >= least {
            back = step;
        } else if step - back > aftermath {
            return Some((peak + bins - back) % bins);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Histogram of 1000 bins with a count of 1, except for the given ranges.
    fn counts(given: &[(std::ops::Range<usize>, u32)]) -> Vec<u32> {
        let mut counts = vec![1; 1000];
        for (bins, count) in given {
            counts[bins.clone()].fill(*count);
        }
        counts
    }

    #[test]
    fn a_peak_may_go_over_the_end_of_the_fold() {
        assert_eq!(first_of_peak(&counts(&[(0..20, 9), (990..1000, 9)])), Some(990));
        assert_eq!(first_of_peak(&[2; 100]), None);
    }

    #[test]
    fn one_gap_more_in_the_middle_does_not_move_the_beginning() {
        let gaps = [(499..500, 4), (500..560, 9), (530..535, 10)];
        assert_eq!(first_of_peak(&counts(&gaps)), Some(500));
    }

    #[test]
    fn the_aftermath_of_an_outage_is_not_the_outage() {
        let gaps = [(300..350, 9), (420..700, 10), (10..20, 8)];
        assert_eq!(first_of_peak(&counts(&gaps)), Some(300));
    }

    #[test]
    fn gaps_that_touch_count_once() {
        let gap = |start_ms: i64, end_ms: i64| Gap {
            start_ns: start_ms * FINE_NS,
            end_ns: end_ms * FINE_NS,
        };
        let counts = histogram(&[gap(3, 5), gap(1, 3), gap(12, 14)], 10 * FINE_NS);
        assert_eq!(counts, [0, 1, 2, 2, 2, 1, 0, 0, 0, 0]);
    }
}
