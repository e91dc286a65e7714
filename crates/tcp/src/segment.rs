//! Data segments and acknowledgements as they cross the path: small `Copy` structs in place of bytes, with the
//! sizes of the real headers.
//!
//! Sequence numbers count segments, not bytes, are 64 bits wide and never wrap. A segment keeps its length when
//! it is retransmitted. Byte offsets count from the beginning of the stream.

use skyhop_model::Ecn;
use skyhop_units::{Bytes, Instant};

use crate::sack::SackBlocks;

/// Size of the IPv4 and the TCP header without options, in bytes.
const HEADERS_BYTES: u64 = 20 + 20;
/// Size of the timestamps option with its padding, in bytes (RFC 7323 appendix A).
pub(crate) const TIMESTAMPS_BYTES: u64 = 12;
/// Size of the options of a SYN, in bytes, padding included: MSS, SACK-permitted and window scale; and the same
/// with the timestamps option.
const SYN_OPTIONS_BYTES: u64 = 12;
const SYN_OPTIONS_WITH_TIMESTAMPS_BYTES: u64 = 20;

/// Value of the timestamps option's clock at `now`: milliseconds, never 0.
#[inline]
pub(crate) fn timestamp_at(now: Instant) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).wrapping_add(1).max(1)
}

/// Size of the headers of an IP packet, in bytes, for a SYN or not, with timestamps or without.
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

/// Kind of a segment from the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// SYN, which opens the connection.
    Syn,
    /// Last segment of the handshake; carries no data.
    HandshakeAck,
    /// Data segment, with or without the FIN.
    Data,
    /// Probe without data: an old sequence number makes the receiver acknowledge it.
    Probe,
}

/// A segment on its way from the sender to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Sequence number: position in the stream, counted in segments from 0.
    pub seq: u64,
    /// Byte offset in the stream at which the payload begins.
    pub offset: u64,
    /// Timestamp of the sender in milliseconds (RFC 7323 3.2); 0 if the sender has none.
    pub tsval: u32,
    /// Echoed timestamp of the other end in milliseconds; 0 if there is none.
    pub tsecr: u32,
    /// Payload in bytes: the MSS or less; 0 for a FIN without data.
    pub len: u16,
    /// Kind of the segment, which decides what the receiver does.
    pub kind: SegmentKind,
    /// Whether the segment is the last of the stream (FIN flag).
    pub fin: bool,
    /// Whether nothing follows at once: the segment ends a burst or a write (PSH flag).
    pub push: bool,
    /// Whether the segment is a retransmission. The receiver ignores this.
    pub retransmission: bool,
    /// ECN bits of the IP header; a queue on the path may set CE.
    pub ecn: Ecn,
    /// CWR flag; on a SYN, together with ECE, the request for ECN.
    pub cwr: bool,
}

impl Segment {
    /// Size of the IP packet, headers included.
    pub const fn ip_size(&self) -> Bytes {
        let syn = matches!(self.kind, SegmentKind::Syn);
        Bytes::new(headers_bytes(syn, self.tsval != 0) + self.len as u64)
    }
}

/// An acknowledgement on its way from the receiver to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Ack {
    /// Lowest segment that has not arrived: all below it have.
    pub cumulative: u64,
    /// SACK blocks above `cumulative`, most recent first. A D-SACK block, if there is one, precedes them.
    pub sack: SackBlocks,
    /// Bytes of the stream that have arrived in order.
    pub acknowledged: u64,
    /// Receive window: number of bytes from `acknowledged` on that the receiver has room for.
    pub window: u64,
    /// Timestamp of the receiver in milliseconds; 0 if the receiver sends none.
    pub tsval: u32,
    /// Echoed timestamp of the sender in milliseconds; 0 if there is none (RFC 7323 4.3).
    pub tsecr: u32,
    /// Whether this is the SYN-ACK.
    pub syn: bool,
    /// ECE flag: a segment arrived with a mark; on the SYN-ACK, ECN is accepted.
    pub ece: bool,
}

impl Ack {
    /// Size of the IP packet, headers included.
    pub const fn ip_size(&self) -> Bytes {
        Self::ip_size_with(self.syn, self.tsval != 0, self.sack.len() as u8)
    }

    /// Size of the IP packet of an acknowledgement with `sack_blocks` SACK blocks.
    #[inline]
    pub(crate) const fn ip_size_with(syn: bool, timestamps: bool, sack_blocks: u8) -> Bytes {
        Bytes::new(headers_bytes(syn, timestamps) + SackBlocks::option_bytes_of(sack_blocks))
    }
}

/// Segments are copied from link to link; a larger struct would be slower.
const _: () = assert!(size_of::<Segment>() == 32);
