//! Sizes of packets and their headers.

use skyhop_units::Bytes;

/// Size of the Ethernet header of each IP packet, which counts towards the size on the wire.
pub const ETHERNET_HEADER: Bytes = Bytes::new(14);
/// Size of the largest IP packet.
pub const MTU: Bytes = Bytes::new(1500);
/// Size of the largest packet on the wire: MTU and Ethernet header.
pub const LARGEST_PACKET: Bytes = Bytes::new(MTU.as_u64() + ETHERNET_HEADER.as_u64());
/// Payload of a full TCP segment, in bytes: the MTU without 20 bytes of IPv4 header, 20 of TCP header and 12 of
/// timestamps (RFC 7323).
pub const MSS: u32 = 1448;
/// Payload of a full TCP segment in bytes, with or without timestamps.
pub const fn mss(timestamps: bool) -> u32 {
    if timestamps { MSS } else { MSS + 12 }
}
/// Size of the IPv4 and UDP headers together.
pub const UDP_HEADERS: Bytes = Bytes::new(28);
