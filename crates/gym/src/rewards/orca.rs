//! Orca's (Abbasloo et al., "Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for the Internet", SIGCOMM
//! 2020, section 4.3): throughput less five times what was lost, over the most there is, and less by as much as the delay
//! is above 1.25 of the least. The most there is is the link's rate here, which a simulator knows; theirs is the most that
//! the agent has seen, with which one that never sends more than a little gets as much as one that fills the link.

use skyhop_policy::Quantity;

use crate::interval::Interval;

/// How much what was lost counts.
const LOSS: f64 = 5.0;
/// So far above the least a delay is still as good as that.
const DELAY_MARGIN: f64 = 1.25;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let lost_bps = interval.reported.get(Quantity::LostRate);
    let least_s = match interval.reported.get(Quantity::MinRtt) {
        0.0 => interval.base_rtt_s,
        least_s => least_s,
    };
    let delay = (DELAY_MARGIN * least_s / interval.rtt_s().max(1e-6)).min(1.0);
    (interval.goodput_bps - LOSS * lost_bps) / interval.link_bps.max(1.0) * delay
}
