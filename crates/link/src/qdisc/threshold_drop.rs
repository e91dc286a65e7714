//! Queue of a geostationary operator's gateway: while more than a share of a customer's queue is full, arriving
//! packets are dropped at random with a fixed probability, and those that do not fit are lost. Described for
//! Viasat in "Comparison of TCP Congestion Control Performance over a Satellite Network" (Claypool, Chung,
//! Claypool, 2021): 36 MB, which is a link's `queue`, and 18 MB and 25 %, which are the defaults here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::LossReason;
use skyhop_units::{Instant, Ratio};

use super::fifo::Fifo;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// Parameters of `threshold-drop`; the defaults are those of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdDropConfig {
    /// Share of the queue up to which nothing is dropped.
    pub share: Ratio,
    /// Probability of a drop while the queue is fuller than `share`.
    pub probability: Ratio,
}

impl Default for ThresholdDropConfig {
    fn default() -> Self {
        let ratio = |fraction| Ratio::new(fraction).expect("a fraction");
        Self { share: ratio(0.5), probability: ratio(0.25) }
    }
}

impl Parameters for ThresholdDropConfig {}

#[derive(Debug)]
pub(crate) struct ThresholdDrop<P> {
    queue: Fifo<P>,
    threshold: Limit,
    probability: f64,
    rng: LinkRng,
}

impl<P> ThresholdDrop<P> {
    pub(crate) fn new(config: &ThresholdDropConfig, limit: Limit, seed: u64) -> Self {
        Self {
            queue: Fifo::within(limit),
            threshold: limit.share(config.share),
            probability: config.probability.fraction(),
            rng: LinkRng::for_queue(seed),
        }
    }
}

impl<P> Qdisc<P> for ThresholdDrop<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let is_above = !self.threshold.allows(self.queue.backlog());
        if is_above && self.rng.draw() < self.probability {
            verdicts.lose(arriving.since, LossReason::Queue, arriving.packet);
        } else {
            self.queue.enqueue(arriving, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, _now: Instant, _: &mut Verdicts<P>) -> Option<Queued<P>> {
        self.queue.pop()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}

#[cfg(test)]
mod tests {
    use skyhop_units::Bytes;

    use super::*;
    use crate::Packet;

    /// Fill a queue that is not served until it holds `fill` of its 36 packets; then offer 20,000 more, each in
    /// the place of one that leaves. Return the number of those that were lost.
    fn lost_at(fill: u64, limit: Limit) -> usize {
        let config = ThresholdDropConfig::default();
        let mut qdisc = ThresholdDrop::new(&config, limit, 5);
        let mut verdicts = Verdicts::new();
        let offer = |qdisc: &mut ThresholdDrop<()>, verdicts: &mut Verdicts<()>| {
            let packet = Packet::new(Bytes::new(1_000), ());
            qdisc.enqueue(Queued { since: Instant::START, packet }, verdicts);
        };
        let mut lost = 0;
        for _ in 0..20_000 {
            while qdisc.backlog().packets < fill {
                offer(&mut qdisc, &mut verdicts);
            }
            verdicts.take_lost();
            offer(&mut qdisc, &mut verdicts);
            lost += verdicts.take_lost().len();
            qdisc.dequeue(Instant::START, &mut verdicts);
        }
        lost
    }

    #[test]
    fn a_quarter_is_lost_while_more_than_half_is_full_and_all_when_it_is_full() {
        for limit in [Limit::Packets(36), Limit::Bytes(Bytes::new(36_000))] {
            assert_eq!(lost_at(18, limit), 0, "half, no more, is full");
            for fill in [19, 30] {
                let lost = lost_at(fill, limit);
                // Mean and standard deviation: 5000 +- 61.
                assert!((4_750..5_250).contains(&lost), "{lost} of 20000 at {fill} of 36");
            }
            assert_eq!(lost_at(36, limit), 20_000);
        }
    }
}
