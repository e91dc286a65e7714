//! First in, first out. A full queue loses the arriving packet (drop-tail), or the packets at its head that the
//! arriving one needs the place of (drop-front, Linux's `pfifo_head_drop` in `net/sched/sch_fifo.c`).
//!
//! A link computes the queue with drop-tail ahead (`on_arrival.rs`) unless it has to be run step by step; the tests
//! compare the two.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::LossReason;
use skyhop_units::{Duration, Instant};

use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::stats::Verdicts;

/// Parameters of the discipline `fifo`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FifoConfig {
    /// Packets that a full queue loses.
    pub drop: FifoDrop,
    /// Longest time in the queue, with drop = "front": a packet that has waited longer is lost when it would be
    /// transmitted. In addition to the limit of the link's queue; no such limit if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sojourn: Option<Duration>,
}

/// Packets that a full `fifo` loses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FifoDrop {
    /// The packet that arrives (drop-tail).
    #[default]
    Tail,
    /// The packets that have waited longest, until the arriving one fits (drop-front, Linux's pfifo_head_drop).
    Front,
}

impl FifoConfig {
    /// Whether the fate of a packet is known when it arrives.
    pub(crate) fn decides_on_arrival(&self) -> bool {
        self.drop == FifoDrop::Tail
    }
}

impl Parameters for FifoConfig {
    fn fault(&self) -> Option<&'static str> {
        let is_alone = self.max_sojourn.is_some() && self.drop == FifoDrop::Tail;
        is_alone
            .then_some("max_sojourn needs drop = \"front\"; give both, or leave max_sojourn out")
    }
}

#[derive(Debug)]
pub(crate) struct Fifo<P> {
    limit: Limit,
    drop: FifoDrop,
    /// Longest time in the queue; [`Duration::MAX`] without such a limit.
    max_sojourn: Duration,
    backlog: Backlog,
    waiting: VecDeque<Queued<P>>,
}

impl<P> Fifo<P> {
    pub(crate) fn new(config: &FifoConfig, limit: Limit, _seed: u64) -> Self {
        let max_sojourn = config.max_sojourn.unwrap_or(Duration::MAX);
        Self { drop: config.drop, max_sojourn, ..Self::within(limit) }
    }

    /// Create a queue that holds no more than `limit`, with drop-tail.
    pub(super) fn within(limit: Limit) -> Self {
        Self {
            limit,
            drop: FifoDrop::Tail,
            max_sojourn: Duration::MAX,
            backlog: Backlog::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Remove and return the packet that has waited longest.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        let first = self.waiting.pop_front()?;
        self.backlog.remove(first.packet.wire_size);
        Some(first)
    }

    /// Return the backlog with a packet that arrives.
    #[inline(always)]
    fn with(&self, arriving: &Queued<P>) -> Backlog {
        let mut with_it = self.backlog;
        with_it.add(arriving.packet.wire_size);
        with_it
    }

    /// Enqueue or lose a packet that finds the queue full.
    fn overflow(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        let mut alone = Backlog::default();
        alone.add(arriving.packet.wire_size);
        // A packet that does not even fit into the empty queue makes no other one lose its place.
        if self.drop == FifoDrop::Tail || !self.limit.allows(alone) {
            verdicts.lose(now, LossReason::Queue, arriving.packet);
            return;
        }
        while !self.limit.allows(self.with(&arriving)) {
            let Some(first) = self.pop() else { break };
            verdicts.lose(now, LossReason::Queue, first.packet);
        }
        self.backlog = self.with(&arriving);
        self.waiting.push_back(arriving);
    }
}

impl<P> Qdisc<P> for Fifo<P> {
    #[inline(always)]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let with_it = self.with(&arriving);
        if self.limit.allows(with_it) {
            self.backlog = with_it;
            self.waiting.push_back(arriving);
        } else {
            self.overflow(arriving, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        let mut first = self.pop()?;
        while now - first.since > self.max_sojourn {
            verdicts.lose(now, LossReason::Queue, first.packet);
            first = self.pop()?;
        }
        Some(first)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skyhop_units::Bytes;

    use super::super::trial::{Ledger, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// Drop-front on a plain list: what does not fit is taken from the list's beginning.
    struct Reference {
        limit_bytes: u64,
        max_sojourn_ns: u64,
        waiting: Vec<usize>,
        ledger: Ledger,
    }

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            self.waiting.push(number);
            if self.ledger.bytes(number) > self.limit_bytes {
                self.waiting.pop();
                self.ledger.drop(number, now);
            }
            while self.ledger.sum(&self.waiting) > self.limit_bytes {
                self.ledger.drop(self.waiting.remove(0), now);
            }
        }

        fn dequeue(&mut self, now: u64) {
            let is_old = |&number: &usize| self.ledger.wait_ns(number, now) > self.max_sojourn_ns;
            let old = self.waiting.iter().take_while(|number| is_old(number)).count();
            for number in self.waiting.drain(..old) {
                self.ledger.drop(number, now);
            }
            if !self.waiting.is_empty() {
                self.ledger.leave(self.waiting.remove(0), now);
            }
        }
    }

    proptest! {
        #[test]
        fn drop_front_does_what_a_plain_list_does(
            train in train(),
            limit_bytes in 1_000_u64..60_000,
            max_sojourn_ms in 1_u64..300,
        ) {
            let max_sojourn = Duration::from_millis(max_sojourn_ms);
            let config = FifoConfig { drop: FifoDrop::Front, max_sojourn: Some(max_sojourn) };
            let fifo = Fifo::new(&config, Limit::Bytes(Bytes::new(limit_bytes)), 0);
            let reference = Reference {
                limit_bytes,
                max_sojourn_ns: max_sojourn.as_nanos(),
                waiting: Vec::new(),
                ledger: Ledger::default(),
            };
            let [ours, theirs] = fates(fifo, reference, &train);
            prop_assert_eq!(ours, theirs);
        }
    }

    /// Packets by index: those lost, and those that leave, in order.
    type Fates = (Vec<usize>, Vec<usize>);

    /// Enqueue packets of these sizes, one a millisecond; take all out when `waits` ms have passed since the first.
    fn fill(config: &FifoConfig, limit: Limit, sizes: &[u64], waits: u64) -> Fates {
        let mut fifo = Fifo::new(config, limit, 0);
        let mut verdicts = Verdicts::new();
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        for (payload, &size) in sizes.iter().enumerate() {
            let packet = Packet::new(Bytes::new(size), payload);
            fifo.enqueue(Queued { since: at(payload as u64), packet }, &mut verdicts);
        }
        let out: Vec<usize> = std::iter::from_fn(|| fifo.dequeue(at(waits), &mut verdicts))
            .map(|queued| queued.packet.payload)
            .collect();
        assert_eq!(fifo.backlog(), Backlog::default());
        (verdicts.take_lost().into_iter().map(|drop| drop.packet.payload).collect(), out)
    }

    fn tail(limit: Limit, sizes: &[u64]) -> Fates {
        fill(&FifoConfig::default(), limit, sizes, 100)
    }

    fn front(limit: Limit, sizes: &[u64]) -> Fates {
        fill(&FifoConfig { drop: FifoDrop::Front, max_sojourn: None }, limit, sizes, 100)
    }

    #[test]
    fn a_limit_in_packets_ignores_their_size() {
        assert_eq!(tail(Limit::Packets(2), &[9000, 64, 64]), (vec![2], vec![0, 1]));
    }

    #[test]
    fn a_limit_in_bytes_lets_a_small_packet_in_where_a_large_one_did_not_fit() {
        let limit = Limit::Bytes(Bytes::new(3000));
        assert_eq!(tail(limit, &[1500, 1400, 101, 100, 1]), (vec![2, 4], vec![0, 1, 3]));
    }

    #[test]
    fn drop_front_loses_one_packet_at_the_head_for_each_beyond_a_limit_in_packets() {
        let lost_and_left = front(Limit::Packets(2), &[9000, 64, 64, 9000]);
        assert_eq!(lost_and_left, (vec![0, 1], vec![2, 3]));
    }

    #[test]
    fn drop_front_loses_as_many_at_the_head_as_a_packet_needs_bytes() {
        let limit = Limit::Bytes(Bytes::new(3000));
        // The large one takes the place of two; one that never fits takes none.
        let lost_and_left = front(limit, &[500, 500, 500, 1000, 1500, 3001, 1000, 100]);
        assert_eq!(lost_and_left, (vec![0, 1, 5, 2, 3], vec![4, 6, 7]));
    }

    #[test]
    fn packets_that_have_waited_longer_than_the_longest_sojourn_are_lost_at_the_head() {
        let max_sojourn = Some(Duration::from_millis(5));
        let config = FifoConfig { drop: FifoDrop::Front, max_sojourn };
        let after = |ms| fill(&config, Limit::Packets(9), &[1500; 4], ms);
        assert_eq!(after(5), (vec![], vec![0, 1, 2, 3]), "exactly as long is not longer");
        assert_eq!(after(7), (vec![0, 1], vec![2, 3]));
        assert_eq!(after(9), (vec![0, 1, 2, 3], vec![]));
    }
}
