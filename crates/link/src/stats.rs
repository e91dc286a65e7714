//! Counters of a link, and the packets that it lost or marked.

use skyhop_model::{Counts as _, Drops, LossReason};
use skyhop_units::{Bytes, Instant};

use crate::{Drop, Packet};

/// Counters of a link up to the last `enqueue` or `poll`.
///
/// At any time `enqueued_packets == delivered_packets + drops.total() + backlog_packets +
/// underway_packets`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub enqueued_packets: u64,
    /// Packets that `poll` has returned.
    pub delivered_packets: u64,
    /// Wire bytes that `poll` has returned.
    pub delivered_bytes: Bytes,
    /// Wire bytes whose transmission has ended, including those of packets lost afterwards.
    pub transmitted_bytes: Bytes,
    /// Wire bytes of the background load that came; 0 from links, which do not count it
    /// ([`BackgroundMeter`](crate::BackgroundMeter) does).
    pub background_bytes: Bytes,
    /// Wire bytes of the background load that found the queue full, and of that which waits in the queue.
    pub background_missing_bytes: Bytes,
    /// Number of lost packets, by reason.
    pub drops: Drops,
    /// Packets that the queue marked (ECN) rather than dropped; they also count as delivered or dropped.
    pub marks: u64,
    /// Packets that wait in the queue.
    pub backlog_packets: u64,
    /// Wire bytes that wait in the queue.
    pub backlog_bytes: Bytes,
    /// Packets that are being transmitted or are in the delay line.
    pub underway_packets: u64,
}

impl LinkStats {
    /// Element-wise sum, of links that count as one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            enqueued_packets: self.enqueued_packets + other.enqueued_packets,
            delivered_packets: self.delivered_packets + other.delivered_packets,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            transmitted_bytes: self.transmitted_bytes + other.transmitted_bytes,
            drops: self.drops.plus(other.drops),
            marks: self.marks + other.marks,
            backlog_packets: self.backlog_packets + other.backlog_packets,
            backlog_bytes: self.backlog_bytes + other.backlog_bytes,
            underway_packets: self.underway_packets + other.underway_packets,
            background_bytes: self.background_bytes + other.background_bytes,
            background_missing_bytes: self.background_missing_bytes
                + other.background_missing_bytes,
        }
    }
}

/// Packets dropped and marked: total counts, and the individual packets since the driver last took them.
#[derive(Debug)]
pub(crate) struct Verdicts<P> {
    drops: Drops,
    untaken_drops: Vec<Drop<P>>,
    marks: u64,
    /// Flow of each packet marked since the last [`Self::take_marked`].
    untaken_marks: Vec<u32>,
}

impl<P> Verdicts<P> {
    pub(crate) fn new() -> Self {
        Self {
            drops: Drops::default(),
            untaken_drops: Vec::new(),
            marks: 0,
            untaken_marks: Vec::new(),
        }
    }

    /// Record a loss; losses are recorded in the order of their time.
    pub(crate) fn lose(&mut self, at: Instant, reason: LossReason, packet: Packet<P>) {
        debug_assert!(self.untaken_drops.last().is_none_or(|last| last.at <= at), "drops in order");
        self.drops[reason] += 1;
        self.untaken_drops.push(Drop { at, reason, packet });
    }

    /// Mark a packet (RFC 3168 5) and record the mark; return `false` if the packet is not ECN-capable.
    pub(crate) fn mark(&mut self, packet: &mut Packet<P>) -> bool {
        if !packet.ecn().is_capable() {
            return false;
        }
        packet.mark();
        self.marks += 1;
        self.untaken_marks.push(packet.flow);
        true
    }

    pub(crate) fn drops(&self) -> Drops {
        self.drops
    }

    pub(crate) fn marks(&self) -> u64 {
        self.marks
    }

    /// Whether there were drops or marks since the driver last took them.
    pub(crate) fn has_new(&self) -> bool {
        !self.untaken_drops.is_empty() || !self.untaken_marks.is_empty()
    }

    pub(crate) fn take_lost(&mut self) -> Vec<Drop<P>> {
        std::mem::take(&mut self.untaken_drops)
    }

    pub(crate) fn take_marked(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.untaken_marks)
    }
}
