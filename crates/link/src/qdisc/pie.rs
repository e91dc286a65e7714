//! Proportional integral controller enhanced (RFC 8033): arriving packets are dropped at random, with a probability
//! that is updated every few milliseconds from the queueing delay and its change. As in Linux (`net/sched/sch_pie.c`,
//! `include/net/pie.h`), the queueing delay is the delay of the last packet that left, and ECN-capable packets are
//! marked while the probability is low. The limit is the link's queue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant};

use super::fifo::Fifo;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `pie`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PieConfig {
    /// Target of the queueing delay (QDELAY_REF of RFC 8033 4.2).
    pub target: Duration,
    /// Time between updates of the probability (T_UPDATE). Linux rounds it up to ticks: 20 ms at HZ = 100.
    pub tupdate: Duration,
    /// Gain for the deviation from the target, in sixteenths per second.
    pub alpha: u32,
    /// Gain for the change of the delay, in sixteenths per second.
    pub beta: u32,
    /// Whether ECN-capable packets are marked while the probability is at most 10 %.
    pub ecn: bool,
    /// Whether small packets are dropped less often, in proportion to their size.
    pub bytemode: bool,
    /// Whether the delay is estimated from the backlog and the departure rate, as in RFC 8033 5.3.
    pub dq_rate_estimator: bool,
}

impl Default for PieConfig {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            tupdate: Duration::from_millis(15),
            alpha: 2,
            beta: 20,
            ecn: false,
            bytemode: false,
            dq_rate_estimator: false,
        }
    }
}

impl Parameters for PieConfig {
    fn fault(&self) -> Option<&'static str> {
        (self.tupdate == Duration::ZERO).then_some(NO_UPDATES)
    }
}

pub(super) const NO_UPDATES: &str =
    "tupdate is zero; give the time between updates of the probability, such as \"15 ms\"";

/// Time of the first update of the probability after the begin of the run.
const FIRST_UPDATE: Instant = Instant::from_nanos(500_000_000);
/// Burst allowance: time for which nothing is dropped after a period without congestion (RFC 8033 4.4).
const BURST: Duration = Duration::from_millis(150);
/// Backlog up to which nothing is dropped: two full packets (RFC 8033 4.1).
const FLOOR: Bytes = Bytes::new(2 * LARGEST_PACKET.as_u64());
/// Accumulated probability below which no packet, and from which every packet is dropped (RFC 8033 5.4).
const NEVER_BELOW: f64 = 0.85;
const ALWAYS_FROM: f64 = 8.5;
/// Delay from which on the probability grows quickly (RFC 8033 5.5).
const LONG_WAIT: Duration = Duration::from_millis(250);
/// Largest single increase of a probability that is at least 10 %, and additional increase at a long delay.
const STEP: f64 = 0.02;
/// Probability above which ECN-capable packets are dropped instead of marked.
const MOST_TO_MARK: f64 = 0.1;
/// Bytes per measurement of the departure rate (DQ_THRESHOLD of RFC 8033 5.3).
const MEASURED: Bytes = Bytes::new(16_384);

/// State of PIE for one queue, with the drop probability.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Control {
    pub(super) probability: f64,
    /// Sum of the probabilities since the last drop (PIE->accu_prob_).
    accumulated: f64,
    burst: Duration,
    wait: Duration,
    wait_before: Duration,
    /// Time at which the last packet left, or with `dq_rate_estimator`, at which the measurement began.
    since: Option<Instant>,
    drain: Drain,
    next_update: Instant,
}

/// Measurement of the departure rate (RFC 8033 5.3).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Drain {
    /// Bytes that left since the measurement began; `None` between measurements.
    counted: Option<Bytes>,
    /// Smoothed departure rate in bytes per ns; 0 while unknown.
    rate: f64,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            probability: 0.0,
            accumulated: 0.0,
            burst: BURST,
            wait: Duration::ZERO,
            wait_before: Duration::ZERO,
            since: None,
            drain: Drain::default(),
            next_update: FIRST_UPDATE,
        }
    }
}

impl Control {
    /// Make all updates of the probability that were due until `now`; the backlog was `backlog` all that time.
    #[inline]
    pub(super) fn catch_up(&mut self, config: &PieConfig, now: Instant, backlog: Bytes) {
        if self.next_update <= now {
            self.run_updates(config, now, backlog);
        }
    }

    fn run_updates(&mut self, config: &PieConfig, now: Instant, backlog: Bytes) {
        while self.next_update <= now {
            let (next, before) = (self.next_update + config.tupdate, self.clone());
            self.update(config, backlog);
            if *self == before {
                // Nothing changes any more until a packet arrives or leaves, so the remaining updates are skipped.
                let idle = now.saturating_since(self.next_update).as_nanos();
                let periods = idle / config.tupdate.as_nanos();
                self.next_update += config.tupdate * (periods + 1);
            } else {
                self.next_update = next;
            }
        }
    }

    /// Update the probability once: `pie_calculate_probability`, RFC 8033 4.2 and 5.5.
    fn update(&mut self, config: &PieConfig, backlog: Bytes) {
        if config.dq_rate_estimator {
            self.wait_before = self.wait;
            let drain_ns = backlog.as_u64() as f64 / self.drain.rate;
            let is_known = self.drain.rate > 0.0;
            self.wait =
                if is_known { Duration::from_nanos(drain_ns as u64) } else { Duration::ZERO };
        }
        let (wait_s, before_s) = (self.wait.as_secs_f64(), self.wait_before.as_secs_f64());
        let scale = scale(self.probability) / 16.0;
        let mut step = f64::from(config.alpha) * scale * (wait_s - config.target.as_secs_f64())
            + f64::from(config.beta) * scale * (wait_s - before_s);
        if step > STEP && self.probability >= 0.1 {
            step = STEP;
        }
        if self.wait > LONG_WAIT {
            step += STEP;
        }
        self.probability = (self.probability + step).clamp(0.0, 1.0);
        let is_idle = self.wait == Duration::ZERO && self.wait_before == Duration::ZERO;
        if is_idle && backlog == Bytes::ZERO {
            self.probability -= self.probability / 64.0;
        }
        let half = config.target / 2;
        let is_rate_known = !config.dq_rate_estimator || self.drain.rate > 0.0;
        let is_calm = self.wait < half && self.wait_before < half && self.probability == 0.0;
        if is_calm && is_rate_known {
            self.reset();
        }
        self.wait_before = self.wait;
    }

    /// Reset the variables after a period without congestion: `pie_vars_init`.
    fn reset(&mut self) {
        self.burst = BURST;
        self.since = None;
        self.accumulated = 0.0;
        self.drain = Drain::default();
    }

    /// Whether to drop a packet that arrives at a queue of `backlog`: `pie_drop_early`, RFC 8033 4.1 and 5.4.
    #[inline]
    pub(super) fn should_drop(
        &mut self,
        config: &PieConfig,
        backlog: Bytes,
        wire_size: Bytes,
        rng: &mut LinkRng,
    ) -> bool {
        if self.burst > Duration::ZERO
            || (self.wait < config.target / 2 && self.probability < 0.2)
            || backlog < FLOOR
        {
            return false;
        }
        let mut probability = self.probability;
        if config.bytemode && wire_size <= LARGEST_PACKET {
            probability *= wire_size.as_u64() as f64 / LARGEST_PACKET.as_u64() as f64;
        }
        self.accumulated = if probability == 0.0 { 0.0 } else { self.accumulated + probability };
        if self.accumulated < NEVER_BELOW {
            return false;
        }
        if self.accumulated >= ALWAYS_FROM {
            return true;
        }
        let drops = rng.draw() < probability;
        if drops {
            self.accumulated = 0.0;
        }
        drops
    }

    /// Note that a packet was dropped.
    pub(super) fn on_drop(&mut self) {
        self.accumulated = 0.0;
    }

    /// Note that a packet leaves and `backlog` remains: `pie_process_dequeue`.
    #[inline]
    pub(super) fn on_leave<P>(
        &mut self,
        config: &PieConfig,
        now: Instant,
        leaving: &Queued<P>,
        backlog: Bytes,
    ) {
        let passed = if config.dq_rate_estimator {
            self.measure(now, leaving.packet.wire_size, backlog)
        } else {
            let is_last = backlog == Bytes::ZERO;
            self.wait = if is_last { Duration::ZERO } else { now.saturating_since(leaving.since) };
            self.since.replace(now).map_or(Duration::ZERO, |since| now.saturating_since(since))
        };
        self.burst = self.burst.saturating_sub(passed);
    }

    /// Measure the departure rate (RFC 8033 5.3); return the duration of a measurement that ends now, and else zero.
    fn measure(&mut self, now: Instant, wire_size: Bytes, backlog: Bytes) -> Duration {
        if backlog >= MEASURED && self.drain.counted.is_none() {
            self.since = Some(now);
            self.drain.counted = Some(Bytes::ZERO);
        }
        let (Some(counted), Some(since)) = (self.drain.counted, self.since) else {
            return Duration::ZERO;
        };
        let counted = counted + wire_size;
        self.drain.counted = Some(counted);
        let took = now.saturating_since(since);
        if counted < MEASURED || took == Duration::ZERO {
            return Duration::ZERO;
        }
        let rate = counted.as_u64() as f64 / took.as_nanos() as f64;
        let is_first = self.drain.rate == 0.0;
        self.drain.rate = if is_first { rate } else { self.drain.rate * 0.875 + rate * 0.125 };
        if backlog < MEASURED {
            self.drain.counted = None;
        } else {
            self.drain.counted = Some(Bytes::ZERO);
            self.since = Some(now);
        }
        took
    }
}

/// Factor of the gains at low probabilities (RFC 8033 4.2): a half below 0.1, and a quarter of that for each further
/// power of ten.
fn scale(probability: f64) -> f64 {
    if probability >= 0.1 {
        return 1.0;
    }
    let (mut scale, mut power) = (0.5, 100.0);
    while probability < 1.0 / power && power <= 1e6 {
        scale /= 4.0;
        power *= 10.0;
    }
    scale
}

#[derive(Debug)]
pub(crate) struct Pie<P> {
    config: PieConfig,
    queue: Fifo<P>,
    limit: Limit,
    control: Control,
    rng: LinkRng,
}

impl<P> Pie<P> {
    pub(crate) fn new(config: &PieConfig, limit: Limit, seed: u64) -> Self {
        Self {
            config: config.clone(),
            queue: Fifo::within(limit),
            limit,
            control: Control::default(),
            rng: LinkRng::for_queue(seed),
        }
    }
}

impl<P> Qdisc<P> for Pie<P> {
    #[inline]
    fn enqueue(&mut self, mut arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let (now, wire_size) = (arriving.since, arriving.packet.wire_size);
        let Backlog { bytes, .. } = self.queue.backlog();
        self.control.catch_up(&self.config, now, bytes);
        let mut with_it = self.queue.backlog();
        with_it.add(wire_size);
        let is_lost = !self.limit.allows(with_it)
            || self.control.should_drop(&self.config, bytes, wire_size, &mut self.rng)
                && !(self.config.ecn
                    && self.control.probability <= MOST_TO_MARK
                    && verdicts.mark(&mut arriving.packet));
        if is_lost {
            self.control.on_drop();
            verdicts.lose(now, LossReason::Queue, arriving.packet);
        } else {
            self.queue.enqueue(arriving, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, _: &mut Verdicts<P>) -> Option<Queued<P>> {
        self.control.catch_up(&self.config, now, self.queue.backlog().bytes);
        let first = self.queue.pop()?;
        self.control.on_leave(&self.config, now, &first, self.queue.backlog().bytes);
        Some(first)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use skyhop_model::{Dscp, Ecn};

    use super::super::trial::{Fate, Ledger, Offered, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// State variables of RFC 8033 4 and 5, with Linux's measure of the delay, updated at every period.
    #[derive(Clone)]
    pub(in super::super) struct Variables {
        config: PieConfig,
        pub(in super::super) p: f64,
        sum: f64,
        burst_ns: u64,
        wait_s: f64,
        before_s: f64,
        left_ns: Option<u64>,
        next_ns: u64,
    }

    impl Variables {
        pub(in super::super) fn new(config: &PieConfig) -> Self {
            Self {
                config: config.clone(),
                p: 0.0,
                sum: 0.0,
                burst_ns: 150_000_000,
                wait_s: 0.0,
                before_s: 0.0,
                left_ns: None,
                next_ns: 500_000_000,
            }
        }

        pub(in super::super) fn run_until(&mut self, now: u64, backlog: u64) {
            while self.next_ns <= now {
                self.next_ns += self.config.tupdate.as_nanos();
                self.tick(backlog);
            }
        }

        fn tick(&mut self, backlog: u64) {
            let target_s = self.config.target.as_secs_f64();
            // Factors of RFC 8033 4.2.
            let below = [(1e-6, 2048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (0.01, 8.0)];
            let part = below.iter().chain(&[(0.1, 2.0)]).find(|(least, _)| self.p < *least);
            let part = part.map_or(1.0, |(_, part)| *part) * 16.0;
            let alpha = f64::from(self.config.alpha) / part;
            let beta = f64::from(self.config.beta) / part;
            let mut step = alpha * (self.wait_s - target_s) + beta * (self.wait_s - self.before_s);
            if self.p >= 0.1 {
                step = step.min(0.02);
            }
            if self.wait_s > 0.25 {
                step += 0.02;
            }
            self.p = (self.p + step).clamp(0.0, 1.0);
            if self.wait_s == 0.0 && self.before_s == 0.0 && backlog == 0 {
                self.p *= 1.0 - 1.0 / 64.0;
            }
            if self.wait_s < target_s / 2.0 && self.before_s < target_s / 2.0 && self.p == 0.0 {
                (self.burst_ns, self.sum, self.left_ns) = (150_000_000, 0.0, None);
            }
            self.before_s = self.wait_s;
        }

        pub(in super::super) fn should_drop(
            &mut self,
            backlog: u64,
            bytes: u64,
            rng: &mut LinkRng,
        ) -> bool {
            let is_calm = self.wait_s < self.config.target.as_secs_f64() / 2.0 && self.p < 0.2;
            if self.burst_ns > 0 || is_calm || backlog < 2 * 1514 {
                return false;
            }
            let part = if self.config.bytemode { bytes as f64 / 1514.0 } else { 1.0 };
            self.sum += self.p * part;
            if self.p == 0.0 {
                self.sum = 0.0;
            }
            let drops = self.sum >= 8.5 || self.sum >= 0.85 && rng.draw() < self.p * part;
            if drops && self.sum < 8.5 {
                self.sum = 0.0;
            }
            drops
        }

        pub(in super::super) fn dropped(&mut self) {
            self.sum = 0.0;
        }

        pub(in super::super) fn left(&mut self, now: u64, wait_ns: u64, backlog: u64) {
            self.wait_s = if backlog == 0 { 0.0 } else { wait_ns as f64 / 1e9 };
            let since_last = self.left_ns.map_or(0, |left| now - left);
            self.burst_ns = self.burst_ns.saturating_sub(since_last);
            self.left_ns = Some(now);
        }
    }

    struct Reference {
        ledger: Ledger,
        variables: Variables,
        rng: LinkRng,
        most: usize,
        waiting: Vec<usize>,
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let backlog = self.ledger.sum(&self.waiting);
            let Self { ledger, variables, .. } = self;
            variables.run_until(now, backlog);
            let ecn = variables.config.ecn && variables.p <= 0.1;
            let is_lost = self.waiting.len() == self.most
                || variables.should_drop(backlog, ledger.bytes(number), &mut self.rng)
                    && !(ecn && ledger.mark(number));
            if is_lost {
                variables.dropped();
                ledger.drop(number, now);
            } else {
                self.waiting.push(number);
            }
        }

        fn dequeue(&mut self, now: u64) {
            self.variables.run_until(now, self.ledger.sum(&self.waiting));
            if self.waiting.is_empty() {
                return;
            }
            let first = self.waiting.remove(0);
            let wait_ns = self.ledger.wait_ns(first, now);
            self.variables.left(now, wait_ns, self.ledger.sum(&self.waiting));
            self.ledger.leave(first, now);
        }
    }

    pub(in super::super) fn config() -> impl Strategy<Value = PieConfig> {
        (1_u64..30, 1_u64..30, 0_u32..33, 0_u32..400, any::<bool>(), any::<bool>()).prop_map(
            |(target, tupdate, alpha, beta, ecn, bytemode)| PieConfig {
                target: Duration::from_millis(target),
                tupdate: Duration::from_millis(tupdate),
                alpha,
                beta,
                ecn,
                bytemode,
                dq_rate_estimator: false,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_the_rfc_says(train in train(), config in config(), most in 1_usize..200) {
            let qdisc = Pie::new(&config, Limit::Packets(most as u64), 3);
            let (ledger, variables) = (Ledger::default(), Variables::new(&config));
            let rng = LinkRng::for_queue(3);
            let reference = Reference { ledger, variables, rng, most, waiting: Vec::new() };
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    /// Delays in ms, and number of drops, in the last third of 60 s of an unresponsive load of 105 % of the departure
    /// rate.
    fn overload(config: &PieConfig) -> (Vec<f64>, usize) {
        let mut pie = Pie::new(config, Limit::Packets(1_000), 3);
        let (mut verdicts, mut waits, mut lost) = (Verdicts::new(), Vec::new(), 0);
        for number in 0..60_000_u64 {
            let since = Instant::from_nanos(number * 950_000);
            let packet = Packet::new(LARGEST_PACKET, ()).with_flow(1, Ecn::NotEct);
            pie.enqueue(Queued { since, packet }, &mut verdicts);
            while pie.backlog().packets > 0 && number * 95 / 100 > waits.len() as u64 {
                let now = Instant::from_nanos(1_000_000 * (1 + waits.len() as u64));
                if now > since {
                    break;
                }
                let left = pie.dequeue(now.max(since), &mut verdicts).expect("it waits");
                waits.push(since.saturating_since(left.since).as_secs_f64() * 1e3);
            }
            lost += verdicts.take_lost().len() * usize::from(number > 40_000);
        }
        (waits.split_off(40_000), lost)
    }

    #[test]
    fn an_overload_that_does_not_answer_is_kept_near_the_target() {
        for estimates in [false, true] {
            let config = PieConfig { dq_rate_estimator: estimates, ..PieConfig::default() };
            let (waits_ms, lost) = overload(&config);
            let mean = waits_ms.iter().sum::<f64>() / waits_ms.len() as f64;
            assert!((10.0..20.0).contains(&mean), "{mean} ms with the estimator {estimates}");
            assert!((800..1_200).contains(&lost), "{lost} of 20000 are 5 %");
        }
    }

    #[test]
    fn a_burst_is_let_in_whole() {
        let offered = |n: u64| Offered {
            at_ns: 1 + n * 1_000,
            flow: 1,
            bytes: 1514,
            is_capable: false,
            dscp: Dscp::Cs0,
        };
        let burst: Vec<Offered> = (0..140).map(offered).collect();
        let config = PieConfig::default();
        let (ledger, variables) = (Ledger::default(), Variables::new(&config));
        let rng = LinkRng::for_queue(3);
        let reference = Reference { ledger, variables, rng, most: 1_000, waiting: Vec::new() };
        let pie = Pie::new(&config, Limit::Packets(1_000), 3);
        let [fates, _] = fates(pie, reference, &(burst, vec![1_000_000; 140]));
        assert_eq!(fates.len(), 140);
        assert!(fates.values().all(|fate| matches!(fate, Fate::Left { .. })), "{fates:?}");
    }
}
