//! Flow queues with PIE (`net/sched/sch_fq_pie.c`): connections are hashed into queues, which are served by deficit
//! round robin as in `fq_codel`; each queue has its own PIE state. An arriving packet that does not fit is lost;
//! Linux's `memory_limit` is only a statistic, so it is no parameter here.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Ratio};

use super::flow_hash::FlowHash;
use super::fq_codel::{FLOWS, NO_QUANTUM};
use super::pie::{Control, NO_UPDATES};
use super::rotation::Rotation;
use super::{Backlog, Limit, Parameters, PieConfig, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `fq_pie`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FqPieConfig {
    /// Number of queues into which connections are hashed.
    pub flows: NonZeroU32,
    /// Bytes that a queue sends per round.
    pub quantum: Bytes,
    /// Drop probability up to which ECN-capable packets are marked instead, if `ecn` is set.
    pub ecn_prob: Ratio,
    /// Target of the queueing delay, as in `pie`.
    pub target: Duration,
    /// Time between updates of the probability, as in `pie`.
    pub tupdate: Duration,
    /// Gain for the deviation from the target, as in `pie`.
    pub alpha: u32,
    /// Gain for the change of the delay, as in `pie`.
    pub beta: u32,
    /// Whether ECN-capable packets are marked while the probability is at most `ecn_prob`.
    pub ecn: bool,
    /// Whether small packets are dropped less often, as in `pie`.
    pub bytemode: bool,
    /// Whether the delay is estimated from the departure rate, as in `pie`.
    pub dq_rate_estimator: bool,
}

impl Default for FqPieConfig {
    fn default() -> Self {
        let PieConfig { target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator } =
            PieConfig::default();
        Self {
            flows: FLOWS,
            quantum: LARGEST_PACKET,
            ecn_prob: Ratio::new(0.1).expect("a fraction"),
            target,
            tupdate,
            alpha,
            beta,
            ecn,
            bytemode,
            dq_rate_estimator,
        }
    }
}

impl Parameters for FqPieConfig {
    fn fault(&self) -> Option<&'static str> {
        if self.quantum == Bytes::ZERO {
            return Some(NO_QUANTUM);
        }
        (self.tupdate == Duration::ZERO).then_some(NO_UPDATES)
    }
}

#[derive(Debug)]
pub(crate) struct FqPie<P> {
    pie: PieConfig,
    most_to_mark: f64,
    limit: Limit,
    hash: FlowHash,
    rng: LinkRng,
    flows: Box<[Flow<P>]>,
    rotation: Rotation,
    backlog: Backlog,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Queued<P>>,
    bytes: Bytes,
    control: Control,
}

impl<P> FqPie<P> {
    pub(crate) fn new(config: &FqPieConfig, limit: Limit, seed: u64) -> Self {
        let &FqPieConfig { target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator, .. } =
            config;
        let mut rng = LinkRng::for_queue(seed);
        let flows = config.flows.get() as usize;
        let empty =
            || Flow { waiting: VecDeque::new(), bytes: Bytes::ZERO, control: Control::default() };
        Self {
            pie: PieConfig { target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator },
            most_to_mark: config.ecn_prob.fraction(),
            limit,
            hash: FlowHash::random(&mut rng),
            rng,
            flows: std::iter::repeat_with(empty).take(flows).collect(),
            rotation: Rotation::new(flows, config.quantum),
            backlog: Backlog::default(),
        }
    }
}

impl<P> Qdisc<P> for FqPie<P> {
    #[inline]
    fn enqueue(&mut self, mut arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let (now, wire_size) = (arriving.since, arriving.packet.wire_size);
        let queue = self.hash.scaled(&arriving.packet, self.flows.len());
        let flow = &mut self.flows[queue];
        flow.control.catch_up(&self.pie, now, flow.bytes);
        let mut with_it = self.backlog;
        with_it.add(wire_size);
        let is_lost = !self.limit.allows(with_it)
            || flow.control.should_drop(&self.pie, flow.bytes, wire_size, &mut self.rng)
                && !(self.pie.ecn
                    && flow.control.probability <= self.most_to_mark
                    && verdicts.mark(&mut arriving.packet));
        if is_lost {
            flow.control.on_drop();
            verdicts.lose(now, LossReason::Queue, arriving.packet);
            return;
        }
        self.backlog = with_it;
        flow.bytes += wire_size;
        flow.waiting.push_back(arriving);
        self.rotation.enlist(queue);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, _: &mut Verdicts<P>) -> Option<Queued<P>> {
        while let Some(queue) = self.rotation.current() {
            let flow = &mut self.flows[queue];
            let Some(first) = flow.waiting.pop_front() else {
                self.rotation.retire_current();
                continue;
            };
            let wire_size = first.packet.wire_size;
            flow.control.catch_up(&self.pie, now, flow.bytes);
            flow.bytes -= wire_size;
            flow.control.on_leave(&self.pie, now, &first, flow.bytes);
            self.backlog.remove(wire_size);
            self.rotation.charge(queue, wire_size);
            return Some(first);
        }
        None
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pie::tests::{Variables, config as pie_config};
    use super::super::trial::{Ledger, Offered, ReferenceQdisc, fates, train};
    use super::*;

    /// Linux's `fq_pie` on plain lists of packet numbers.
    struct Reference {
        ledger: Ledger,
        config: FqPieConfig,
        most: usize,
        queue_of: Vec<usize>,
        rng: LinkRng,
        queues: Vec<(Vec<usize>, Variables)>,
        deficits: Vec<i64>,
        new: Vec<usize>,
        old: Vec<usize>,
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let q = self.queue_of[number];
            let all: usize = self.queues.iter().map(|(waiting, _)| waiting.len()).sum();
            let (waiting, variables) = &mut self.queues[q];
            let backlog = self.ledger.sum(&*waiting);
            variables.run_until(now, backlog);
            let ecn = self.config.ecn && variables.p <= self.config.ecn_prob.fraction();
            let is_lost = all == self.most
                || variables.should_drop(backlog, self.ledger.bytes(number), &mut self.rng)
                    && !(ecn && self.ledger.mark(number));
            if is_lost {
                variables.dropped();
                self.ledger.drop(number, now);
                return;
            }
            waiting.push(number);
            if !self.new.contains(&q) && !self.old.contains(&q) {
                self.new.push(q);
                self.deficits[q] = self.config.quantum.as_u64() as i64;
            }
        }

        fn dequeue(&mut self, now: u64) {
            loop {
                let is_new = !self.new.is_empty();
                let list = if is_new { &mut self.new } else { &mut self.old };
                let Some(q) = list.first().copied() else { return };
                let (waiting, variables) = &mut self.queues[q];
                if self.deficits[q] <= 0 {
                    list.remove(0);
                    self.deficits[q] += self.config.quantum.as_u64() as i64;
                    self.old.push(q);
                } else if waiting.is_empty() {
                    list.remove(0);
                    if is_new && !self.old.is_empty() {
                        self.old.push(q);
                    }
                } else {
                    variables.run_until(now, self.ledger.sum(&*waiting));
                    let first = waiting.remove(0);
                    let wait_ns = self.ledger.wait_ns(first, now);
                    variables.left(now, wait_ns, self.ledger.sum(&*waiting));
                    self.deficits[q] -= self.ledger.bytes(first) as i64;
                    self.ledger.leave(first, now);
                    return;
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_linux_does(
            train in train(),
            pie in pie_config(),
            (flows, quantum, ecn_prob) in (1_u32..6, 100_u64..4_000, 0.0..1.0_f64),
            most in 1_usize..200,
        ) {
            let PieConfig { target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator } = pie.clone();
            let config = FqPieConfig {
                flows: NonZeroU32::new(flows).unwrap(),
                quantum: Bytes::new(quantum),
                ecn_prob: Ratio::new(ecn_prob).unwrap(),
                target, tupdate, alpha, beta, ecn, bytemode, dq_rate_estimator,
            };
            let qdisc = FqPie::new(&config, Limit::Packets(most as u64), 3);
            let queue = |offered: &Offered| qdisc.hash.scaled(&offered.packet(), qdisc.flows.len());
            let mut rng = LinkRng::for_queue(3);
            FlowHash::random(&mut rng);
            let reference = Reference {
                ledger: Ledger::default(),
                config,
                most,
                queue_of: train.0.iter().map(queue).collect(),
                rng,
                queues: vec![(Vec::new(), Variables::new(&pie)); flows as usize],
                deficits: vec![0; flows as usize],
                new: Vec::new(),
                old: Vec::new(),
            };
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }
}
