//! Reward in the manner of Astraea (Liao et al., "Towards Fair and Efficient Learning-based Congestion Control",
//! EuroSys 2024, section 3.3): the throughput of all agents' flows, less delay, loss, unfairness and unsteadiness, with
//! the paper's weights and bounds. The paper takes each term over all agents; here the terms for delay, loss and
//! unsteadiness are computed for the rewarded agent only.

use crate::interval::Interval;

const THROUGHPUT: f64 = 0.1;
const DELAY: f64 = 0.02;
const LOSS: f64 = 1.0;
const UNFAIRNESS: f64 = 0.02;
const UNSTEADINESS: f64 = 0.01;
/// Bound of the reward, in both directions.
const MAX_REWARD: f64 = 0.1;
/// Relative increase of the RTT over the RTT without queues up to which delay costs nothing.
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
    reward.clamp(-MAX_REWARD, MAX_REWARD)
}

/// Coefficient of variation: standard deviation over mean; 0 if the mean is 0.
fn variation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}
