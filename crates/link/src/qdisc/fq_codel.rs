//! Flow queues with controlled delay (RFC 8290), with Linux's parameters (`net/sched/sch_fq_codel.c`):
//! connections are hashed into queues, which are served by deficit round robin, new flows first; each queue has
//! its own CoDel state. If a packet does not fit, packets at the head of the queue with most bytes are dropped.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant};

use super::codel::{Control, Source};
use super::flow_hash::FlowHash;
use super::rotation::Rotation;
use super::{Backlog, CodelConfig, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `fq_codel`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FqCodelConfig {
    /// CoDel TARGET (RFC 8289 4.3): acceptable time in the queue.
    pub target: Duration,
    /// CoDel INTERVAL (RFC 8289 4.3): how long the sojourn time may exceed `target`; about the maximum RTT.
    pub interval: Duration,
    /// Whether ECN-capable packets are marked rather than dropped.
    pub ecn: bool,
    /// Time in the queue beyond which ECN-capable packets are marked, independent of `ecn` and `interval`;
    /// never if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Duration>,
    /// Number of queues into which connections are hashed.
    pub flows: NonZeroU32,
    /// Bytes that a queue sends per round.
    pub quantum: Bytes,
    /// Largest number of packets dropped at once if the queue is full; never more than half of a flow's bytes.
    pub drop_batch: NonZeroU32,
    /// Limit of the memory of waiting packets, as the kernel counts it.
    pub memory: Bytes,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        let CodelConfig { target, interval, .. } = CodelConfig::default();
        Self {
            target,
            interval,
            ecn: true,
            ce_threshold: None,
            flows: FLOWS,
            quantum: LARGEST_PACKET,
            drop_batch: NonZeroU32::new(64).expect("not zero"),
            memory: MEMORY,
        }
    }
}

impl Parameters for FqCodelConfig {
    fn fault(&self) -> Option<&'static str> {
        (self.quantum == Bytes::ZERO).then_some(NO_QUANTUM)
    }
}

/// Default number of queues in Linux.
pub(super) const FLOWS: NonZeroU32 = NonZeroU32::new(1024).expect("not zero");
/// Default memory limit in Linux, 32 MiB.
const MEMORY: Bytes = Bytes::new(32 << 20);
pub(super) const NO_QUANTUM: &str =
    "quantum is zero, so that no queue could ever send; give a size, such as \"1514 B\"";

/// Kernel memory of a packet, its `truesize`: a data buffer, from a pool of powers of two, with head room and
/// `skb_shared_info`, and its `sk_buff`.
pub(super) fn memory_of(wire_size: Bytes) -> Bytes {
    const AROUND: u64 = 64 + 320;
    const SK_BUFF: u64 = 256;
    Bytes::new((wire_size.as_u64() + AROUND).next_power_of_two() + SK_BUFF)
}

#[derive(Debug)]
pub(crate) struct FqCodel<P> {
    codel: CodelConfig,
    drop_batch: u64,
    memory_limit: Bytes,
    limit: Limit,
    hash: FlowHash,
    flows: Box<[Flow<P>]>,
    rotation: Rotation,
    backlog: Backlog,
    memory: Bytes,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Queued<P>>,
    bytes: Bytes,
    control: Control,
}

impl<P> FqCodel<P> {
    pub(crate) fn new(config: &FqCodelConfig, limit: Limit, seed: u64) -> Self {
        let &FqCodelConfig {
            target,
            interval,
            ecn,
            ce_threshold,
            flows,
            quantum,
            drop_batch,
            memory,
        } = config;
        let flows = flows.get() as usize;
        let empty =
            || Flow { waiting: VecDeque::new(), bytes: Bytes::ZERO, control: Control::default() };
        Self {
            codel: CodelConfig { target, interval, ecn, ce_threshold },
            drop_batch: u64::from(drop_batch.get()),
            memory_limit: memory,
            limit,
            hash: FlowHash::random(&mut LinkRng::for_queue(seed)),
            flows: std::iter::repeat_with(empty).take(flows).collect(),
            rotation: Rotation::new(flows, quantum),
            backlog: Backlog::default(),
            memory: Bytes::ZERO,
        }
    }

    /// Drop packets at the head of the queue with most bytes (`fq_codel_drop`), of equal queues the first,
    /// until half of its bytes or `drop_batch` packets are dropped.
    #[cold]
    fn drop_from_fattest(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let fattest = |queue: &usize| (self.flows[*queue].bytes, std::cmp::Reverse(*queue));
        let Some(fat) = self.rotation.listed().max_by_key(fattest) else { return };
        let flow = &mut self.flows[fat];
        let half = Bytes::new(flow.bytes.as_u64() / 2);
        let (mut dropped, mut gone) = (0, Bytes::ZERO);
        while let Some(lost) = flow.waiting.pop_front() {
            let wire_size = lost.packet.wire_size;
            flow.bytes -= wire_size;
            self.backlog.remove(wire_size);
            self.memory -= memory_of(wire_size);
            verdicts.lose(now, LossReason::Queue, lost.packet);
            (dropped, gone) = (dropped + 1, gone + wire_size);
            if u64::from(dropped) >= self.drop_batch || gone >= half {
                break;
            }
        }
        flow.control.add_drops(dropped);
    }
}

impl<P> Qdisc<P> for FqCodel<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let (now, wire_size) = (arriving.since, arriving.packet.wire_size);
        let queue = self.hash.scaled(&arriving.packet, self.flows.len());
        let flow = &mut self.flows[queue];
        flow.bytes += wire_size;
        flow.waiting.push_back(arriving);
        self.rotation.enlist(queue);
        self.backlog.add(wire_size);
        self.memory += memory_of(wire_size);
        if self.memory > self.memory_limit {
            self.drop_from_fattest(now, verdicts);
        }
        while !self.limit.allows(self.backlog) {
            self.drop_from_fattest(now, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        while let Some(queue) = self.rotation.current() {
            let Flow { waiting, bytes, control } = &mut self.flows[queue];
            let (backlog, memory) = (&mut self.backlog, &mut self.memory);
            let mut head = FlowHead { waiting, bytes, backlog, memory };
            if let Some(first) = control.dequeue(&self.codel, now, &mut head, verdicts) {
                self.rotation.charge(queue, first.packet.wire_size);
                return Some(first);
            }
            self.rotation.retire_current();
        }
        None
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// A flow's queue as a source for CoDel, with the totals that must be kept consistent with it.
struct FlowHead<'f, P> {
    waiting: &'f mut VecDeque<Queued<P>>,
    bytes: &'f mut Bytes,
    backlog: &'f mut Backlog,
    memory: &'f mut Bytes,
}

impl<P> Source<P> for FlowHead<'_, P> {
    #[inline]
    fn pull(&mut self) -> Option<Queued<P>> {
        let first = self.waiting.pop_front()?;
        let wire_size = first.packet.wire_size;
        *self.bytes -= wire_size;
        self.backlog.remove(wire_size);
        *self.memory -= memory_of(wire_size);
        Some(first)
    }

    /// Backlog of all flows, not only of this one, as in Linux: packets of a short queue may be dropped while
    /// other queues are long.
    #[inline]
    fn backlog_bytes(&self) -> Bytes {
        self.backlog.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::trial::{Ledger, Offered, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// RFC 8290 4 and RFC 8289 5 on plain lists, with Linux's additions: marks, and drops in batches.
    struct Reference {
        ledger: Ledger,
        config: FqCodelConfig,
        most: usize,
        queue_of: Vec<usize>,
        queues: Vec<Queue>,
        new: Vec<usize>,
        old: Vec<usize>,
    }

    #[derive(Default, Clone)]
    struct Queue {
        waiting: Vec<usize>,
        deficit: i64,
        first_above: u64,
        dropping: bool,
        drop_next: u64,
        count: u64,
        last_count: u64,
    }

    impl Reference {
        fn new(config: &FqCodelConfig, most: usize, queue_of: Vec<usize>) -> Self {
            Self {
                ledger: Ledger::default(),
                config: config.clone(),
                most,
                queue_of,
                queues: vec![Queue::default(); config.flows.get() as usize],
                new: Vec::new(),
                old: Vec::new(),
            }
        }

        fn waiting(&self) -> Vec<usize> {
            self.queues.iter().flat_map(|queue| queue.waiting.clone()).collect()
        }

        fn pull(&mut self, q: usize, now: u64) -> (Option<usize>, bool) {
            if self.queues[q].waiting.is_empty() {
                self.queues[q].first_above = 0;
                return (None, false);
            }
            let p = self.queues[q].waiting.remove(0);
            let is_short = self.ledger.wait_ns(p, now) < self.config.target.as_nanos();
            let left = self.ledger.sum(&self.waiting());
            let queue = &mut self.queues[q];
            if is_short || left <= 1514 {
                queue.first_above = 0;
            } else if queue.first_above == 0 {
                queue.first_above = now + self.config.interval.as_nanos();
            } else if now >= queue.first_above {
                return (Some(p), true);
            }
            (Some(p), false)
        }

        fn control_law(&self, q: usize, from: u64) -> u64 {
            let interval = self.config.interval.as_nanos() as f64;
            from + (interval / (self.queues[q].count as f64).sqrt()) as u64
        }

        fn codel(&mut self, q: usize, now: u64) -> Option<usize> {
            let (mut p, mut ok_to_drop) = self.pull(q, now);
            if self.queues[q].dropping {
                self.queues[q].dropping = ok_to_drop;
                while self.queues[q].dropping && now >= self.queues[q].drop_next {
                    self.queues[q].count += 1;
                    if self.config.ecn && self.ledger.mark(p.unwrap()) {
                        self.queues[q].drop_next = self.control_law(q, self.queues[q].drop_next);
                        return p;
                    }
                    self.ledger.drop(p.unwrap(), now);
                    (p, ok_to_drop) = self.pull(q, now);
                    self.queues[q].dropping = ok_to_drop;
                    if ok_to_drop {
                        self.queues[q].drop_next = self.control_law(q, self.queues[q].drop_next);
                    }
                }
            } else if ok_to_drop {
                if !(self.config.ecn && self.ledger.mark(p.unwrap())) {
                    self.ledger.drop(p.unwrap(), now);
                    (p, _) = self.pull(q, now);
                }
                let queue = &mut self.queues[q];
                queue.dropping = true;
                let delta = queue.count - queue.last_count;
                let is_recent =
                    now.saturating_sub(queue.drop_next) < 16 * self.config.interval.as_nanos();
                queue.count = if delta > 1 && is_recent { delta } else { 1 };
                queue.last_count = queue.count;
                self.queues[q].drop_next = self.control_law(q, now);
            }
            p
        }
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let q = self.queue_of[number];
            self.queues[q].waiting.push(number);
            if !self.new.contains(&q) && !self.old.contains(&q) {
                self.new.push(q);
                self.queues[q].deficit = self.config.quantum.as_u64() as i64;
            }
            if self.waiting().len() <= self.most {
                return;
            }
            let bytes = |q: &usize| self.ledger.sum(&self.queues[*q].waiting);
            let fat = (0..self.queues.len()).rev().max_by_key(bytes).unwrap();
            let (half, mut gone, mut dropped) = (bytes(&fat) / 2, 0, 0);
            loop {
                let p = self.queues[fat].waiting.remove(0);
                self.ledger.drop(p, now);
                gone += self.ledger.bytes(p);
                dropped += 1;
                if dropped == self.config.drop_batch.get() || gone >= half {
                    break;
                }
            }
            self.queues[fat].count += u64::from(dropped);
        }

        fn dequeue(&mut self, now: u64) {
            loop {
                let is_new = !self.new.is_empty();
                let list = if is_new { &mut self.new } else { &mut self.old };
                let Some(q) = list.first().copied() else { return };
                if self.queues[q].deficit <= 0 {
                    list.remove(0);
                    self.queues[q].deficit += self.config.quantum.as_u64() as i64;
                    self.old.push(q);
                    continue;
                }
                if let Some(p) = self.codel(q, now) {
                    self.queues[q].deficit -= self.ledger.bytes(p) as i64;
                    let most_ns = self.config.ce_threshold.map(Duration::as_nanos);
                    if most_ns.is_some_and(|most| self.ledger.wait_ns(p, now) > most) {
                        self.ledger.mark(p);
                    }
                    self.ledger.leave(p, now);
                    return;
                }
                if is_new {
                    self.new.remove(0);
                    if !self.old.is_empty() {
                        self.old.push(q);
                    }
                } else {
                    self.old.remove(0);
                }
            }
        }
    }

    fn config() -> impl Strategy<Value = FqCodelConfig> {
        let (flows, batch) = (1_u32..6, 1_u32..5);
        let ce_threshold = prop::option::of((0_u64..40).prop_map(Duration::from_millis));
        let marks = (any::<bool>(), ce_threshold);
        (1_u64..20, 5_u64..60, marks, flows, 100_u64..4_000, batch).prop_map(
            |(target, interval, (ecn, ce_threshold), flows, quantum, batch)| FqCodelConfig {
                target: Duration::from_millis(target),
                interval: Duration::from_millis(interval),
                ecn,
                ce_threshold,
                flows: NonZeroU32::new(flows).unwrap(),
                quantum: Bytes::new(quantum),
                drop_batch: NonZeroU32::new(batch).unwrap(),
                memory: MEMORY,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_the_rfcs_say(train in train(), config in config(), most in 1_usize..60) {
            let qdisc = FqCodel::new(&config, Limit::Packets(most as u64), 3);
            let queue = |offered: &Offered| qdisc.hash.scaled(&offered.packet(), qdisc.flows.len());
            let queue_of = train.0.iter().map(queue).collect();
            let reference = Reference::new(&config, most, queue_of);
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    fn packet(flow: u32, payload: usize) -> Packet<usize> {
        Packet::new(LARGEST_PACKET, payload).with_flow(flow, skyhop_model::Ecn::NotEct)
    }

    #[test]
    fn a_flow_with_a_packet_now_and_then_never_waits_for_one_that_fills_the_queue() {
        let mut qdisc = FqCodel::new(&FqCodelConfig::default(), Limit::Packets(10_240), 3);
        let mut verdicts = Verdicts::new();
        let mut now = Instant::START;
        let mut waits = Vec::new();
        for round in 0..1_000 {
            for _ in 0..2 {
                qdisc.enqueue(Queued { since: now, packet: packet(1, 0) }, &mut verdicts);
            }
            if round % 10 == 0 {
                qdisc.enqueue(Queued { since: now, packet: packet(2, 1) }, &mut verdicts);
            }
            now += Duration::from_millis(1);
            let left = qdisc.dequeue(now, &mut verdicts).expect("packets wait");
            if left.packet.payload == 1 {
                waits.push(now.saturating_since(left.since));
            }
        }
        assert_eq!(waits.len(), 100);
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(3)), "{waits:?}");
    }

    #[test]
    fn memory_is_a_limit_in_addition_to_the_links_queue() {
        // A full packet takes 2304 bytes, as Linux counts it.
        assert_eq!(memory_of(LARGEST_PACKET), Bytes::new(2_304));
        let config = FqCodelConfig { memory: Bytes::new(23_040), ..FqCodelConfig::default() };
        let mut qdisc = FqCodel::new(&config, Limit::Packets(10_240), 3);
        let mut verdicts = Verdicts::new();
        for number in 0..10 {
            qdisc.enqueue(
                Queued { since: Instant::START, packet: packet(1, number) },
                &mut verdicts,
            );
        }
        assert!(verdicts.take_lost().is_empty());
        qdisc.enqueue(Queued { since: Instant::START, packet: packet(1, 10) }, &mut verdicts);
        let lost: Vec<usize> =
            verdicts.take_lost().iter().map(|drop| drop.packet.payload).collect();
        assert_eq!(lost, [0, 1, 2, 3, 4, 5], "half of the bytes, from the head");
    }
}
