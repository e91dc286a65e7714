//! After Astraea's (Liao et al., "Towards Fair and Efficient Learning-based Congestion Control", EuroSys 2024, section
//! 3.3): the throughput of all agents' flows, less delay, loss, unfairness and unsteadiness, with its weights and bounds.
//! The paper's terms are of all agents; here delay, loss and unsteadiness are of the one that is rewarded.

use crate::interval::Interval;

const THROUGHPUT: f64 = 0.1;
const DELAY: f64 = 0.02;
const LOSS: f64 = 1.0;
const UNFAIRNESS: f64 = 0.02;
const UNSTEADINESS: f64 = 0.01;
/// No reward lies outside.
const MOST: f64 = 0.1;
/// So far above the round trip without queues a delay is no fault.
const DELAY_MARGIN: f64 = 0.2;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let all_bps: Vec<f64> = interval.all_agents_bps().collect();
    let throughput = all_bps.iter().sum::<f64>() / interval.link_bps.max(1.0);
    let base_rtt_s = interval.base_rtt_s.max(1e-6);
    let delay = (interval.rtt_s() / base_rtt_s - 1.0 - DELAY_MARGIN).max(0.0);
    let reward = THROUGHPUT * throughput
        - DELAY * delay
        - LOSS * interval.loss()
        - UNFAIRNESS * variation(&all_bps)
        - UNSTEADINESS * variation(interval.recent_bps);
    reward.clamp(-MOST, MOST)
}

/// Standard deviation over mean; 0 where there is nothing.
fn variation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}
