//! Packets on the way to a node, by their time of arrival.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use skyhop_link::Packet;
use skyhop_units::Instant;

/// Packets in the air on the way to one node, from any number of others.
///
/// Packets that arrive at the same time are ordered by the node that they come from, and then as they were sent.
#[derive(Debug)]
pub(crate) struct InAir<P> {
    packets: BinaryHeap<Entry<P>>,
    sent: u64,
}

#[derive(Debug)]
struct Entry<P> {
    at: Instant,
    from: u32,
    number: u64,
    packet: Packet<P>,
}

impl<P> InAir<P> {
    pub(crate) fn new() -> Self {
        Self { packets: BinaryHeap::new(), sent: 0 }
    }

    /// Add a packet of the node `from` that arrives at `at`.
    pub(crate) fn enter(&mut self, at: Instant, from: u32, packet: Packet<P>) {
        self.packets.push(Entry { at, from, number: self.sent, packet });
        self.sent += 1;
    }

    /// Number of packets in the air.
    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    /// Time of the next arrival.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.packets.peek().map(|first| first.at)
    }

    /// Return the next packet that has arrived by `now`, after the node that it comes from.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(u32, Packet<P>)> {
        let arrived = self.next().is_some_and(|at| at <= now);
        if arrived { self.packets.pop().map(|first| (first.from, first.packet)) } else { None }
    }
}

impl<P> Entry<P> {
    fn key(&self) -> (Instant, u32, u64) {
        (self.at, self.from, self.number)
    }
}

impl<P> Ord for Entry<P> {
    /// Reverse order of the keys, because the greatest entry leaves the heap first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Entry<P> {}
