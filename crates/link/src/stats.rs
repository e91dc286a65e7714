//! What a link counts, and the packets that it lost.

use skyhop_model::{Drops, LossReason};
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
    /// Packets that wait in the queue.
    pub backlog_packets: u64,
    /// Wire bytes that wait in the queue.
    pub backlog_bytes: Bytes,
    /// Packets that are being transmitted or are in the delay line.
    pub underway_packets: u64,
}

/// The packets lost since the driver last asked, and how many there ever were.
#[derive(Debug)]
pub(crate) struct DropLog<P> {
    counts: Drops,
    since_taken: Vec<Drop<P>>,
}

impl<P> DropLog<P> {
    pub(crate) fn new() -> Self {
        Self { counts: Drops::default(), since_taken: Vec::new() }
    }

    /// Records a loss; losses are recorded in the order of their time.
    pub(crate) fn lose(&mut self, at: Instant, reason: LossReason, packet: Packet<P>) {
        debug_assert!(self.since_taken.last().is_none_or(|last| last.at <= at), "drops in order");
        self.counts[reason] += 1;
        self.since_taken.push(Drop { at, reason, packet });
    }

    pub(crate) fn counts(&self) -> Drops {
        self.counts
    }

    pub(crate) fn take(&mut self) -> Vec<Drop<P>> {
        std::mem::take(&mut self.since_taken)
    }
}
