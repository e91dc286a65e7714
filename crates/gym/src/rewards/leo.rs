//! Ours. All flows that send count, its own twice, each by the square root of its share of the narrowest link, so that who
//! has little gains more than who has much loses: to take a little more than one's share gains little, and to leave all to a
//! sender that fills queues loses much. A queue costs by its time, up to a bound, and loss by its part.

use crate::interval::Interval;

/// How many times another its own share counts.
const OWN: f64 = 2.0;
/// A queue costs its weight where it takes this long, or this part of a round trip that is long.
const QUEUE_S: f64 = 0.05;
const QUEUE_RTTS: f64 = 0.25;
const QUEUE: f64 = 0.2;
/// No queue costs more than one of so many times that.
const MOST_QUEUE: f64 = 4.0;
const LOSS: f64 = 1.0;

pub(super) fn reward(interval: &Interval<'_>) -> f64 {
    let flows = interval.flows() as f64;
    let fair_bps = interval.link_bps.max(1.0) / flows;
    let worth = |goodput_bps: f64| (goodput_bps / fair_bps).clamp(0.0, flows).sqrt();
    let others = interval.agents_bps.iter().chain(interval.others_bps);
    let others: f64 = others.copied().map(worth).sum();
    let shares = (OWN * worth(interval.goodput_bps) + others) / (OWN - 1.0 + flows);
    let scale_s = QUEUE_S.max(QUEUE_RTTS * interval.base_rtt_s);
    let queue = ((interval.rtt_s() - interval.base_rtt_s) / scale_s).clamp(0.0, MOST_QUEUE);
    shares - QUEUE * queue - LOSS * interval.loss()
}
