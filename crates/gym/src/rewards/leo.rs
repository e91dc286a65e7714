//! Ours. A flow is to have its share of the narrowest link, and what the others leave of it; more is no better, so that it
//! is nobody's gain to push another aside. A queue costs by its time, up to a bound, so that a path whose round trip is
//! long is no excuse, and loss costs by its part.

use crate::interval::Interval;

/// A queue of this time costs 1 times its weight.
const QUEUE_S: f64 = 0.05;
const QUEUE: f64 = 0.2;
/// No queue costs more than one of so many times that.
const MOST_QUEUE: f64 = 4.0;
const LOSS: f64 = 1.0;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let link_bps = interval.link_bps.max(1.0);
    let fair_bps = link_bps / interval.flows() as f64;
    let left_bps = link_bps - interval.others_bps();
    let share = (interval.goodput_bps / fair_bps.max(left_bps)).min(1.0);
    let queue = ((interval.rtt_s() - interval.base_rtt_s) / QUEUE_S).clamp(0.0, MOST_QUEUE);
    share - QUEUE * queue - LOSS * interval.loss()
}
