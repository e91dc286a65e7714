//! Blind estimation of the handover grid from traffic alone (SatPipe, section IV-E and Algorithm 1).
//!
//! Two kinds of evidence are folded modulo the period and searched for the phase at which they agree:
//!
//! - *spacing*: handovers freeze the link, so that the largest gaps between arrivals lie over them. Each of
//!   the largest gaps counts once in every millisecond that it covers; the handover is where the count
//!   peaks. Needs arrivals that are dense against an outage of 30 to 100 ms.
//! - *level shifts*: the round trip steps from one level to another at a handover. At each possible moment
//!   the spread around one level is compared with that around two; the handover is where two levels explain
//!   the most. Sparse samples (10 per second, with gaps) do.
//!
//! A phase counts as a grid only if its evidence could not come about by chance, however many phases were
//! tried.

use skyhop_units::{Duration, UtcInstant};

use crate::schedule::Grid;

/// One arrival, and how long its round trip was if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it arrived, on any clock that counts nanoseconds: the offset is on the same.
    pub at: UtcInstant,
    /// Its round trip.
    pub rtt: Option<Duration>,
}

/// What the samples say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The grid; `None` where there is none to be seen.
    pub grid: Option<Grid>,
    /// What it was found by, or looked for in vain.
    pub evidence: Evidence,
    /// The share of the grid's moments at which the evidence is seen, less what chance would show there: 1
    /// at all of them, 0 at no more than anywhere.
    pub confidence: f64,
    /// How many samples were looked at.
    pub samples: usize,
}

/// Kinds of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Gaps between arrivals.
    Spacing,
    /// Steps of the round trip.
    LevelShifts,
}

impl Evidence {
    /// How wrong an offset that was found by it may be: gaps tell the start of an outage to some
    /// milliseconds (SatPipe, Figure 13), levels not within the transient.
    pub fn error(self) -> Duration {
        match self {
            Self::Spacing => Duration::from_millis(10),
            Self::LevelShifts => Duration::from_millis(100),
        }
    }
}

/// Looks for handovers every `period`. The samples may be in any order.
///
/// At least [`FEWEST_MOMENTS`] periods have to be covered: with fewer chance agrees too easily.
pub fn estimate(samples: &[Sample], period: Duration) -> Estimate {
    let period_ns = period.as_nanos().max(FINE_NS) as i64;
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|sample| sample.at);
    let spacing = spacing(&sorted, period_ns);
    // Gaps tell the moment to the millisecond, levels to some ten.
    let (found, evidence) = match spacing {
        Some(found) if found.is_certain => (Some(found), Evidence::Spacing),
        _ => (level_shifts(&sorted, period_ns), Evidence::LevelShifts),
    };
    let grid = found.filter(|found| found.is_certain).map(|found| Grid {
        period: Duration::from_nanos(period_ns as u64),
        offset: Duration::from_nanos(found.phase_ns as u64),
    });
    let confidence = found.map_or(0.0, |found| found.confidence);
    Estimate { grid, evidence, confidence, samples: samples.len() }
}

/// Of how many of the grid's moments something must be known.
pub const FEWEST_MOMENTS: usize = 6;

/// The width of a phase in the spacing's histogram (SatPipe: 1 ms).
const FINE_NS: u64 = 1_000_000;
/// Gaps are taken into account up to so many for each period of the log: with as many, chance covers a
/// few per cent of all phases.
const GAPS_PER_PERIOD: usize = 2;
/// A gap longer than this is no handover: somebody paused.
const LONGEST_GAP_NS: i64 = 1_000_000_000;

/// How far to both sides of a moment levels are compared.
const BESIDE_NS: i64 = 3_000_000_000;
/// What follows a moment tells nothing of levels: packets of the outage, and of the queue it left.
const TRANSIENT_NS: i64 = 150_000_000;
/// Samples without which one side has no level.
const FEWEST_BESIDE: usize = 5;
/// The distance of the phases that are tried first, and then around the best.
const COARSE_STEP_NS: i64 = 100_000_000;
const FINE_STEP_NS: i64 = 10_000_000;
/// Phases nearer to the best than this share of it are as good, and their middle is meant.
const AS_GOOD: f64 = 0.05;
/// A moment shows a shift where two levels explain more than at this share of all moments.
const SHOWN_ABOVE: f64 = 0.8;

/// Gaps as good turn up by chance in this share of all logs.
const CHANCE: f64 = 1e-4;
/// By how many standard deviations the levels' mean gain must exceed the usual: one-sided, 3e-6 for each of
/// the 150 phases that are tried first.
const LEAST_DEVIATIONS: f64 = 4.5;
/// The same for the ranks of the gains, which a few spikes cannot lift: 5 %.
const LEAST_RANK_DEVIATIONS: f64 = 1.64;

#[derive(Debug, Clone, Copy)]
struct Found {
    phase_ns: i64,
    confidence: f64,
    is_certain: bool,
}

impl Found {
    /// Weighs `hits` of `moments` against the `chance` of a hit elsewhere, where `tried` phases that have
    /// nothing to do with each other had the same opportunity.
    fn weighed(phase_ns: i64, hits: usize, moments: usize, chance: f64, tried: f64) -> Self {
        let confidence = less_chance(hits as f64 / moments as f64, chance);
        let by_chance = at_least(hits, moments, chance) * tried;
        let is_certain = moments >= FEWEST_MOMENTS && by_chance < CHANCE;
        Self { phase_ns, confidence, is_certain }
    }
}

/// What of a share is more than chance gives, from 0 to 1.
fn less_chance(share: f64, chance: f64) -> f64 {
    ((share - chance) / (1.0 - chance)).clamp(0.0, 1.0)
}

/// The probability that at least `hits` of `moments` independent trials succeed.
fn at_least(hits: usize, moments: usize, chance: f64) -> f64 {
    if chance <= 0.0 {
        return if hits == 0 { 1.0 } else { 0.0 };
    }
    let (success, failure) = (chance.ln(), (1.0 - chance).max(f64::MIN_POSITIVE).ln());
    let mut ln_ways = 0.0;
    let mut total = 0.0;
    for count in 0..=moments {
        if count > 0 {
            ln_ways += ((moments - count + 1) as f64).ln() - (count as f64).ln();
        }
        if count >= hits {
            total += (ln_ways + count as f64 * success + (moments - count) as f64 * failure).exp();
        }
    }
    total.min(1.0)
}

// --- spacing ---

/// Algorithm 1: the largest gaps, folded, and the first of the phases that most of them cover.
fn spacing(samples: &[Sample], period_ns: i64) -> Option<Found> {
    let moments: Vec<i64> = samples.iter().map(|sample| sample.at.unix_nanos()).collect();
    let (first, last) = (*moments.first()?, *moments.last()?);
    let periods = ((last - first) / period_ns) as usize;
    let gaps = largest_gaps(&moments, periods * GAPS_PER_PERIOD);
    if periods < FEWEST_MOMENTS || gaps.is_empty() {
        return None;
    }
    let bins = (period_ns / FINE_NS as i64) as usize;
    let mut counts = vec![0_u32; bins];
    let bin_of = |ns: i64| (ns.rem_euclid(period_ns) / FINE_NS as i64) as usize % bins;
    for (start, end) in &gaps {
        let covered = ((end - start) / FINE_NS as i64) as usize + 1;
        for step in 0..covered.min(bins) {
            counts[(bin_of(*start) + step) % bins] += 1;
        }
    }
    let most = *counts.iter().max()?;
    let phase = first_of_run(&counts, most)?;
    let covered: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let chance = covered as f64 / (bins * periods) as f64;
    let widest = gaps.iter().map(|(start, end)| end - start).sum::<i64>() / gaps.len() as i64;
    let tried = period_ns as f64 / widest.max(FINE_NS as i64) as f64;
    let hits = (most as usize).min(periods);
    let phase_ns = phase as i64 * FINE_NS as i64;
    Some(Found::weighed(phase_ns, hits, periods, chance.min(1.0), tried))
}

/// The `most` largest gaps between arrivals, those that tie with the smallest of them included.
fn largest_gaps(moments: &[i64], most: usize) -> Vec<(i64, i64)> {
    let gaps = moments.windows(2).map(|pair| (pair[0], pair[1]));
    let mut gaps: Vec<(i64, i64)> =
        gaps.filter(|(start, end)| end > start && end - start <= LONGEST_GAP_NS).collect();
    gaps.sort_by_key(|(start, end)| (start - end, *start));
    gaps.truncate(most);
    gaps
}

/// Where the longest run of bins with this count begins, around the end of the fold too.
fn first_of_run(counts: &[u32], count: u32) -> Option<usize> {
    let bins = counts.len();
    let begins = |bin: &usize| counts[*bin] == count && counts[(*bin + bins - 1) % bins] != count;
    let length =
        |bin: usize| (0..bins).take_while(|step| counts[(bin + step) % bins] == count).count();
    // The earliest of equally long ones.
    (0..bins).filter(begins).max_by_key(|bin| (length(*bin), std::cmp::Reverse(*bin)))
}

// --- level shifts ---

/// The phase at which two levels explain the round trips best.
fn level_shifts(samples: &[Sample], period_ns: i64) -> Option<Found> {
    let known: Vec<(i64, u64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.at.unix_nanos(), sample.rtt?.as_nanos())))
        .collect();
    let levels = Levels { known: &known, period_ns };
    let coarse = levels.gains_at_phases((0..period_ns).step_by(COARSE_STEP_NS as usize));
    let mean = |gains: &Vec<f64>| gains.iter().sum::<f64>() / gains.len() as f64;
    let enough = |(_, gains): &&(i64, Vec<f64>)| gains.len() >= FEWEST_MOMENTS;
    let (best_ns, _) =
        coarse.iter().filter(enough).max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)))?;

    let around = (best_ns - 3 * COARSE_STEP_NS)..=(best_ns + 3 * COARSE_STEP_NS);
    let fine = levels.gains_at_phases(around.step_by(FINE_STEP_NS as usize));
    let best = fine.iter().filter(enough).map(|(_, gains)| mean(gains)).fold(0.0, f64::max);
    let as_good: Vec<i64> = fine
        .iter()
        .filter(enough)
        .filter(|(_, gains)| mean(gains) >= best * (1.0 - AS_GOOD))
        .map(|(phase_ns, _)| *phase_ns)
        .collect();
    let phase_ns = as_good.iter().sum::<i64>().checked_div(as_good.len() as i64)?;

    let mut anywhere: Vec<f64> =
        coarse.iter().flat_map(|(_, gains)| gains.iter().copied()).collect();
    anywhere.sort_by(f64::total_cmp);
    let shown = anywhere[(anywhere.len() as f64 * SHOWN_ABOVE) as usize];
    let gains = levels.gains_at(phase_ns);
    let hits = gains.iter().filter(|gain| **gain > shown).count();
    let confidence = less_chance(hits as f64 / gains.len() as f64, 1.0 - SHOWN_ABOVE);
    let is_certain = gains.len() >= FEWEST_MOMENTS
        && stands_out(&gains, &anywhere)
        && is_common(&gains, &anywhere);
    Some(Found { phase_ns: phase_ns.rem_euclid(period_ns), confidence, is_certain })
}

/// Whether the mean of `gains` is far above that of as many from anywhere.
fn stands_out(gains: &[f64], anywhere: &[f64]) -> bool {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let usual = mean(anywhere);
    let variance = anywhere.iter().map(|gain| (gain - usual).powi(2)).sum::<f64>();
    let deviation = (variance / anywhere.len() as f64 / gains.len() as f64).sqrt();
    mean(gains) - usual > LEAST_DEVIATIONS * deviation
}

/// Whether `gains` rank high among all, and not only a few of them very high.
fn is_common(gains: &[f64], anywhere: &[f64]) -> bool {
    let rank = |gain: &f64| {
        let below = anywhere.partition_point(|other| other < gain);
        let up_to = anywhere.partition_point(|other| other <= gain);
        (below + up_to) as f64 / (2 * anywhere.len()) as f64
    };
    let mean = gains.iter().map(rank).sum::<f64>() / gains.len() as f64;
    // The deviation of a mean of ranks, which are uniform from 0 to 1.
    let deviation = (12.0 * gains.len() as f64).sqrt().recip();
    mean - 0.5 > LEAST_RANK_DEVIATIONS * deviation
}

struct Levels<'s> {
    /// Moments and round trips in ns, in order.
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
        let moments = (start..=*last).step_by(self.period_ns as usize);
        moments.filter_map(|moment| self.gain(moment)).collect()
    }

    /// 0: two levels explain no more than one; 1: they explain everything.
    fn gain(&self, moment: i64) -> Option<f64> {
        let mut before = self.between(moment - BESIDE_NS, moment);
        let mut after = self.between(moment + TRANSIENT_NS, moment + BESIDE_NS);
        if before.len().min(after.len()) < FEWEST_BESIDE {
            return None;
        }
        let mut both = [before.as_slice(), after.as_slice()].concat();
        let (one, two) = (spread(&mut both), spread(&mut before) + spread(&mut after));
        Some(if one == 0 { 0.0 } else { 1.0 - two as f64 / one as f64 })
    }

    fn between(&self, from: i64, to: i64) -> Vec<u64> {
        let place = |ns: i64| self.known.partition_point(|(at, _)| *at < ns);
        self.known[place(from)..place(to)].iter().map(|(_, rtt)| *rtt).collect()
    }
}

/// The sum of the distances from the median, which spikes of the queue hardly move.
fn spread(rtts: &mut [u64]) -> u64 {
    let middle = rtts.len() / 2;
    let (_, median, _) = rtts.select_nth_unstable(middle);
    let median = *median;
    rtts.iter().map(|rtt| rtt.abs_diff(median)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_binomial_is_what_it_is() {
        assert!((at_least(0, 10, 0.3) - 1.0).abs() < 1e-12);
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((at_least(3, 3, 0.2) - 0.008).abs() < 1e-12);
        assert_eq!(at_least(1, 3, 0.0), 0.0);
        assert!((at_least(3, 3, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_may_go_over_the_end_of_the_fold() {
        assert_eq!(first_of_run(&[2, 0, 1, 2], 2), Some(3));
        assert_eq!(first_of_run(&[0, 2, 0, 2], 2), Some(1));
        assert_eq!(first_of_run(&[2, 2], 2), None);
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        let none = estimate(&[], Duration::from_secs(15));
        assert_eq!((none.grid, none.samples, none.confidence), (None, 0, 0.0));
        let one =
            Sample { at: UtcInstant::from_unix_nanos(5), rtt: Some(Duration::from_millis(30)) };
        assert_eq!(estimate(&[one; 3], Duration::from_secs(15)).grid, None);
    }
}
