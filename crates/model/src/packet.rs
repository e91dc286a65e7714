//! Sizes of packets.

use skyhop_units::Bytes;

/// What each IP packet counts more on the wire: its Ethernet header.
pub const ETHERNET_HEADER: Bytes = Bytes::new(14);
/// The largest IP packet.
pub const MTU: Bytes = Bytes::new(1500);
/// The largest packet on the wire.
pub const LARGEST_PACKET: Bytes = Bytes::new(MTU.as_u64() + ETHERNET_HEADER.as_u64());
/// Payload of a full TCP segment: the MTU without 20 bytes of IPv4 header, 20 of TCP header and
/// the 12 of timestamps (RFC 7323).
pub const MSS: u32 = 1448;
/// The same, with timestamps or without.
pub const fn mss(timestamps: bool) -> u32 {
    if timestamps { MSS } else { MSS + 12 }
}
/// IPv4 and UDP headers.
pub const UDP_HEADERS: Bytes = Bytes::new(28);
