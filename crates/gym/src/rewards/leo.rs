//! Reward of skyhop itself: the shares of all flows that send, less queueing delay and loss.
//!
//! Each flow counts by the square root of its share of the narrowest link, agents' flows twice. The root is
//! concave: a flow with a small share gains more from the same rate than one with a large share loses, so that
//! taking a little more than the fair share gains little, and leaving the link to a sender that fills queues loses
//! much. Among agents, the distance of the own share from their mean is subtracted. A queue costs by its delay, up
//! to a bound, and loss by its ratio.

use crate::interval::Interval;

/// Weight of an agent's share, relative to that of a flow without an agent.
const AGENTS: f64 = 2.0;
/// Cost of a goodput whose distance from the mean of all agents equals that mean.
const UNFAIRNESS: f64 = 0.2;
/// Queueing delay whose cost is [`QUEUE`], s. On routes with a long RTT, [`QUEUE_RTTS`] times the RTT takes its
/// place if that is longer.
const QUEUE_S: f64 = 0.05;
const QUEUE_RTTS: f64 = 0.25;
const QUEUE: f64 = 0.2;
/// Multiple of that delay above which the cost no longer grows.
const MAX_QUEUE: f64 = 4.0;
const LOSS: f64 = 1.0;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let scale_s = QUEUE_S.max(QUEUE_RTTS * interval.base_rtt_s);
    let queue = ((interval.rtt_s() - interval.base_rtt_s) / scale_s).clamp(0.0, MAX_QUEUE);
    shares(interval) - UNFAIRNESS * unfairness(interval) - QUEUE * queue - LOSS * interval.loss()
}

/// Weighted mean of the square roots of all flows' shares, relative to the fair share: 1 if all are equal and fill
/// the link.
fn shares(interval: &Interval<'_>) -> f64 {
    let flows = interval.flows() as f64;
    let fair_bps = interval.link_bps.max(1.0) / flows;
    let utility = |goodput_bps: &f64| (goodput_bps / fair_bps).clamp(0.0, flows).sqrt();
    let agents: f64 = interval.all_agents_bps().map(|bps| utility(&bps)).sum();
    let others: f64 = interval.non_agents_bps.iter().map(utility).sum();
    let weights = AGENTS * interval.agents() as f64 + interval.non_agents_bps.len() as f64;
    (AGENTS * agents + others) / weights
}

/// Distance of the agent's own goodput from the mean goodput of all agents, relative to that mean, at most 1.
fn unfairness(interval: &Interval<'_>) -> f64 {
    let mean_bps = interval.all_agents_bps().sum::<f64>() / interval.agents() as f64;
    ((interval.goodput_bps - mean_bps).abs() / mean_bps.max(1.0)).min(1.0)
}
