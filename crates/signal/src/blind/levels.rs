//! Steps of the delay from one level to another, folded modulo the period.

use super::chance::less_chance;
use super::{FEWEST_MOMENTS, Found};

/// How far to both sides of a moment levels are compared.
const BESIDE_NS: i64 = 3_000_000_000;
/// What follows a moment tells nothing of levels: packets of the outage, and of the queue it left.
const TRANSIENT_NS: i64 = 125_000_000;
/// Samples without which one side has no level.
const FEWEST_BESIDE: usize = 5;
/// The distance of the phases that are tried first, and then around the best.
const COARSE_STEP_NS: i64 = 100_000_000;
const FINE_STEP_NS: i64 = 10_000_000;
const FINE_REACH_NS: i64 = 1_000_000_000;
/// Phases nearer to the best than this share of it are as good, and their middle is meant.
const AS_GOOD: f64 = 0.05;
/// Two levels leave this share of one's spread at least, or a few moments would count for all.
const LEAST_LEFT: f64 = 0.02;
/// A moment shows a shift where two levels explain more than at this share of all moments.
const SHOWN_ABOVE: f64 = 0.8;

/// Levels whose mean gain exceeds the usual as much turn up by chance in this share of all logs.
const CHANCE: f64 = 5e-4;
/// Few gains are high, so that a few of them may lift a mean further than a normal variable's. Their ranks,
/// which these cannot lift, must be as high by chance in this share of all logs at most, and with a period
/// that was searched for in that one.
const RANK_CHANCE: f64 = 1e-2;
const SEARCHED_RANK_CHANCE: f64 = 5e-5;

/// The phase at which two levels explain the delays best. `known`: moments and delays in ns, by time;
/// `tried` periods had the same opportunity.
pub(super) fn find(known: &[(i64, u64)], period_ns: i64, tried: usize) -> Option<Found> {
    let levels = Levels { known, period_ns };
    let coarse = levels.gains_at_phases((0..period_ns).step_by(COARSE_STEP_NS as usize));
    let enough = |(_, gains): &&(i64, Vec<f64>)| gains.len() >= FEWEST_MOMENTS;
    let (best_ns, _) =
        coarse.iter().filter(enough).max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)))?;
    let phase_ns = levels.middle_around(*best_ns)?;

    let mut anywhere: Vec<f64> =
        coarse.iter().flat_map(|(_, gains)| gains.iter().copied()).collect();
    anywhere.sort_by(f64::total_cmp);
    let shown = anywhere[(anywhere.len() as f64 * SHOWN_ABOVE) as usize];
    let gains = levels.gains_at(phase_ns);
    let hits = gains.iter().filter(|gain| **gain > shown).count();
    let confidence = less_chance(hits as f64 / gains.len() as f64, 1.0 - SHOWN_ABOVE);
    let deviations = Usual::of(&anywhere).deviations(mean(&gains), gains.len());
    let by_chance = normal_tail(deviations) * (coarse.len() * tried) as f64;
    let rank_chance = if tried > 1 { SEARCHED_RANK_CHANCE } else { RANK_CHANCE };
    let is_certain = gains.len() >= FEWEST_MOMENTS
        && by_chance < CHANCE
        && rank_tail(&gains, &anywhere) < rank_chance;
    Some(Found { phase_ns: phase_ns.rem_euclid(period_ns), confidence, is_certain })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What gains are like at moments that mean nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    mean: f64,
    deviation: f64,
}

impl Usual {
    pub(super) fn of(anywhere: &[f64]) -> Self {
        let mean = mean(anywhere);
        let variance = anywhere.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>();
        Self { mean, deviation: (variance / anywhere.len() as f64).sqrt() }
    }

    /// How many standard deviations the mean of `count` gains exceeds that of as many from anywhere.
    pub(super) fn deviations(self, mean: f64, count: usize) -> f64 {
        let deviation = self.deviation / (count as f64).sqrt();
        if deviation > 0.0 { (mean - self.mean) / deviation } else { 0.0 }
    }
}

/// How likely a normal variable exceeds its mean by so many deviations, or a bit more than that: the bound
/// by Mills' ratio. 1 where it does not exceed it.
fn normal_tail(deviations: f64) -> f64 {
    if deviations <= 0.0 {
        return 1.0;
    }
    let density = (-deviations * deviations / 2.0).exp() / std::f64::consts::TAU.sqrt();
    (density / deviations).min(1.0)
}

/// How likely `gains` rank as high among all by chance.
fn rank_tail(gains: &[f64], anywhere: &[f64]) -> f64 {
    let rank = |gain: &f64| {
        let below = anywhere.partition_point(|other| other < gain);
        let up_to = anywhere.partition_point(|other| other <= gain);
        (below + up_to) as f64 / (2 * anywhere.len()) as f64
    };
    let mean = gains.iter().map(rank).sum::<f64>() / gains.len() as f64;
    // The deviation of a mean of ranks, which are uniform from 0 to 1.
    let deviation = (12.0 * gains.len() as f64).sqrt().recip();
    normal_tail((mean - 0.5) / deviation)
}

struct Levels<'s> {
    known: &'s [(i64, u64)],
    period_ns: i64,
}

impl Levels<'_> {
    fn gains_at_phases(&self, phases_ns: impl Iterator<Item = i64>) -> Vec<(i64, Vec<f64>)> {
        phases_ns.map(|phase_ns| (phase_ns, self.gains_at(phase_ns))).collect()
    }

    /// What two levels explain at each of the phase's moments that has samples on both sides.
    fn gains_at(&self, phase_ns: i64) -> Vec<f64> {
        let (Some((first, _)), Some((last, _))) = (self.known.first(), self.known.last()) else {
            return Vec::new();
        };
        let start = first + (phase_ns - first).rem_euclid(self.period_ns);
        gains_from(self.known, start, *last, self.period_ns).map(|(_, gain)| gain).collect()
    }

    /// The middle of the phases around `coarse_ns` that are as good as the best of them.
    fn middle_around(&self, coarse_ns: i64) -> Option<i64> {
        let around = (coarse_ns - FINE_REACH_NS)..=(coarse_ns + FINE_REACH_NS);
        let mut fine = self.gains_at_phases(around.step_by(FINE_STEP_NS as usize));
        fine.iter_mut().flat_map(|(_, gains)| gains).for_each(|gain| *gain = likelihood(*gain));
        fine.retain(|(_, gains)| gains.len() >= FEWEST_MOMENTS);
        let best = fine.iter().map(|(_, gains)| mean(gains)).fold(0.0, f64::max);
        fine.retain(|(_, gains)| mean(gains) >= best * (1.0 - AS_GOOD));
        let sum: i64 = fine.iter().map(|(phase_ns, _)| *phase_ns).sum();
        sum.checked_div(fine.len() as i64)
    }
}

/// The gains at the moments `step_ns` apart from `start_ns` to `last_ns`, each with its moment's index. Moments
/// without samples are stepped over, so that a pause of years, as a wrong clock makes it, takes no time.
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
            let next = known.partition_point(|(at, _)| *at < moment - BESIDE_NS);
            let ahead_ns = known.get(next)?.0.saturating_sub(BESIDE_NS).saturating_sub(moment);
            let here = index;
            index += (ahead_ns.max(1) - 1) / step_ns + 1;
            if let Some(gain) = gain(known, moment) {
                return Some((here as usize, gain));
            }
        }
    })
}

/// The gains at all moments [`COARSE_STEP_NS`] apart, for looking at many periods.
pub(super) struct GainCurve {
    /// Each with its moment's index, by time.
    gains: Vec<(usize, f64)>,
}

impl GainCurve {
    pub(super) fn of(known: &[(i64, u64)]) -> Option<Self> {
        let (first_ns, last_ns) = (known.first()?.0, known.last()?.0);
        Some(Self { gains: gains_from(known, first_ns, last_ns, COARSE_STEP_NS).collect() })
    }

    pub(super) fn usual(&self) -> Option<Usual> {
        let known: Vec<f64> = self.gains.iter().map(|(_, gain)| *gain).collect();
        (!known.is_empty()).then(|| Usual::of(&known))
    }

    /// By how many deviations the gains at the period's best phase exceed the usual. The period is a
    /// multiple of [`COARSE_STEP_NS`].
    pub(super) fn most_deviations(&self, usual: Usual, period_ns: i64) -> Option<f64> {
        let steps = (period_ns / COARSE_STEP_NS) as usize;
        let mut phases = vec![(0.0, 0_usize); steps];
        for (index, gain) in &self.gains {
            let (sum, count) = &mut phases[index % steps];
            (*sum, *count) = (*sum + gain, *count + 1);
        }
        let enough = phases.iter().filter(|(_, count)| *count >= FEWEST_MOMENTS);
        enough
            .map(|(sum, count)| usual.deviations(sum / *count as f64, *count))
            .max_by(f64::total_cmp)
    }
}

/// What two levels explain at a moment; 0: no more than one, 1: everything.
fn gain(known: &[(i64, u64)], moment: i64) -> Option<f64> {
    let between = |from: i64, to: i64| -> Vec<u64> {
        let place = |ns: i64| known.partition_point(|(at, _)| *at < ns);
        known[place(from)..place(to)].iter().map(|(_, delay)| *delay).collect()
    };
    let mut before = between(moment - BESIDE_NS, moment);
    let mut after = between(moment + TRANSIENT_NS, moment + BESIDE_NS);
    if before.len().min(after.len()) < FEWEST_BESIDE {
        return None;
    }
    let mut both = [before.as_slice(), after.as_slice()].concat();
    let (one, two) = (spread(&mut both), spread(&mut before) + spread(&mut after));
    Some(if one == 0 { 0.0 } else { 1.0 - two as f64 / one as f64 })
}

/// How much likelier two levels are than one, where distances from a level are Laplacian: per sample, as a
/// logarithm. Levels that are told apart cleanly weigh more than by their gain, and tell the moment best.
fn likelihood(gain: f64) -> f64 {
    -(1.0 - gain).max(LEAST_LEFT).ln()
}

/// The sum of the distances from the median, which spikes of the queue hardly move.
fn spread(delays: &mut [u64]) -> u64 {
    let middle = delays.len() / 2;
    let (_, median, _) = delays.select_nth_unstable(middle);
    let median = *median;
    delays.iter().map(|delay| delay.abs_diff(median)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten samples a second from each start on, in ns.
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
