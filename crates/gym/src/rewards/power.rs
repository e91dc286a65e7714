//! Power (Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer
//! communications", ICC 1979): throughput over delay, relative to link rate and base round trip, so that 1 is a
//! full link without a queue.

use crate::interval::Interval;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let throughput = interval.goodput_bps / interval.link_bps.max(1.0);
    throughput * (interval.base_rtt_s / interval.rtt_s().max(1e-6)).min(1.0)
}
