//! Detection of handovers in a series of round trips: level shifts on a grid of 15 s.
//!
//! Starlink moves its users to other satellites every 15 s, and the level of the round trip shifts at these times.
//! The series is divided into bins; the shift at the border of two bins is the difference between the median round
//! trips of the 2 s before and of the 2 s after it. Folded modulo 15 s, shifts on the grid stand out: the series has
//! a grid if the typical shift at the best phase exceeds `MIN_GRID_RATIO` times the typical shift of all phases.
//! Otherwise (OneWeb) no handover is marked.

use std::cmp::Ordering;

use super::probes::Probe;

const PERIOD_NS: u64 = 15_000_000_000;
const BIN_NS: u64 = 250_000_000;
const BINS_PER_PERIOD: usize = (PERIOD_NS / BIN_NS) as usize;
/// Number of bins on each side of a shift; together they last 2 s.
const BINS_PER_SIDE: usize = 8;
/// Minimum number of periods of 15 s in a series: with fewer, one phase stands out by chance.
const MIN_PERIODS: usize = 8;
/// Minimum ratio of the shifts on the grid to the typical shift. Measured: Starlink 3.6 to 5.4, OneWeb 1.2.
const MIN_GRID_RATIO: f64 = 2.5;
/// Minimum ratio of a single shift to the typical shift, for the handover to be marked.
const MIN_SHIFT_RATIO: f64 = 2.0;

/// Return the times of the handovers of a series with a grid, in ns since its first probe; empty without a grid.
pub(super) fn on_grid(probes: &[Probe]) -> Vec<u64> {
    let levels_ns = bin_medians_ns(probes);
    let shifts_ns: Vec<Option<f64>> =
        (0..levels_ns.len()).map(|bin| shift_ns(&levels_ns, bin)).collect();
    let typical_ns: Vec<Option<f64>> = (0..BINS_PER_PERIOD)
        .map(|place| {
            let folded = shifts_ns.iter().skip(place).step_by(BINS_PER_PERIOD);
            let known: Vec<f64> = folded.copied().flatten().collect();
            if known.len() < MIN_PERIODS { None } else { median(known) }
        })
        .collect();
    let Some(usual_ns) = median(typical_ns.iter().copied().flatten().collect()) else {
        return Vec::new();
    };
    let best =
        typical_ns.iter().enumerate().filter_map(|(place, typical)| Some((place, (*typical)?)));
    let Some((place, best_ns)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Vec::new();
    };
    if best_ns <= MIN_GRID_RATIO * usual_ns {
        return Vec::new();
    }
    // A handover that does not change the level cannot be seen and is not marked.
    let shows =
        |bin: &usize| shifts_ns[*bin].is_some_and(|shift_ns| shift_ns > MIN_SHIFT_RATIO * usual_ns);
    let bins = (place..shifts_ns.len()).step_by(BINS_PER_PERIOD).filter(shows);
    bins.map(|bin| bin as u64 * BIN_NS).collect()
}

/// Median round trip of each bin; `None` for a bin without answers.
fn bin_medians_ns(probes: &[Probe]) -> Vec<Option<f64>> {
    let (Some(first), Some(last)) = (probes.first(), probes.last()) else { return Vec::new() };
    let bin_of = |probe: &Probe| probe.sent_ns.abs_diff(first.sent_ns) / BIN_NS;
    // Probes that are far apart do not reveal levels, and would need a huge number of bins.
    if bin_of(last) > 2 * probes.len() as u64 {
        return Vec::new();
    }
    let mut levels_ns = Vec::new();
    for group in probes.chunk_by(|a, b| bin_of(a) == bin_of(b)) {
        levels_ns.resize(bin_of(&group[0]) as usize, None);
        let rtts_ns = group.iter().map(|probe| probe.rtt().as_nanos() as f64).collect();
        levels_ns.push(median(rtts_ns));
    }
    levels_ns
}

/// Difference between the levels before and after the beginning of a bin, ns.
fn shift_ns(levels_ns: &[Option<f64>], bin: usize) -> Option<f64> {
    let before = levels_ns.get(bin.checked_sub(BINS_PER_SIDE)?..bin)?;
    let after = levels_ns.get(bin..bin + BINS_PER_SIDE)?;
    let level_ns = |side: &[Option<f64>]| {
        let known: Vec<f64> = side.iter().copied().flatten().collect();
        if known.len() * 2 < BINS_PER_SIDE { None } else { median(known) }
    };
    Some((level_ns(after)? - level_ns(before)?).abs())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let by_size: fn(&f64, &f64) -> Ordering = f64::total_cmp;
    Some(*values.select_nth_unstable_by(middle, by_size).1)
}
