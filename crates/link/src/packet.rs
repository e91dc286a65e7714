//! Packets as the link sees them.

use skyhop_model::{Ecn, LossReason};
use skyhop_units::{Bytes, Instant};

/// A packet with whatever the engine attaches to it: a header in the simulator, bytes in live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<P> {
    /// The size on the wire, Ethernet header included.
    pub wire_size: Bytes,
    /// Whose it is: packets of one flow have the same number; [`NO_FLOW`] where it is not known.
    pub flow: u32,
    /// Which of the flow's connections it belongs to: what queues tell apart by a hash.
    connection: u16,
    /// The IP header's TOS, with its ECN bits, as a number: an enum would let `Option` hide its tag in there, and packets
    /// are moved slower then.
    tos: u8,
    /// What the link carries without looking at it.
    pub payload: P,
}

/// Of the TOS (RFC 3168 5).
const ECN_BITS: u8 = 3;

/// The flow of packets of which it is not known.
pub const NO_FLOW: u32 = u32::MAX;

impl<P> Packet<P> {
    /// A packet of no known flow that does not speak ECN.
    pub const fn new(wire_size: Bytes, payload: P) -> Self {
        Self { wire_size, flow: NO_FLOW, connection: 0, tos: Ecn::NotEct.bits(), payload }
    }

    /// The same packet as one of a flow's, with the ECN bits that its sender gave it.
    #[inline]
    pub fn of(self, flow: u32, ecn: Ecn) -> Self {
        Self { flow, tos: (self.tos & !ECN_BITS) | ecn.bits(), ..self }
    }

    /// The same packet with this TOS, of which the ECN bits stay as they are.
    #[inline]
    pub fn with_tos(self, tos: u8) -> Self {
        Self { tos: (tos & !ECN_BITS) | (self.tos & ECN_BITS), ..self }
    }

    /// The same packet as one of a certain connection of its flow, which queues that separate flows tell apart too.
    #[inline]
    pub fn over(self, connection: u16) -> Self {
        Self { connection, ..self }
    }

    /// What packets of one connection have in common.
    #[inline]
    pub(crate) const fn identity(&self) -> u64 {
        ((self.flow as u64) << 16) | self.connection as u64
    }

    /// The IP header's ECN bits; a queue makes CE of them where it marks the packet.
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos)
    }

    /// The IP header's DSCP: six bits.
    #[inline]
    pub(crate) const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Marks it.
    pub(crate) fn mark(&mut self) {
        self.tos |= Ecn::Ce.bits();
    }

    /// The same packet with another payload.
    pub(crate) fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Packet<Q> {
        let Self { wire_size, flow, connection, tos, payload } = self;
        Packet { wire_size, flow, connection, tos, payload: change(payload) }
    }
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
