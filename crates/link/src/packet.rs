//! Packets as the link sees them.

use skyhop_units::{Bytes, Instant};

/// What each IP packet counts more on the wire: its Ethernet header.
pub const ETHERNET_HEADER: Bytes = Bytes::new(14);

/// A packet with whatever the engine attaches to it: a header in the simulator, bytes in live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<P> {
    /// The size on the wire, Ethernet header included.
    pub wire_size: Bytes,
    /// What the link carries without looking at it.
    pub payload: P,
}

/// A packet that has come out of the far end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it was due at the far end.
    pub at: Instant,
    /// When it was handed to the link.
    pub sent: Instant,
    /// The packet.
    pub packet: Packet<P>,
}

/// A packet that the link lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop<P> {
    /// When it was lost.
    pub at: Instant,
    /// Why.
    pub reason: DropReason,
    /// The packet.
    pub packet: Packet<P>,
}

/// Why a packet was lost; each lost packet has exactly one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue was full, or its discipline chose so.
    Queue,
    /// At random.
    Loss,
    /// It reached an outage.
    Outage,
    /// It was on a hop that was dismantled.
    Dismantled,
}

impl DropReason {
    /// All reasons, in the order of the summary.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Loss, Self::Outage, Self::Dismantled];

    /// The name in summaries and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Loss => "loss",
            Self::Outage => "outage",
            Self::Dismantled => "dismantled",
        }
    }
}
