//! Packets on the way from one partition to another.

use skyhop_link::{Headway, Packet};
use skyhop_units::Instant;

/// Payload of a packet that says where the packet goes.
pub trait Routed {
    /// Site to which the packet goes.
    fn destination(&self) -> u32;

    /// Distance to the background ahead of the packet on its line, as set last; unknown before.
    fn headway(&self) -> Headway;

    /// Set the distance to the background ahead of the packet.
    fn set_headway(&mut self, headway: Headway);
}

/// Packet on the way to a node of another partition.
#[derive(Debug)]
pub(crate) struct Transfer<P> {
    pub(crate) at: Instant,
    pub(crate) over: Way,
    pub(crate) packet: Packet<P>,
}

/// Way of a packet to the next node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Laser to a satellite.
    Laser(FarEnd),
    /// Air, from a node to a satellite or a site.
    Air { from: u32, to: u32 },
}

/// Far end of a laser, in the partition of the satellite there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FarEnd {
    /// Index of the line, that is of the packets on the way.
    pub(crate) line: u32,
    /// Index of the satellite.
    pub(crate) satellite: u32,
}

/// Packets of a partition for each of the others: those of satellites by their numbers, and that of the sites.
#[derive(Debug)]
pub(crate) struct Outboxes<P>(Vec<Vec<Transfer<P>>>);

impl<P> Outboxes<P> {
    pub(crate) fn new(partitions: usize) -> Self {
        Self((0..partitions).map(|_| Vec::new()).collect())
    }

    #[inline]
    pub(crate) fn push(&mut self, to: usize, transfer: Transfer<P>) {
        self.0[to].push(transfer);
    }

    /// Exchange the packets for a partition for the content of `slot`, which is empty.
    pub(crate) fn swap(&mut self, to: usize, slot: &mut Vec<Transfer<P>>) {
        debug_assert!(slot.is_empty(), "the packets of two windows ago have been taken");
        std::mem::swap(&mut self.0[to], slot);
    }

    /// Whether there are packets for a partition.
    pub(crate) fn has(&self, to: usize) -> bool {
        !self.0[to].is_empty()
    }

    /// Earliest arrival of the packets; [`Instant::NEVER`] without packets.
    pub(crate) fn earliest(&self) -> Instant {
        let all = self.0.iter().flatten().map(|transfer| transfer.at);
        all.min().unwrap_or(Instant::NEVER)
    }
}
