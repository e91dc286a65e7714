//! Ours. All flows that send count, those of agents twice, each by the square root of its share of the narrowest link, so that
//! who has little gains more than who has much loses: to take a little more than one's share gains little, and to leave all to
//! a sender that fills queues loses much. Among agents it costs by how far one's own share is from their mean. A queue costs by
//! its time, up to a bound, and loss by its part.

use crate::interval::Interval;

/// How many times what others get the share of an agent counts.
const AGENTS: f64 = 2.0;
/// What it costs to be as far from the mean of all agents as that is large.
const UNFAIRNESS: f64 = 0.2;
/// A queue costs its weight where it takes this long, or this part of a round trip that is long.
const QUEUE_S: f64 = 0.05;
const QUEUE_RTTS: f64 = 0.25;
const QUEUE: f64 = 0.2;
/// No queue costs more than one of so many times that.
const MOST_QUEUE: f64 = 4.0;
const LOSS: f64 = 1.0;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let scale_s = QUEUE_S.max(QUEUE_RTTS * interval.base_rtt_s);
    let queue = ((interval.rtt_s() - interval.base_rtt_s) / scale_s).clamp(0.0, MOST_QUEUE);
    shares(interval) - UNFAIRNESS * unfairness(interval) - QUEUE * queue - LOSS * interval.loss()
}

/// The weighted mean of what the shares of all are worth: 1 where all have the same, and nothing is left.
fn shares(interval: &Interval<'_>) -> f64 {
    let flows = interval.flows() as f64;
    let fair_bps = interval.link_bps.max(1.0) / flows;
    let worth = |goodput_bps: &f64| (goodput_bps / fair_bps).clamp(0.0, flows).sqrt();
    let agents: f64 = interval.all_agents_bps().map(|bps| worth(&bps)).sum();
    let others: f64 = interval.others_bps.iter().map(worth).sum();
    let weights = AGENTS * interval.agents() as f64 + interval.others_bps.len() as f64;
    (AGENTS * agents + others) / weights
}

/// How far its own share is from the mean of all agents, over that, 1 at most.
fn unfairness(interval: &Interval<'_>) -> f64 {
    let mean_bps = interval.all_agents_bps().sum::<f64>() / interval.agents() as f64;
    ((interval.goodput_bps - mean_bps).abs() / mean_bps.max(1.0)).min(1.0)
}
