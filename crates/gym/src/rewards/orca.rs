//! Reward of Orca (Abbasloo et al., "Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for the
//! Internet", SIGCOMM 2020, section 4.3): throughput less five times the lost rate, over the maximum rate, scaled
//! down as the delay exceeds 1.25 times the minimum.
//!
//! The maximum rate here is the link's, which the simulator knows. The paper takes the maximum that the agent has
//! measured: with it, an agent that always sends little gets the same reward as one that fills the link.

use skyhop_policy::Quantity;

use crate::interval::Interval;

/// Weight of the lost rate, relative to throughput.
const LOSS: f64 = 5.0;
/// Multiple of the minimum delay up to which delay does not reduce the reward.
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
