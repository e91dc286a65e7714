//! What a link counts, and the packets that it lost.

use skyhop_units::{Bytes, Instant};

use crate::{Drop, DropReason, Packet};

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
    pub drops: DropCounts,
    /// Packets that wait in the queue.
    pub backlog_packets: u64,
    /// Wire bytes that wait in the queue.
    pub backlog_bytes: Bytes,
    /// Packets that are being transmitted or are in the delay line.
    pub underway_packets: u64,
}

/// Lost packets by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// [`DropReason::Queue`].
    pub queue: u64,
    /// [`DropReason::Loss`].
    pub loss: u64,
    /// [`DropReason::Outage`].
    pub outage: u64,
    /// [`DropReason::Dismantled`].
    pub dismantled: u64,
}

impl DropCounts {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.queue + self.loss + self.outage + self.dismantled
    }

    /// Those with this reason.
    pub const fn of(&self, reason: DropReason) -> u64 {
        match reason {
            DropReason::Queue => self.queue,
            DropReason::Loss => self.loss,
            DropReason::Outage => self.outage,
            DropReason::Dismantled => self.dismantled,
        }
    }

    fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::Queue => &mut self.queue,
            DropReason::Loss => &mut self.loss,
            DropReason::Outage => &mut self.outage,
            DropReason::Dismantled => &mut self.dismantled,
        } += 1;
    }
}

/// The packets lost since the driver last asked, and how many there ever were.
#[derive(Debug)]
pub(crate) struct DropLog<P> {
    counts: DropCounts,
    since_taken: Vec<Drop<P>>,
}

impl<P> DropLog<P> {
    pub(crate) fn new() -> Self {
        Self { counts: DropCounts::default(), since_taken: Vec::new() }
    }

    /// Records a loss; losses are recorded in the order of their time.
    pub(crate) fn lose(&mut self, at: Instant, reason: DropReason, packet: Packet<P>) {
        debug_assert!(self.since_taken.last().is_none_or(|last| last.at <= at), "drops in order");
        self.counts.count(reason);
        self.since_taken.push(Drop { at, reason, packet });
    }

    pub(crate) fn counts(&self) -> DropCounts {
        self.counts
    }

    pub(crate) fn take(&mut self) -> Vec<Drop<P>> {
        std::mem::take(&mut self.since_taken)
    }
}
