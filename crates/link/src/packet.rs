//! Packets as the link sees them.

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

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
    pub reason: LossReason,
    /// The packet.
    pub packet: Packet<P>,
}
