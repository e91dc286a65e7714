//! Bursts of loss whose rate depends on the slot and on the time since the last mark of the grid.

use skyhop_units::{Duration, Instant};

use crate::process::Stream;
use crate::profile::{Bursts, Phases};
use crate::steps::Steps;

/// Draw the bursts until `end`, as the loss ratio over time, which is 0 between bursts. A burst begins at the rate of
/// its phase times `level`, and no sooner than the one before has ended.
pub(crate) fn bursts(
    bursts: &Bursts,
    phases: &Phases,
    end: Instant,
    level: &Steps,
    stream: &mut Stream,
) -> Steps {
    let highest = |ratios: &mut dyn Iterator<Item = f64>| ratios.fold(1.0_f64, f64::max);
    let most_per_second = bursts.per_second
        * highest(&mut bursts.phases.iter().map(|phase| phase.factor))
        * highest(&mut level.0.iter().map(|(_, ratio)| *ratio));
    let mut level = level.cursor(1.0);
    let mut steps = Steps::default();
    if most_per_second <= 0.0 {
        return steps;
    }
    let mut at = Instant::START;
    loop {
        at += Duration::from_secs_f64(stream.exponential() / most_per_second);
        if at >= end {
            return steps;
        }
        // Thinning: a candidate at the highest rate is kept with the probability of its phase and slot.
        let per_second = bursts.per_second * phases.factor(&bursts.phases, at) * level.at(at);
        if stream.unit() * most_per_second > per_second {
            continue;
        }
        let lasts = Duration::from_secs_f64(stream.value(&bursts.lasts_ms).max(0.0) / 1e3);
        let loss = stream.value(&bursts.loss).clamp(0.0, 1.0);
        steps.0.push((at, loss));
        at += lasts;
        steps.0.push((at, 0.0));
    }
}
