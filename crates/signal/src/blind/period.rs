//! Search for the period of the handovers.

use skyhop_units::Duration;

use super::Interrupted;
use super::chance::CHANCE;
use super::levels::GainCurve;
use super::spacing::{Peak, by_size};
use super::traffic::Traffic;

const SHORTEST_NS: i64 = 5_000_000_000;
const LONGEST_NS: i64 = 60_000_000_000;
/// Spacing of the periods that are tried. Over an hour's log an error of half the spacing adds up to several
/// seconds, so that a true period between two tried ones is not found.
const STEP_NS: i64 = 100_000_000;
const TRIED: usize = ((LONGEST_NS - SHORTEST_NS) / STEP_NS) as usize + 1;

fn all_ns() -> impl Iterator<Item = i64> {
    (SHORTEST_NS..=LONGEST_NS).step_by(STEP_NS as usize)
}

/// Return the period with the clearest evidence, and the number of periods tried.
///
/// A multiple of the true period covers fewer handovers, and a fraction of it has moments without a handover. For
/// both, chance explains the evidence more easily than for the true period.
pub(super) fn clearest(
    traffic: &Traffic,
    interrupted: &Interrupted<'_>,
) -> Option<(Duration, usize)> {
    let by_gaps =
        by_gaps(traffic, interrupted).filter(|(_, chance)| chance * (TRIED as f64) < CHANCE);
    let period_ns = match by_gaps {
        Some((period_ns, _)) => period_ns,
        None => by_levels(traffic, interrupted)?,
    };
    Some((Duration::from_nanos(period_ns.unsigned_abs()), TRIED))
}

fn by_gaps(traffic: &Traffic, interrupted: &Interrupted<'_>) -> Option<(i64, f64)> {
    let (span_ns, gaps) = (traffic.span_ns()?, by_size(traffic));
    let chance =
        |period_ns: i64| Some((period_ns, Peak::of(span_ns, &gaps, period_ns)?.by_chance()));
    all_ns()
        .take_while(|_| !interrupted())
        .filter_map(chance)
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
}

fn by_levels(traffic: &Traffic, interrupted: &Interrupted<'_>) -> Option<i64> {
    let curve = GainCurve::of(&traffic.delays(), interrupted)?;
    let baseline = curve.baseline()?;
    let deviations =
        |period_ns: i64| Some((period_ns, curve.most_deviations(baseline, period_ns)?));
    let all = all_ns().take_while(|_| !interrupted()).filter_map(deviations);
    all.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(period_ns, _)| period_ns)
}
