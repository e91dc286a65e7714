//! Packets as a link carries them, their arrivals and their losses.

use skyhop_model::{Ecn, LossReason};
use skyhop_units::{Bytes, Instant};

/// A packet with the engine's payload: a header in the simulator, bytes in live runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<P> {
    /// Size on the wire, Ethernet header included.
    pub wire_size: Bytes,
    /// Flow of the packet: packets of one flow have the same number; [`NO_FLOW`] if it is unknown.
    pub flow: u32,
    /// Connection within the flow. Queue disciplines hash it with the flow, as Linux hashes the five-tuple.
    connection: u16,
    /// TOS byte of the IP header, ECN bits included. It is a number because an enum would let `Option` hide its
    /// tag in there, and packets are moved slower then.
    tos: u8,
    /// Payload, which the link carries without looking at it.
    pub payload: P,
}

/// ECN bits of the TOS byte (RFC 3168 5).
const ECN_BITS: u8 = 3;

/// Flow id of packets that belong to no known flow.
pub const NO_FLOW: u32 = u32::MAX;

impl<P> Packet<P> {
    /// Create a packet of no known flow that is not ECN-capable.
    pub const fn new(wire_size: Bytes, payload: P) -> Self {
        Self { wire_size, flow: NO_FLOW, connection: 0, tos: Ecn::NotEct.bits(), payload }
    }

    /// The same packet with the number of its flow and the ECN bits that its sender set.
    #[inline]
    pub fn with_flow(self, flow: u32, ecn: Ecn) -> Self {
        Self { flow, tos: (self.tos & !ECN_BITS) | ecn.bits(), ..self }
    }

    /// The same packet with the DSCP of this TOS byte; the ECN bits stay as they are.
    #[inline]
    pub fn with_tos(self, tos: u8) -> Self {
        Self { tos: (tos & !ECN_BITS) | (self.tos & ECN_BITS), ..self }
    }

    /// The same packet with the number of its connection within the flow; fair queues separate connections too.
    #[inline]
    pub fn with_connection(self, connection: u16) -> Self {
        Self { connection, ..self }
    }

    /// Key of the packet's connection, the same for all its packets: flow and connection number.
    #[inline]
    pub(crate) const fn identity(&self) -> u64 {
        ((self.flow as u64) << 16) | self.connection as u64
    }

    /// ECN bits of the IP header; a queue that marks the packet sets them to CE.
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos)
    }

    /// DSCP of the IP header (RFC 2474), six bits.
    #[inline]
    pub(crate) const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Set the ECN bits to CE (congestion experienced).
    pub(crate) fn mark(&mut self) {
        self.tos |= Ecn::Ce.bits();
    }

    /// The same packet with its payload converted.
    pub(crate) fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Packet<Q> {
        let Self { wire_size, flow, connection, tos, payload } = self;
        Packet { wire_size, flow, connection, tos, payload: change(payload) }
    }
}

/// A packet that has arrived at the far end of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<P> {
    /// Time of arrival at the far end; a late poll does not change it.
    pub at: Instant,
    /// Time at which the packet was handed to the link.
    pub sent: Instant,
    /// The packet that arrived.
    pub packet: Packet<P>,
}

/// A packet that the link lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop<P> {
    /// Time of the loss.
    pub at: Instant,
    /// Cause of the loss.
    pub reason: LossReason,
    /// The packet that was lost.
    pub packet: Packet<P>,
}
