//! What travels: data segments one way, acknowledgements the other. Small `Copy` structs in place
//! of bytes; their sizes are those of the real headers.
//!
//! Sequence numbers count segments, not bytes, are 64 bits wide and never wrap. A segment keeps its length when it is
//! sent again. What counts bytes (windows, and how much has arrived) counts them from the stream's beginning.

use skyhop_model::Ecn;
use skyhop_units::{Bytes, Instant};

use crate::sack::SackBlocks;

/// IPv4 header and TCP header.
const HEADERS_BYTES: u64 = 20 + 20;
/// The timestamps option with its padding (RFC 7323 appendix A).
pub(crate) const TIMESTAMPS_BYTES: u64 = 12;
/// MSS, SACK-permitted and window scale options; with timestamps they share their padding.
const SYN_OPTIONS_BYTES: u64 = 12;
const SYN_OPTIONS_WITH_TIMESTAMPS_BYTES: u64 = 20;

/// The timestamp option's clock: milliseconds, never 0.
#[inline]
pub(crate) fn timestamp_at(now: Instant) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).wrapping_add(1).max(1)
}

/// The size of an IP packet's headers: of a SYN, and with timestamps.
#[inline]
const fn headers_bytes(syn: bool, timestamps: bool) -> u64 {
    HEADERS_BYTES
        + match (syn, timestamps) {
            (true, true) => SYN_OPTIONS_WITH_TIMESTAMPS_BYTES,
            (true, false) => SYN_OPTIONS_BYTES,
            (false, true) => TIMESTAMPS_BYTES,
            (false, false) => 0,
        }
}

/// What a segment from the sender is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Opens the connection.
    Syn,
    /// Completes the handshake; carries no data.
    HandshakeAck,
    /// Carries data.
    Data,
    /// Carries none and asks for an acknowledgement, by a sequence number of old.
    Probe,
}

/// A segment on its way from the sender to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Its place in the stream, counted in segments from 0.
    pub seq: u64,
    /// Where its payload begins in the stream, in bytes.
    pub offset: u64,
    /// The sender's timestamp in milliseconds (RFC 7323 3.2); 0 where it sends none.
    pub tsval: u32,
    /// The timestamp that it echoes, 0 where there is none.
    pub tsecr: u32,
    /// Its payload in bytes: the MSS or less; none in a FIN that found nothing else to send.
    pub len: u16,
    /// What it is for.
    pub kind: SegmentKind,
    /// Whether it is the stream's last (its FIN).
    pub fin: bool,
    /// Whether nothing follows at once: it ends a burst, or what has been written (its PSH).
    pub push: bool,
    /// Whether it was sent before. The receiver does not look at it.
    pub retransmission: bool,
    /// The IP header's ECN bits; a queue on the way may make CE of them.
    pub ecn: Ecn,
    /// TCP's Congestion Window Reduced flag; on a SYN, with ECN-Echo, that ECN is asked for.
    pub cwr: bool,
}

impl Segment {
    /// The size of the IP packet.
    pub const fn ip_size(&self) -> Bytes {
        let syn = matches!(self.kind, SegmentKind::Syn);
        Bytes::new(headers_bytes(syn, self.tsval != 0) + self.len as u64)
    }
}

/// An acknowledgement on its way from the receiver to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Ack {
    /// The lowest segment that has not arrived: everything below has.
    pub cumulative: u64,
    /// What has arrived above it, most recent first, after a D-SACK where there is one.
    pub sack: SackBlocks,
    /// Bytes of the stream that have arrived in order.
    pub acknowledged: u64,
    /// How many bytes from `acknowledged` on the receiver has room for.
    pub window: u64,
    /// The receiver's timestamp in milliseconds; 0 where it sends none.
    pub tsval: u32,
    /// The echoed timestamp, 0 where there is none (RFC 7323 4.3).
    pub tsecr: u32,
    /// Whether it is the SYN-ACK.
    pub syn: bool,
    /// TCP's ECN-Echo flag: a segment came marked; on the SYN-ACK, that ECN is spoken.
    pub ece: bool,
}

impl Ack {
    /// The size of the IP packet.
    pub const fn ip_size(&self) -> Bytes {
        Self::ip_size_with(self.syn, self.tsval != 0, self.sack.len() as u8)
    }

    /// That of one with so many SACK blocks.
    #[inline]
    pub(crate) const fn ip_size_with(syn: bool, timestamps: bool, sack_blocks: u8) -> Bytes {
        Bytes::new(headers_bytes(syn, timestamps) + SackBlocks::option_bytes_of(sack_blocks))
    }
}

/// Links copy segments from place to place; what is larger is slower.
const _: () = assert!(size_of::<Segment>() == 32);
