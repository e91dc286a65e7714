//! Random early detection (Floyd and Jacobson, "Random early detection gateways for congestion avoidance", 1993), as
//! in Linux (`net/sched/sch_red.c`, `include/net/red.h`; values that tc derives: iproute2's `tc/q_red.c` and
//! `tc/tc_red.c`): arriving packets are dropped with a probability that grows with the average of the backlog.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::LossReason;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use super::fifo::Fifo;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `red`; the defaults are tc's, and for parameters that tc requires, those of its manual.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedConfig {
    /// Average backlog below which nothing is dropped; a third of `max` if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Bytes>,
    /// Average backlog from which on every packet is dropped; a quarter of the link's queue if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Bytes>,
    /// Drop probability at an average just below `max`.
    pub probability: Ratio,
    /// Size of an average packet.
    pub avpkt: Bytes,
    /// Number of average packets that may arrive at once; if not given, (2 min + max) / (3 avpkt), and never less
    /// than min / avpkt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// Rate at which an idle queue is assumed to send average packets, by which the average decays. At zero it does not
    /// decay, as under a token bucket, which does not tell the qdisc that it is idle. (tc passes ticks of 64 ns where
    /// the kernel expects microseconds, so that in Linux the average decays as if at a sixteenth of the rate.)
    pub bandwidth: Rate,
    /// Whether ECN-capable packets are marked rather than dropped.
    pub ecn: bool,
    /// Whether, with `ecn`, packets are dropped nevertheless from `max` on.
    pub harddrop: bool,
    /// Whether the drop probability is adapted twice a second, so that the average stays in the middle between `min`
    /// and `max` (Floyd, Gummadi, Shenker, "Adaptive RED", 2001).
    pub adaptive: bool,
}

impl Default for RedConfig {
    fn default() -> Self {
        Self {
            min: None,
            max: None,
            probability: Ratio::new(0.02).expect("a fraction"),
            avpkt: Bytes::new(1000),
            burst: None,
            bandwidth: Rate::from_bits_per_second(10_000_000),
            ecn: false,
            harddrop: false,
            adaptive: false,
        }
    }
}

impl Parameters for RedConfig {
    fn fault(&self) -> Option<&'static str> {
        if self.avpkt == Bytes::ZERO {
            return Some("avpkt is zero; give the size of an average packet, such as \"1000 B\"");
        }
        let (min, max) = (self.min.unwrap_or_default(), self.max.unwrap_or(Bytes::new(u64::MAX)));
        (min >= max).then_some("min is not less than max; leave one of them out, or swap them")
    }
}

/// Thresholds and weight that tc derives from the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedThresholds {
    /// Average backlog below which nothing is dropped.
    pub min: Bytes,
    /// Average backlog from which on every packet is dropped.
    pub max: Bytes,
    /// Weight of a new sample in the average, as the exponent of 1/2 (Wlog).
    pub weight_log: u8,
}

/// Time between adaptations of the drop probability.
const ADAPT_EVERY: Duration = Duration::from_millis(500);
/// Bounds between which the drop probability is adapted.
const LEAST_PROBABILITY: f64 = 0.01;
const MOST_PROBABILITY: f64 = 0.5;

#[derive(Debug)]
pub(crate) struct Red<P> {
    ecn: bool,
    harddrop: bool,
    queue: Fifo<P>,
    average: Average,
    curve: Curve,
    rng: LinkRng,
}

/// Moving average of the backlog, in bytes.
#[derive(Debug, Clone)]
struct Average {
    bytes: f64,
    /// Weight of a new sample, taken at each arrival.
    weight: f64,
    /// Transmission time of an average packet; while the queue is idle, the average decays by `weight` per such time.
    packet_ns: Option<f64>,
    idle_since: Option<Instant>,
}

/// Drop probability as a function of the average, with the count that spreads drops evenly.
#[derive(Debug, Clone)]
struct Curve {
    min: f64,
    max: f64,
    probability: f64,
    /// Packets since the last drop while the average is between the thresholds; `None` otherwise.
    count: Option<f64>,
    /// Value of `count * (average - min)` at which the next packet is dropped.
    threshold: f64,
    next_adaptation: Instant,
}

/// Decision about an arriving packet, as `red_action` of Linux returns it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    /// The packet enters the queue (`RED_DONT_MARK`).
    Pass,
    /// Random early mark or drop (`RED_PROB_MARK`).
    Probabilistic,
    /// Mark or drop of every packet (`RED_HARD_MARK`): the average is at `max` or above.
    Hard,
}

impl RedConfig {
    /// Thresholds and weight that tc passes to the kernel, for a link whose queue holds `queue` bytes.
    pub fn thresholds(&self, queue: Bytes) -> RedThresholds {
        let max = self.max.unwrap_or(Bytes::new((queue.as_u64() / 4).max(1)));
        let min = self.min.unwrap_or(Bytes::new(max.as_u64() / 3)).min(max);
        let (avpkt, least) = (self.avpkt.as_u64(), min.as_u64().div_ceil(self.avpkt.as_u64()));
        let usual = (2 * min.as_u64() + max.as_u64()) / (3 * avpkt);
        let burst = self.burst.map_or(usual, |burst| u64::from(burst.get())).max(least).max(1);
        let burst = u32::try_from(burst).unwrap_or(u32::MAX);
        RedThresholds { min, max, weight_log: weight_log(min, burst, self.avpkt) }
    }
}

impl Average {
    fn new(config: &RedConfig, weight_log: u8) -> Self {
        let bandwidth = config.bandwidth;
        Self {
            bytes: 0.0,
            weight: power(0.5, weight_log.into()),
            packet_ns: (bandwidth > Rate::ZERO)
                .then(|| bandwidth.transmit_time(config.avpkt).as_nanos() as f64),
            idle_since: None,
        }
    }

    /// Update the average with a packet that arrives at a queue of `backlog`: `red_calc_qavg`.
    #[inline]
    fn update(&mut self, now: Instant, backlog: Bytes) {
        match (self.idle_since.take(), self.packet_ns) {
            (Some(since), Some(packet_ns)) => {
                self.bytes *= self.decay(now.saturating_since(since), packet_ns);
            }
            _ => self.bytes += self.weight * (backlog.as_u64() as f64 - self.bytes),
        }
    }

    /// Value of the average at `now`, without a new sample.
    fn at(&self, now: Instant) -> f64 {
        match (self.idle_since, self.packet_ns) {
            (Some(since), Some(packet_ns)) => {
                self.bytes * self.decay(now.saturating_since(since), packet_ns)
            }
            _ => self.bytes,
        }
    }

    /// Factor by which the average decays during an idle time: as if as many packets as could have been sent had
    /// arrived at an empty queue (section 4 of the paper).
    fn decay(&self, idle: Duration, packet_ns: f64) -> f64 {
        power(1.0 - self.weight, (idle.as_nanos() as f64 / packet_ns) as u64)
    }
}

/// Smallest exponent of 1/2 with which the average stays below `min` when `burst` packets arrive at once:
/// `tc_red_eval_ewma`.
fn weight_log(min: Bytes, burst: u32, avpkt: Bytes) -> u8 {
    let needed = f64::from(burst) + 1.0 - min.as_u64() as f64 / avpkt.as_u64() as f64;
    let suffices = |log: &u8| {
        let weight = power(0.5, u64::from(*log));
        needed <= (1.0 - power(1.0 - weight, u64::from(burst))) / weight
    };
    (1..31).find(suffices).unwrap_or(31)
}

/// Raise to a power by squaring, so that the result is the same on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut power = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    power
}

impl Curve {
    /// Decide about a packet (`red_action`), with the count of the paper's section 4, which spreads drops evenly.
    #[inline]
    fn action(&mut self, average: f64, rng: &mut LinkRng) -> Action {
        if average < self.min {
            self.count = None;
            return Action::Pass;
        }
        if average >= self.max {
            self.count = None;
            return Action::Hard;
        }
        let Some(count) = self.count else {
            self.restart_count(rng);
            return Action::Pass;
        };
        let count = count + 1.0;
        self.count = Some(count);
        if (average - self.min) * count < self.threshold {
            return Action::Pass;
        }
        self.restart_count(rng);
        Action::Probabilistic
    }

    /// Start the count again and draw its next threshold: `red_random`.
    fn restart_count(&mut self, rng: &mut LinkRng) {
        self.count = Some(0.0);
        let mean = if self.probability > 0.0 {
            (self.max - self.min) / self.probability
        } else {
            f64::MAX
        };
        // The factor is never zero, which would drop at once even at probability zero.
        self.threshold = (1.0 - rng.draw()) * mean;
    }

    /// Adapt the probability (`red_adaptative_algo`): additive increase, multiplicative decrease, towards the middle.
    #[inline]
    fn adapt(&mut self, now: Instant, average: &Average) {
        while self.next_adaptation <= now {
            let average = average.at(self.next_adaptation);
            let slack = 0.4 * (self.max - self.min);
            if average > self.max - slack && self.probability <= MOST_PROBABILITY {
                self.probability += (self.probability / 4.0).min(LEAST_PROBABILITY);
            } else if average < self.min + slack && self.probability >= LEAST_PROBABILITY {
                self.probability *= 0.9;
            }
            self.next_adaptation += ADAPT_EVERY;
        }
    }
}

impl<P> Red<P> {
    pub(crate) fn new(config: &RedConfig, limit: Limit, seed: u64) -> Self {
        let queue = match limit {
            Limit::Packets(packets) => packets.saturating_mul(config.avpkt.as_u64()),
            Limit::Bytes(bytes) => bytes.as_u64(),
        };
        let RedThresholds { min, max, weight_log } = config.thresholds(Bytes::new(queue));
        Self {
            ecn: config.ecn,
            harddrop: config.harddrop,
            queue: Fifo::within(limit),
            average: Average::new(config, weight_log),
            curve: Curve {
                min: min.as_u64() as f64,
                max: max.as_u64() as f64,
                probability: config.probability.fraction(),
                count: None,
                threshold: 0.0,
                next_adaptation: if config.adaptive {
                    Instant::START + ADAPT_EVERY
                } else {
                    Instant::NEVER
                },
            },
            rng: LinkRng::for_queue(seed),
        }
    }

    /// Apply a decision: mark the packet if possible; return whether it is lost.
    fn loses(&self, action: Action, arriving: &mut Queued<P>, verdicts: &mut Verdicts<P>) -> bool {
        let may_mark = match action {
            Action::Pass => return false,
            Action::Probabilistic => self.ecn,
            Action::Hard => self.ecn && !self.harddrop,
        };
        !(may_mark && verdicts.mark(&mut arriving.packet))
    }
}

impl<P> Qdisc<P> for Red<P> {
    #[inline]
    fn enqueue(&mut self, mut arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        self.curve.adapt(now, &self.average);
        self.average.update(now, self.queue.backlog().bytes);
        let action = self.curve.action(self.average.bytes, &mut self.rng);
        if self.loses(action, &mut arriving, verdicts) {
            verdicts.lose(now, LossReason::Queue, arriving.packet);
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

    #[inline]
    fn on_idle(&mut self, now: Instant) {
        self.average.idle_since.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::trial::{Ledger, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// Figure 17 of the paper, with its names, and Linux's draw of the distance between drops.
    struct Reference {
        ledger: Ledger,
        ecn: bool,
        harddrop: bool,
        min_th: f64,
        max_th: f64,
        max_p: f64,
        w_q: f64,
        avg: f64,
        count: i64,
        random: f64,
        rng: LinkRng,
        waiting: Vec<usize>,
        most: u64,
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let q = self.ledger.sum(&self.waiting);
            self.avg = self.avg + self.w_q * (q as f64 - self.avg);
            let mut struck = false;
            let may_mark = self.ecn && !(self.harddrop && self.avg >= self.max_th);
            if self.avg >= self.max_th {
                self.count = -1;
                struck = true;
            } else if self.avg >= self.min_th {
                self.count += 1;
                let distance = self.avg - self.min_th;
                if self.count > 0 && distance * self.count as f64 >= self.random {
                    self.count = 0;
                    struck = true;
                }
                if self.count == 0 {
                    let range = (self.max_th - self.min_th) / self.max_p;
                    self.random = (1.0 - self.rng.draw()) * range;
                }
            } else {
                self.count = -1;
            }
            let is_lost = struck && !(may_mark && self.ledger.mark(number));
            if is_lost || q + self.ledger.bytes(number) > self.most {
                self.ledger.drop(number, now);
            } else {
                self.waiting.push(number);
            }
        }

        fn dequeue(&mut self, now: u64) {
            if !self.waiting.is_empty() {
                let first = self.waiting.remove(0);
                self.ledger.leave(first, now);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_the_paper_says(
            train in train(),
            (min, range, burst) in (1_u64..20_000, 1_u64..40_000, 1_u32..30),
            (max_p, ecn, harddrop) in (0.01..0.9_f64, any::<bool>(), any::<bool>()),
            most in 1_514_u64..100_000,
        ) {
            let config = RedConfig {
                min: Some(Bytes::new(min)),
                max: Some(Bytes::new(min + range)),
                probability: Ratio::new(max_p).unwrap(),
                burst: NonZeroU32::new(burst),
                ecn,
                harddrop,
                ..RedConfig::default()
            };
            let qdisc = Red::new(&config, Limit::Bytes(Bytes::new(most)), 3);
            let reference = Reference {
                ledger: Ledger::default(),
                ecn,
                harddrop,
                min_th: min as f64,
                max_th: (min + range) as f64,
                max_p,
                w_q: qdisc.average.weight,
                avg: 0.0,
                count: -1,
                random: 0.0,
                rng: LinkRng::for_queue(3),
                waiting: Vec::new(),
                most,
            };
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    /// Examples of tc-red's manual and of the paper's section 4: W is 2^-wlog.
    #[test]
    fn the_weight_lets_a_burst_pass() {
        for (min, burst, avpkt) in [(30_000, 55, 1_000), (30_000, 40, 1_500), (5_000, 6, 1_000)] {
            let weight = power(0.5, weight_log(Bytes::new(min), burst, Bytes::new(avpkt)).into());
            // Packets that arrive at once fill the queue one by one.
            let average = |weight: f64| {
                (1..=burst).fold(0.0, |average, packets| {
                    average + weight * (f64::from(packets) * avpkt as f64 - average)
                })
            };
            assert!(average(weight) <= min as f64, "{} of {min}", average(weight));
            assert!(average(2.0 * weight) > min as f64, "and no smaller weight is needed");
            assert_eq!(weight.log2().fract(), 0.0);
        }
    }

    fn held_at(backlog: u64, config: &RedConfig, packets: usize) -> usize {
        let mut red = Red::new(config, Limit::Bytes(Bytes::new(250_000)), 3);
        let mut verdicts = Verdicts::new();
        let mut lost = 0;
        for number in 0..packets {
            let since = Instant::from_nanos(number as u64 * 1_000_000);
            while red.queue.backlog().bytes.as_u64() < backlog {
                let packet = Packet::new(Bytes::new(1_000), ());
                red.queue.enqueue(Queued { since, packet }, &mut verdicts);
            }
            red.enqueue(
                Queued { since, packet: Packet::new(Bytes::new(1_000), ()) },
                &mut verdicts,
            );
            lost += verdicts.take_lost().len() * usize::from(number > packets / 4);
            while red.queue.backlog().bytes.as_u64() > backlog {
                red.dequeue(since, &mut verdicts);
            }
        }
        lost
    }

    /// Spacing of drops: if they are evenly spread, one packet of 1/(2 p) + 1/2 is dropped, instead of one of
    /// 1/p (section 7 of the paper).
    #[test]
    fn the_rate_of_drops_grows_with_the_backlog() {
        let config = RedConfig {
            min: Some(Bytes::new(30_000)),
            max: Some(Bytes::new(90_000)),
            probability: Ratio::new(0.1).unwrap(),
            ..RedConfig::default()
        };
        let packets = 40_000;
        assert_eq!(held_at(29_000, &config, packets), 0);
        assert_eq!(held_at(91_000, &config, packets), 3 * packets / 4 - 1);
        for backlog in [45_000, 60_000, 85_000] {
            let p = 0.1 * (backlog - 30_000) as f64 / 60_000.0;
            let expected = 0.75 * packets as f64 / (0.5 / p + 0.5);
            let lost = held_at(backlog, &config, packets) as f64;
            assert!((lost / expected - 1.0).abs() < 0.1, "{lost} for {expected} at {backlog}");
        }
    }

    #[test]
    fn the_average_falls_while_nothing_waits_where_there_is_a_bandwidth() {
        let average = |bandwidth| {
            let config = RedConfig { bandwidth, ..RedConfig::default() };
            let weight_log = weight_log(Bytes::new(5_000), 6, config.avpkt);
            let mut average = Average::new(&config, weight_log);
            average.bytes = 8_000.0;
            average.idle_since = Some(Instant::START);
            (average.at(Instant::from_nanos(8_000_000)), average.weight)
        };
        // Ten packets of 1000 bytes take 8 ms at 10 Mbit/s.
        let (fallen, weight) = average(Rate::from_bits_per_second(10_000_000));
        assert!((fallen / (8_000.0 * (1.0 - weight).powi(10)) - 1.0).abs() < 1e-12, "{fallen}");
        assert_eq!(average(Rate::ZERO).0, 8_000.0);
    }

    #[test]
    fn adaptation_seeks_the_middle_between_the_thresholds() {
        let curve = |average: f64| {
            let mut curve = Curve {
                min: 30_000.0,
                max: 90_000.0,
                probability: 0.1,
                count: None,
                threshold: 0.0,
                next_adaptation: Instant::START,
            };
            let config = RedConfig::default();
            let weight_log = weight_log(Bytes::new(5_000), 6, config.avpkt);
            let steady = Average { bytes: average, ..Average::new(&config, weight_log) };
            curve.adapt(Instant::from_nanos(60_000_000_000), &steady);
            curve.probability
        };
        assert_eq!(curve(60_000.0), 0.1);
        assert!((0.5..=0.51).contains(&curve(70_000.0)), "{}", curve(70_000.0));
        assert!((0.009..=0.01).contains(&curve(50_000.0)), "{}", curve(50_000.0));
    }
}
