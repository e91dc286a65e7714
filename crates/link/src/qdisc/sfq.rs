//! Stochastic fairness queueing (McKenney, "Stochastic fairness queueing", 1990), as in Linux (`net/sched/sch_sfq.c`):
//! connections are hashed into queues, which are served by deficit round robin; if a packet does not fit, the packet at
//! the end of the longest queue is dropped. The discipline holds at most 127 packets, even if the link's limit is
//! larger.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant};

use super::flow_hash::FlowHash;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `sfq`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SfqConfig {
    /// Limit of packets in all queues, in addition to the limit of the link's queue.
    pub limit: NonZeroU32,
    /// Limit of packets in one queue.
    pub depth: NonZeroU32,
    /// Number of queues that may be in use at a time.
    pub flows: NonZeroU32,
    /// Number of values of the hash, a power of two.
    pub divisor: NonZeroU32,
    /// Bytes that a queue sends per round.
    pub quantum: Bytes,
    /// Time after which the hash gets a new random key; never if zero.
    pub perturb: Duration,
    /// Whether a full queue drops at its head instead of its tail.
    pub headdrop: bool,
}

impl Default for SfqConfig {
    fn default() -> Self {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        Self {
            limit: number(127),
            depth: number(127),
            flows: number(128),
            divisor: number(1024),
            quantum: LARGEST_PACKET,
            perturb: Duration::ZERO,
            headdrop: false,
        }
    }
}

impl Parameters for SfqConfig {
    fn fault(&self) -> Option<&'static str> {
        if !self.divisor.is_power_of_two() {
            return Some("divisor is not a power of two; give one, such as 1024");
        }
        (self.quantum == Bytes::ZERO).then_some(super::fq_codel::NO_QUANTUM)
    }
}

#[derive(Debug)]
pub(crate) struct Sfq<P> {
    config: SfqConfig,
    limit: Limit,
    rng: LinkRng,
    hash: FlowHash,
    next_perturbation: Instant,
    /// Index of the slot that serves each value of the hash, if any.
    slot_of: Box<[Option<u32>]>,
    slots: Vec<Slot<P>>,
    /// Indices of slots without packets; the last is used next.
    free: Vec<u32>,
    /// Indices of slots with packets, in the order in which they are served.
    turns: VecDeque<u32>,
    depths: Depths,
    backlog: Backlog,
}

/// Queue of the connections with one value of the hash.
#[derive(Debug)]
struct Slot<P> {
    waiting: VecDeque<Queued<P>>,
    /// Value of the hash that the slot serves.
    value: usize,
    /// Bytes that the slot may still send before the next slot is served.
    allotment: i64,
}

/// Slots by their number of packets; among slots with the same number, the one that reached it last comes last.
#[derive(Debug)]
struct Depths {
    with: Vec<Vec<u32>>,
    deepest: usize,
}

impl Depths {
    fn of(depth: usize) -> Self {
        Self { with: vec![Vec::new(); depth + 1], deepest: 0 }
    }

    /// Move a slot that had `from` packets and now has `to`.
    #[inline]
    fn change(&mut self, slot: u32, from: usize, to: usize) {
        if from > 0 {
            let equals = &mut self.with[from];
            let place = equals.iter().rposition(|one| *one == slot);
            place.map(|place| equals.remove(place));
        }
        if to > 0 {
            self.with[to].push(slot);
        }
        self.deepest = self.deepest.max(to);
        while self.deepest > 0 && self.with[self.deepest].is_empty() {
            self.deepest -= 1;
        }
    }
}

impl<P> Sfq<P> {
    pub(crate) fn new(config: &SfqConfig, limit: Limit, seed: u64) -> Self {
        let mut rng = LinkRng::for_queue(seed);
        let hash = FlowHash::random(&mut rng);
        let perturbs = config.perturb > Duration::ZERO;
        let slots = config.flows.get().min(config.divisor.get());
        let empty = || Slot { waiting: VecDeque::new(), value: 0, allotment: 0 };
        Self {
            config: config.clone(),
            limit,
            rng,
            hash,
            next_perturbation: if perturbs {
                Instant::START + config.perturb
            } else {
                Instant::NEVER
            },
            slot_of: vec![None; config.divisor.get() as usize].into(),
            slots: std::iter::repeat_with(empty).take(slots as usize).collect(),
            free: (0..slots).collect(),
            turns: VecDeque::new(),
            depths: Depths::of(config.depth.get() as usize),
            backlog: Backlog::default(),
        }
    }

    /// Draw a new hash if that is due, and sort the waiting packets again: `sfq_rehash`.
    #[inline]
    fn perturb(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        if now >= self.next_perturbation {
            self.rehash(now, verdicts);
        }
    }

    #[cold]
    fn rehash(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        while now >= self.next_perturbation {
            self.hash = FlowHash::random(&mut self.rng);
            self.next_perturbation += self.config.perturb;
        }
        let mut again = Vec::with_capacity(self.backlog.packets as usize);
        for index in 0..self.slots.len() as u32 {
            while let Some(queued) = self.take_first(index) {
                again.push(queued);
            }
        }
        self.turns.clear();
        for queued in again {
            if let Some(lost) = self.insert(queued) {
                verdicts.lose(now, LossReason::Queue, lost.packet);
            }
        }
    }

    /// Append a packet to its queue; return it if there is no room.
    #[inline]
    fn insert(&mut self, queued: Queued<P>) -> Option<Queued<P>> {
        let value = self.hash.masked(&queued.packet, self.slot_of.len());
        let index = match self.slot_of[value] {
            Some(index) => index,
            None => {
                let Some(index) = self.free.pop() else { return Some(queued) };
                self.slot_of[value] = Some(index);
                self.slots[index as usize].value = value;
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        let depth = slot.waiting.len();
        if depth >= self.config.depth.get() as usize {
            return Some(queued);
        }
        if depth == 0 {
            slot.allotment = self.config.quantum.as_u64() as i64;
            self.turns.push_back(index);
        }
        self.backlog.add(queued.packet.wire_size);
        slot.waiting.push_back(queued);
        self.depths.change(index, depth, depth + 1);
        None
    }

    /// Remove the slot's first packet.
    #[inline]
    fn take_first(&mut self, index: u32) -> Option<Queued<P>> {
        let first = self.slots[index as usize].waiting.pop_front()?;
        self.on_removed(index, first.packet.wire_size);
        Some(first)
    }

    /// Update the totals after a packet was removed from the slot.
    #[inline]
    fn on_removed(&mut self, index: u32, wire_size: Bytes) {
        let slot = &self.slots[index as usize];
        self.backlog.remove(wire_size);
        self.depths.change(index, slot.waiting.len() + 1, slot.waiting.len());
        if slot.waiting.is_empty() {
            self.slot_of[slot.value] = None;
            self.free.push(index);
        }
    }

    /// Drop from the longest queue (`sfq_drop`), among equal ones from the queue that reached that length last; if all
    /// queues have one packet, from the one that is served next.
    fn drop_from_longest(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let index = match self.depths.deepest {
            0 => return,
            1 => self.turns[0],
            deepest => self.depths.with[deepest][self.depths.with[deepest].len() - 1],
        };
        let waiting = &mut self.slots[index as usize].waiting;
        let lost = if self.config.headdrop { waiting.pop_front() } else { waiting.pop_back() };
        let Some(lost) = lost else { return };
        if waiting.is_empty() {
            self.turns.pop_front();
        }
        self.on_removed(index, lost.packet.wire_size);
        verdicts.lose(now, LossReason::Queue, lost.packet);
    }

    /// Handle a packet for a full queue: with `headdrop` the head of the queue is dropped in its place, else the
    /// packet.
    fn replace_head(&mut self, queued: Queued<P>, verdicts: &mut Verdicts<P>) {
        let value = self.hash.masked(&queued.packet, self.slot_of.len());
        let Some(index) = self.slot_of[value].filter(|_| self.config.headdrop) else {
            verdicts.lose(queued.since, LossReason::Queue, queued.packet);
            return;
        };
        let waiting = &mut self.slots[index as usize].waiting;
        self.backlog.add(queued.packet.wire_size);
        let now = queued.since;
        waiting.push_back(queued);
        if let Some(lost) = waiting.pop_front() {
            self.backlog.remove(lost.packet.wire_size);
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    fn is_within_limits(&self) -> bool {
        self.backlog.packets <= u64::from(self.config.limit.get())
            && self.limit.allows(self.backlog)
    }
}

impl<P> Qdisc<P> for Sfq<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        self.perturb(now, verdicts);
        if let Some(full) = self.insert(arriving) {
            self.replace_head(full, verdicts);
        }
        while !self.is_within_limits() {
            self.drop_from_longest(now, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        self.perturb(now, verdicts);
        loop {
            let index = *self.turns.front()?;
            let slot = &mut self.slots[index as usize];
            if slot.allotment > 0 {
                let first = self.take_first(index)?;
                let slot = &mut self.slots[index as usize];
                slot.allotment -= first.packet.wire_size.as_u64() as i64;
                if slot.waiting.is_empty() {
                    self.turns.pop_front();
                }
                return Some(first);
            }
            slot.allotment += self.config.quantum.as_u64() as i64;
            self.turns.rotate_left(1);
        }
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skyhop_model::Ecn;

    use super::super::trial::{Ledger, Offered, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// Linux's `sfq` on plain lists: queues in the order in which they are served, each with its value of the hash.
    struct Reference {
        ledger: Ledger,
        config: SfqConfig,
        value_of: Vec<usize>,
        /// Queues in the order in which they are served.
        queues: Vec<Queue>,
        changes: u64,
    }

    struct Queue {
        value: usize,
        allotment: i64,
        waiting: Vec<usize>,
        changed: u64,
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let value = self.value_of[number];
            self.changes += 1;
            let place = match self.queues.iter().position(|queue| queue.value == value) {
                Some(place) => place,
                None if self.queues.len() == self.config.flows.get() as usize => {
                    self.ledger.drop(number, now);
                    return;
                }
                None => {
                    let allotment = self.config.quantum.as_u64() as i64;
                    self.queues.push(Queue { value, allotment, waiting: vec![], changed: 0 });
                    self.queues.len() - 1
                }
            };
            let queue = &mut self.queues[place];
            if queue.waiting.len() == self.config.depth.get() as usize {
                let lost = if self.config.headdrop {
                    queue.waiting.push(number);
                    queue.waiting.remove(0)
                } else {
                    number
                };
                self.ledger.drop(lost, now);
                return;
            }
            queue.waiting.push(number);
            queue.changed = self.changes;
            let all: usize = self.queues.iter().map(|queue| queue.waiting.len()).sum();
            if all <= self.config.limit.get() as usize {
                return;
            }
            let longest = self.queues.iter().map(|queue| queue.waiting.len()).max().unwrap();
            let of_longest = |queue: &&Queue| queue.waiting.len() == longest;
            let last = self.queues.iter().filter(of_longest).map(|queue| queue.changed).max();
            let place = match longest {
                1 => 0,
                _ => self.queues.iter().position(|queue| Some(queue.changed) == last).unwrap(),
            };
            let queue = &mut self.queues[place];
            let end = if self.config.headdrop { 0 } else { queue.waiting.len() - 1 };
            self.ledger.drop(queue.waiting.remove(end), now);
            self.changes += 1;
            queue.changed = self.changes;
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }

        fn dequeue(&mut self, now: u64) {
            if self.queues.is_empty() {
                return;
            }
            while self.queues[0].allotment <= 0 {
                self.queues[0].allotment += self.config.quantum.as_u64() as i64;
                self.queues.rotate_left(1);
            }
            self.changes += 1;
            let first = self.queues[0].waiting.remove(0);
            self.queues[0].allotment -= self.ledger.bytes(first) as i64;
            self.queues[0].changed = self.changes;
            self.ledger.leave(first, now);
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }
    }

    fn config() -> impl Strategy<Value = SfqConfig> {
        let number = |n| NonZeroU32::new(n).unwrap();
        (1_u32..40, 1_u32..20, 1_u32..8, 0_u32..5, 100_u64..4_000, any::<bool>()).prop_map(
            move |(limit, depth, flows, divisor, quantum, headdrop)| SfqConfig {
                limit: number(limit),
                depth: number(depth),
                flows: number(flows),
                divisor: number(1 << divisor),
                quantum: Bytes::new(quantum),
                perturb: Duration::ZERO,
                headdrop,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_linux_does(train in train(), config in config()) {
            let qdisc = Sfq::new(&config, Limit::Packets(1_000), 3);
            let value = |offered: &Offered| qdisc.hash.masked(&offered.packet(), qdisc.slot_of.len());
            let value_of = train.0.iter().map(value).collect();
            let ledger = Ledger::default();
            let reference =
                Reference { ledger, config, value_of, queues: Vec::new(), changes: 0 };
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    fn offer(qdisc: &mut Sfq<u32>, now: Instant, flow: u32, verdicts: &mut Verdicts<u32>) {
        let packet = Packet::new(LARGEST_PACKET, flow).with_flow(flow, Ecn::NotEct);
        qdisc.enqueue(Queued { since: now, packet }, verdicts);
    }

    #[test]
    fn it_holds_127_packets_however_many_the_link_may() {
        let (config, mut verdicts) = (SfqConfig::default(), Verdicts::new());
        let mut qdisc = Sfq::new(&config, Limit::Packets(1_000), 3);
        for flow in 0..200 {
            offer(&mut qdisc, Instant::START, flow % 2, &mut verdicts);
        }
        assert_eq!((qdisc.backlog().packets, verdicts.take_lost().len()), (127, 73));
    }

    /// Serve ten flows, one of which sends ten times as much as each other one: all get the same share.
    #[test]
    fn flows_are_served_alike_and_the_hash_is_redrawn_every_so_often() {
        let perturb = Duration::from_millis(100);
        let config = SfqConfig { perturb, ..SfqConfig::default() };
        let mut qdisc = Sfq::new(&config, Limit::Packets(1_000), 3);
        let (mut verdicts, mut served, mut now) = (Verdicts::new(), [0_u32; 10], Instant::START);
        let mut hashes = Vec::new();
        for round in 0..20_000_u32 {
            for _ in 0..2 {
                let flow = if round % 2 == 0 { 0 } else { 1 + round / 2 % 9 };
                offer(&mut qdisc, now, flow, &mut verdicts);
            }
            now += Duration::from_micros(100);
            let left = qdisc.dequeue(now, &mut verdicts).expect("packets wait");
            served[left.packet.payload as usize] += 1;
            hashes.push(qdisc.hash.value(&left.packet.map(|_| ())));
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        assert!(*most as f64 <= 1.25 * *least as f64, "{served:?}");
        hashes.sort_unstable();
        hashes.dedup();
        // Each of the 20 periods gives the ten flows ten values of the hash.
        assert!((190..=210).contains(&hashes.len()), "{} hashes", hashes.len());
    }
}
