//! Level shifts: steps of the delay from one level to another, folded modulo the period.

use super::chance::above_chance;
use super::{Interrupted, MIN_MOMENTS, PhaseEstimate};

/// Length of each of the two windows, before and after a moment, whose delay levels are compared.
const SIDE_NS: i64 = 3_000_000_000;
/// Time after a moment that is left out of the comparison: during an outage, and while the queue
/// that it leaves drains, delays do not show the new level.
const TRANSIENT_NS: i64 = 125_000_000;
/// Minimum number of samples in each of the two windows.
const MIN_SAMPLES_PER_SIDE: usize = 5;
/// Spacing of the phases that are tried first, over the whole period.
const COARSE_STEP_NS: i64 = 100_000_000;
/// Spacing of the phases that are tried next, up to [`FINE_REACH_NS`] around the best coarse phase.
const FINE_STEP_NS: i64 = 10_000_000;
const FINE_REACH_NS: i64 = 1_000_000_000;
/// Relative difference from the best phase's score within which phases count as equally good; the
/// mean of such phases is the result.
const AS_GOOD: f64 = 0.05;
/// Lower bound of the ratio of the spread around two levels to the spread around one; without it a
/// few moments would dominate.
const LEAST_LEFT: f64 = 0.02;
/// Quantile of the gains at all moments above which a moment counts as showing a shift.
const SHOWN_ABOVE: f64 = 0.8;

/// Significance level of the mean gain: the share of logs without a grid in which a mean as high
/// arises by chance.
const CHANCE: f64 = 5e-4;
/// Significance level of the gains' ranks.
///
/// High gains are rare, so that a few of them may raise the mean more than a normal distribution allows. They
/// hardly raise the mean rank, which therefore must be significant too.
const RANK_CHANCE: f64 = 1e-2;
/// Significance level of the ranks if the period was searched for.
const SEARCHED_RANK_CHANCE: f64 = 5e-5;

/// Find the phase at which two levels explain the delays best.
///
/// `known` are times and delays in ns, in order of time; `tried` is the number of periods from which `period_ns` was
/// chosen, for the correction of the significance.
pub(super) fn find(
    known: &[(i64, u64)],
    period_ns: i64,
    tried: usize,
    interrupted: &Interrupted<'_>,
) -> Option<PhaseEstimate> {
    let levels = Levels { known, period_ns, interrupted };
    let coarse = levels.gains_at_phases((0..period_ns).step_by(COARSE_STEP_NS as usize));
    let enough = |(_, gains): &&(i64, Vec<f64>)| gains.len() >= MIN_MOMENTS;
    let (best_ns, _) =
        coarse.iter().filter(enough).max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)))?;
    let phase_ns = levels.middle_around(*best_ns)?;

    let mut anywhere: Vec<f64> =
        coarse.iter().flat_map(|(_, gains)| gains.iter().copied()).collect();
    anywhere.sort_by(f64::total_cmp);
    let shown = anywhere[(anywhere.len() as f64 * SHOWN_ABOVE) as usize];
    let gains = levels.gains_at(phase_ns);
    let hits = gains.iter().filter(|gain| **gain > shown).count();
    let confidence = above_chance(hits as f64 / gains.len() as f64, 1.0 - SHOWN_ABOVE);
    let deviations = Baseline::of(&anywhere).deviations(mean(&gains), gains.len());
    let by_chance = normal_tail(deviations) * (coarse.len() * tried) as f64;
    let rank_chance = if tried > 1 { SEARCHED_RANK_CHANCE } else { RANK_CHANCE };
    let is_certain = gains.len() >= MIN_MOMENTS
        && by_chance < CHANCE
        && rank_tail(&gains, &anywhere) < rank_chance;
    Some(PhaseEstimate { phase_ns: phase_ns.rem_euclid(period_ns), confidence, is_certain })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean and standard deviation of the gains at arbitrary moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Baseline {
    mean: f64,
    deviation: f64,
}

impl Baseline {
    pub(super) fn of(anywhere: &[f64]) -> Self {
        let mean = mean(anywhere);
        let variance = anywhere.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>();
        Self { mean, deviation: (variance / anywhere.len() as f64).sqrt() }
    }

    /// Number of standard deviations by which the mean `mean` of `count` gains exceeds the mean of
    /// as many gains at arbitrary moments.
    pub(super) fn deviations(self, mean: f64, count: usize) -> f64 {
        let deviation = self.deviation / (count as f64).sqrt();
        if deviation > 0.0 { (mean - self.mean) / deviation } else { 0.0 }
    }
}

/// Upper bound (Mills' ratio) of the probability that a normal variable exceeds its mean by `deviations`
/// standard deviations; 1 for zero or less.
fn normal_tail(deviations: f64) -> f64 {
    if deviations <= 0.0 {
        return 1.0;
    }
    let density = (-deviations * deviations / 2.0).exp() / std::f64::consts::TAU.sqrt();
    (density / deviations).min(1.0)
}

/// Probability that the mean rank of `gains` among the gains `anywhere` is as high by chance.
fn rank_tail(gains: &[f64], anywhere: &[f64]) -> f64 {
    let rank = |gain: &f64| {
        let below = anywhere.partition_point(|other| other < gain);
        let up_to = anywhere.partition_point(|other| other <= gain);
        (below + up_to) as f64 / (2 * anywhere.len()) as f64
    };
    let mean = gains.iter().map(rank).sum::<f64>() / gains.len() as f64;
    // Standard deviation of a mean of ranks, which are uniform from 0 to 1.
    let deviation = (12.0 * gains.len() as f64).sqrt().recip();
    normal_tail((mean - 0.5) / deviation)
}

/// Delays (time and delay, ns), folded modulo a period.
struct Levels<'s> {
    known: &'s [(i64, u64)],
    period_ns: i64,
    interrupted: &'s Interrupted<'s>,
}

impl Levels<'_> {
    fn gains_at_phases(&self, phases_ns: impl Iterator<Item = i64>) -> Vec<(i64, Vec<f64>)> {
        let phases_ns = phases_ns.take_while(|_| !(self.interrupted)());
        phases_ns.map(|phase_ns| (phase_ns, self.gains_at(phase_ns))).collect()
    }

    /// Gains at the moments of a phase that have samples on both sides.
    fn gains_at(&self, phase_ns: i64) -> Vec<f64> {
        let (Some((first, _)), Some((last, _))) = (self.known.first(), self.known.last()) else {
            return Vec::new();
        };
        let ahead_ns = (phase_ns - first.rem_euclid(self.period_ns)).rem_euclid(self.period_ns);
        let start = first.saturating_add(ahead_ns);
        gains_from(self.known, start, *last, self.period_ns).map(|(_, gain)| gain).collect()
    }

    /// Mean of the phases around `coarse_ns` that are about as good (see [`AS_GOOD`]) as the best
    /// one around it.
    fn middle_around(&self, coarse_ns: i64) -> Option<i64> {
        let around = (coarse_ns - FINE_REACH_NS)..=(coarse_ns + FINE_REACH_NS);
        let mut fine = self.gains_at_phases(around.step_by(FINE_STEP_NS as usize));
        fine.iter_mut().flat_map(|(_, gains)| gains).for_each(|gain| *gain = likelihood(*gain));
        fine.retain(|(_, gains)| gains.len() >= MIN_MOMENTS);
        let best = fine.iter().map(|(_, gains)| mean(gains)).fold(0.0, f64::max);
        fine.retain(|(_, gains)| mean(gains) >= best * (1.0 - AS_GOOD));
        let sum: i64 = fine.iter().map(|(phase_ns, _)| *phase_ns).sum();
        sum.checked_div(fine.len() as i64)
    }
}

/// Iterate over the gains at moments `step_ns` apart from `start_ns` to `last_ns`, each with its moment's index.
///
/// Moments without samples are skipped in one step, so that a gap of years, such as a wrong clock
/// causes, takes no time.
fn gains_from(
    known: &[(i64, u64)],
    start_ns: i64,
    last_ns: i64,
    step_ns: i64,
) -> impl Iterator<Item = (usize, f64)> {
    let mut index = 0_i64;
    std::iter::from_fn(move || {
        loop {
            let moment = start_ns.checked_add(index.checked_mul(step_ns)?)?;
            if moment > last_ns {
                return None;
            }
            let next = known.partition_point(|(at, _)| *at < moment.saturating_sub(SIDE_NS));
            let ahead_ns = known.get(next)?.0.saturating_sub(SIDE_NS).saturating_sub(moment);
            let here = index;
            index += (ahead_ns.max(1) - 1) / step_ns + 1;
            if let Some(gain) = gain(known, moment) {
                return Some((here as usize, gain));
            }
        }
    })
}

/// Gains at all moments [`COARSE_STEP_NS`] apart, from which many periods can be evaluated.
pub(super) struct GainCurve {
    /// Gains with the indexes of their moments, in order of time.
    gains: Vec<(usize, f64)>,
}

impl GainCurve {
    pub(super) fn of(known: &[(i64, u64)], interrupted: &Interrupted<'_>) -> Option<Self> {
        let (first_ns, last_ns) = (known.first()?.0, known.last()?.0);
        let gains = gains_from(known, first_ns, last_ns, COARSE_STEP_NS);
        Some(Self { gains: gains.take_while(|_| !interrupted()).collect() })
    }

    pub(super) fn baseline(&self) -> Option<Baseline> {
        let known: Vec<f64> = self.gains.iter().map(|(_, gain)| *gain).collect();
        (!known.is_empty()).then(|| Baseline::of(&known))
    }

    /// Number of standard deviations by which the gains at the period's best phase exceed the baseline. The period is
    /// a multiple of [`COARSE_STEP_NS`].
    pub(super) fn most_deviations(&self, baseline: Baseline, period_ns: i64) -> Option<f64> {
        let steps = (period_ns / COARSE_STEP_NS) as usize;
        let mut phases = vec![(0.0, 0_usize); steps];
        for (index, gain) in &self.gains {
            let (sum, count) = &mut phases[index % steps];
            (*sum, *count) = (*sum + gain, *count + 1);
        }
        let enough = phases.iter().filter(|(_, count)| *count >= MIN_MOMENTS);
        enough
            .map(|(sum, count)| baseline.deviations(sum / *count as f64, *count))
            .max_by(f64::total_cmp)
    }
}

/// Gain at a moment: the share by which the spread around two levels is less than that around one
/// level, 0 (equal) to 1 (no spread left).
fn gain(known: &[(i64, u64)], moment: i64) -> Option<f64> {
    let between = |from: i64, to: i64| -> Vec<u64> {
        let place = |ns: i64| known.partition_point(|(at, _)| *at < ns);
        known[place(from)..place(to)].iter().map(|(_, delay)| *delay).collect()
    };
    let mut before = between(moment.saturating_sub(SIDE_NS), moment);
    let mut after = between(moment.saturating_add(TRANSIENT_NS), moment.saturating_add(SIDE_NS));
    if before.len().min(after.len()) < MIN_SAMPLES_PER_SIDE {
        return None;
    }
    let mut both = [before.as_slice(), after.as_slice()].concat();
    let (one, two) = (spread(&mut both), spread(&mut before) + spread(&mut after));
    Some(if one == 0 { 0.0 } else { 1.0 - two as f64 / one as f64 })
}

/// Log-likelihood ratio per sample of two levels against one, for Laplacian distances from a level.
///
/// Compared with the gain, the ratio gives more weight to cleanly separated levels, which locate
/// the moment best.
fn likelihood(gain: f64) -> f64 {
    -(1.0 - gain).max(LEAST_LEFT).ln()
}

/// Spread of the delays: the sum of their distances from the median, on which short queueing spikes
/// have little influence.
fn spread(delays: &mut [u64]) -> u64 {
    let middle = delays.len() / 2;
    let (_, median, _) = delays.select_nth_unstable(middle);
    let median = *median;
    delays.iter().map(|delay| delay.abs_diff(median)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of 30 s from each start on with ten samples per second: time and delay, ns.
    fn bursts(starts_s: &[i64]) -> Vec<(i64, u64)> {
        let burst = |start_s: &i64| {
            let start_ns = start_s * 1_000_000_000;
            (0..300_i64).map(move |n| (start_ns + n * 100_000_000, (n / 70 * 9 + n % 3) as u64))
        };
        starts_s.iter().flat_map(burst).collect()
    }

    #[test]
    fn moments_without_samples_are_stepped_over_and_no_others() {
        let known = bursts(&[0, 200, 203, 1000]);
        for (start, step) in [(0, COARSE_STEP_NS), (7_300_000_000, 5_000_000_000), (3, 999_999_937)]
        {
            let last = known.last().unwrap().0;
            let each = (start..=last).step_by(step as usize).enumerate();
            let plain: Vec<(usize, f64)> =
                each.filter_map(|(index, moment)| Some((index, gain(&known, moment)?))).collect();
            assert!(plain.len() > 5);
            assert_eq!(gains_from(&known, start, last, step).collect::<Vec<_>>(), plain);
        }
    }

    #[test]
    fn the_tail_of_a_normal_variable_is_bounded_closely() {
        assert!((normal_tail(4.5) / 3.4e-6 - 1.0).abs() < 0.06);
        assert!((normal_tail(6.0) / 9.87e-10 - 1.0).abs() < 0.04);
        assert_eq!((normal_tail(0.0), normal_tail(-3.0)), (1.0, 1.0));
    }
}
