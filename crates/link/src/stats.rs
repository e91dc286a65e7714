//! What a link counts, and the packets that it lost or marked.

use skyhop_model::{Drops, Ecn, LossReason};
use skyhop_units::{Bytes, Instant};

use crate::{Drop, Packet};

/// What has happened on a link up to the last `enqueue` or `poll`.
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
    /// Wire bytes whose transmission has ended, whatever became of them afterwards.
    pub transmitted_bytes: Bytes,
    /// Lost packets.
    pub drops: Drops,
    /// Packets that the queue marked (ECN) rather than dropped; what becomes of them is counted too.
    pub marks: u64,
    /// Packets that wait in the queue.
    pub backlog_packets: u64,
    /// Wire bytes that wait in the queue.
    pub backlog_bytes: Bytes,
    /// Packets that are being transmitted or are in the delay line.
    pub underway_packets: u64,
}

/// What the link has decided against packets: those lost since the driver last asked, those marked,
/// and how many there ever were.
#[derive(Debug)]
pub(crate) struct Verdicts<P> {
    drops: Drops,
    lost_since: Vec<Drop<P>>,
    marks: u64,
    /// Whose packets were marked.
    marked_since: Vec<u32>,
}

impl<P> Verdicts<P> {
    pub(crate) fn new() -> Self {
        Self { drops: Drops::default(), lost_since: Vec::new(), marks: 0, marked_since: Vec::new() }
    }

    /// Records a loss; losses are recorded in the order of their time.
    pub(crate) fn lose(&mut self, at: Instant, reason: LossReason, packet: Packet<P>) {
        debug_assert!(self.lost_since.last().is_none_or(|last| last.at <= at), "drops in order");
        self.drops[reason] += 1;
        self.lost_since.push(Drop { at, reason, packet });
    }

    /// Marks a packet (RFC 3168 5) and records that; `false` where its ends do not speak ECN.
    pub(crate) fn mark(&mut self, packet: &mut Packet<P>) -> bool {
        if !packet.ecn.is_capable() {
            return false;
        }
        packet.ecn = Ecn::Ce;
        self.marks += 1;
        self.marked_since.push(packet.flow);
        true
    }

    pub(crate) fn drops(&self) -> Drops {
        self.drops
    }

    pub(crate) fn marks(&self) -> u64 {
        self.marks
    }

    /// Whether there were any since the driver last asked.
    pub(crate) fn are_new(&self) -> bool {
        !self.lost_since.is_empty() || !self.marked_since.is_empty()
    }

    pub(crate) fn take_lost(&mut self) -> Vec<Drop<P>> {
        std::mem::take(&mut self.lost_since)
    }

    pub(crate) fn take_marked(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.marked_since)
    }
}
