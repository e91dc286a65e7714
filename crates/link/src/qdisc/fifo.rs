//! First in, first out: a packet that does not fit when it arrives is lost (drop-tail).
//!
//! A link computes this queue ahead (`on_arrival.rs`) unless it has to be run step by step; the tests compare
//! the two.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::LossReason;
use skyhop_units::Instant;

use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::stats::Verdicts;

/// Parameters of `fifo`, which has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FifoConfig {}

impl Parameters for FifoConfig {}

#[derive(Debug)]
pub(crate) struct Fifo<P> {
    limit: Limit,
    backlog: Backlog,
    waiting: VecDeque<Queued<P>>,
}

impl<P> Fifo<P> {
    pub(crate) fn new(_: &FifoConfig, limit: Limit, _seed: u64) -> Self {
        Self::within(limit)
    }

    /// Create a queue that holds no more than `limit`.
    pub(super) fn within(limit: Limit) -> Self {
        Self { limit, backlog: Backlog::default(), waiting: VecDeque::new() }
    }

    /// Remove and return the packet that has waited longest.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        let first = self.waiting.pop_front()?;
        self.backlog.remove(first.packet.wire_size);
        Some(first)
    }
}

impl<P> Qdisc<P> for Fifo<P> {
    #[inline(always)]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let mut with_it = self.backlog;
        with_it.add(arriving.packet.wire_size);
        if self.limit.allows(with_it) {
            self.backlog = with_it;
            self.waiting.push_back(arriving);
        } else {
            verdicts.lose(arriving.since, LossReason::Queue, arriving.packet);
        }
    }

    #[inline]
    fn dequeue(&mut self, _now: Instant, _: &mut Verdicts<P>) -> Option<Queued<P>> {
        self.pop()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use skyhop_units::Bytes;

    use super::*;
    use crate::Packet;

    /// Enqueue packets of these sizes; return the indices of those lost and of those that leave, in order.
    fn fill(limit: Limit, sizes: &[u64]) -> (Vec<usize>, Vec<usize>) {
        let mut fifo = Fifo::within(limit);
        let mut verdicts = Verdicts::new();
        for (payload, &size) in sizes.iter().enumerate() {
            let packet = Packet::new(Bytes::new(size), payload);
            fifo.enqueue(Queued { since: Instant::START, packet }, &mut verdicts);
        }
        let lost = verdicts.take_lost().into_iter().map(|drop| drop.packet.payload).collect();
        let out = std::iter::from_fn(|| fifo.dequeue(Instant::START, &mut verdicts));
        (lost, out.map(|queued| queued.packet.payload).collect())
    }

    #[test]
    fn a_limit_in_packets_ignores_their_size() {
        assert_eq!(fill(Limit::Packets(2), &[9000, 64, 64]), (vec![2], vec![0, 1]));
    }

    #[test]
    fn a_limit_in_bytes_lets_a_small_packet_in_where_a_large_one_did_not_fit() {
        let limit = Limit::Bytes(Bytes::new(3000));
        assert_eq!(fill(limit, &[1500, 1400, 101, 100, 1]), (vec![2, 4], vec![0, 1, 3]));
    }
}
