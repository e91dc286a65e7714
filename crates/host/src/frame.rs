//! Packet buffers of live runs, and the information that the links need from packet headers.

use skyhop_link::{CarriesTcp, NO_FLOW, Packet, TcpFacts};
use skyhop_model::{ETHERNET_HEADER, Ecn};
use skyhop_units::Bytes;

use crate::tcp_header;

/// Size of the largest IP packet, in bytes.
pub const MTU: usize = skyhop_model::MTU.as_u64() as usize;
/// First port of skyhop's own traffic, above the kernel's ephemeral ports. A UDP flow uses its port at both ends; the
/// server of a TCP flow listens on it.
pub const FIRST_PORT: u16 = 61_000;

/// IP packet in a reusable buffer.
#[derive(Debug)]
pub struct Frame {
    bytes: Box<[u8; MTU]>,
    length: usize,
}

impl Default for Frame {
    /// Create an empty frame.
    fn default() -> Self {
        Self { bytes: Box::new([0; MTU]), length: 0 }
    }
}

impl Frame {
    /// Buffer for one packet.
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes[..]
    }

    /// Convert the frame, whose buffer contains a packet of `length` bytes, to a packet for the links. The flow of
    /// the packet is the index of skyhop's own traffic.
    pub fn into_packet(mut self, length: usize) -> Packet<Self> {
        self.length = length;
        let wire_size = Bytes::new(length as u64) + ETHERNET_HEADER;
        let flow = match own_packet(self.ip()) {
            Some(OwnPacket::Udp { index, .. } | OwnPacket::Tcp { index }) => index as u32,
            None => NO_FLOW,
        };
        let (tos, connection) = (tos(self.ip()), connection(self.ip()));
        Packet::new(wire_size, self)
            .with_flow(flow, Ecn::from_tos(tos))
            .with_tos(tos)
            .with_connection(connection)
    }

    /// Write ECN bits to the packet, as a router does when it marks a packet.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        set_ecn(&mut self.bytes[..self.length], ecn);
    }

    /// Whether the packet is a program's UDP datagram, or the first fragment of one.
    pub fn is_programs_udp(&self) -> bool {
        let ip = self.ip();
        let Some(header) = ip.first_chunk::<10>() else { return false };
        let is_first = header[6] & 0x1f == 0 && header[7] == 0;
        let is_udp = header[0] >> 4 == 4 && i32::from(header[9]) == libc::IPPROTO_UDP;
        is_first && is_udp && own_packet(ip).is_none()
    }

    /// Bytes of the IP packet.
    pub fn ip(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl CarriesTcp for Frame {
    fn tcp(&self) -> Option<TcpFacts> {
        tcp_header::read(self.ip())
    }
}

/// Packet of skyhop's own traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPacket {
    /// Datagram of a UDP flow.
    Udp {
        /// Index of the flow among the run's own traffic.
        index: usize,
        /// Number of the datagram, at the start of its payload.
        number: u64,
    },
    /// Segment of a TCP flow.
    Tcp {
        /// Index of the flow among the run's own traffic.
        index: usize,
    },
}

/// Identify a packet of skyhop's own traffic by its ports; `None` for a program's.
pub fn own_packet(ip: &[u8]) -> Option<OwnPacket> {
    let header = usize::from(*ip.first()? & 0x0f) * 4;
    let version = ip[0] >> 4;
    // Only the first fragment has the transport's header.
    let fragment_offset = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x1fff;
    if version != 4 || fragment_offset != 0 {
        return None;
    }
    let transport = ip.get(header..)?;
    let (ports, _) = transport.split_first_chunk::<4>()?;
    let source = u16::from_be_bytes([ports[0], ports[1]]);
    let destination = u16::from_be_bytes([ports[2], ports[3]]);
    match i32::from(*ip.get(9)?) {
        libc::IPPROTO_UDP if source == destination => {
            let number = transport.get(8..)?.first_chunk::<8>()?;
            Some(OwnPacket::Udp { index: own_index(source)?, number: u64::from_be_bytes(*number) })
        }
        libc::IPPROTO_TCP => {
            own_index(destination).or(own_index(source)).map(|index| OwnPacket::Tcp { index })
        }
        _ => None,
    }
}

/// Hash of a packet's connection, in the 16 bits that a link uses: of the addresses, the protocol and, unless the
/// packet is a fragment, the ports.
fn connection(ip: &[u8]) -> u16 {
    let (version, header) = match ip {
        [first, ..] => (first >> 4, usize::from(first & 0x0f) * 4),
        [] => return 0,
    };
    let Some(fixed) = ip.first_chunk::<20>().filter(|_| version == 4) else { return 0 };
    let has_ports = matches!(i32::from(fixed[9]), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
    // All fragments of a packet must have the same hash, but only the first contains the ports.
    let is_fragment = fixed[6] & 0x3f != 0 || fixed[7] != 0;
    let ports = ip.get(header..header + 4).filter(|_| has_ports && !is_fragment).unwrap_or(&[]);
    // FNV-1a, folded.
    let bytes = fixed[12..20].iter().chain(&fixed[9..10]).chain(ports);
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    (hash ^ (hash >> 16)) as u16
}

/// TOS byte of an IPv4 packet, including its ECN bits; 0 for other packets.
fn tos(ip: &[u8]) -> u8 {
    match ip {
        [version, tos, ..] if version >> 4 == 4 => *tos,
        _ => 0,
    }
}

/// ECN bits of an IPv4 packet.
fn ecn(ip: &[u8]) -> Ecn {
    Ecn::from_tos(tos(ip))
}

/// Change the ECN bits of an IPv4 packet and update its header checksum (RFC 1624 3).
fn set_ecn(ip: &mut [u8], ecn: Ecn) {
    if self::ecn(ip) == ecn || ip.len() < 20 || ip[0] >> 4 != 4 {
        return;
    }
    let before = u16::from_be_bytes([ip[0], ip[1]]);
    ip[1] = (ip[1] & !3) | ecn.bits();
    let after = u16::from_be_bytes([ip[0], ip[1]]);
    let checksum = u16::from_be_bytes([ip[10], ip[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    // Two folds suffice: the second one cannot cause another carry.
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

/// Index of the run's own traffic that uses this port; `None` for ports below [`FIRST_PORT`].
pub fn own_index(port: u16) -> Option<usize> {
    port.checked_sub(FIRST_PORT).map(usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0; 20];
        ip[0] = 0x45;
        ip[9] = protocol;
        ip.extend(source.to_be_bytes());
        ip.extend(destination.to_be_bytes());
        ip.extend([0; 4]);
        ip.extend(payload);
        ip
    }

    #[test]
    fn own_packets_are_told_from_a_programs() {
        let datagram = packet(17, 61_002, 61_002, &7_u64.to_be_bytes());
        assert_eq!(own_packet(&datagram), Some(OwnPacket::Udp { index: 2, number: 7 }));
        assert_eq!(own_packet(&packet(6, 40_000, 61_001, &[])), Some(OwnPacket::Tcp { index: 1 }));
        assert_eq!(own_packet(&packet(6, 61_001, 40_000, &[])), Some(OwnPacket::Tcp { index: 1 }));
        assert_eq!(own_packet(&packet(6, 40_000, 5_201, &[])), None);
        assert_eq!(own_packet(&packet(17, 61_002, 53, &[0; 8])), None);
    }

    #[test]
    fn a_connection_is_told_by_its_addresses_and_ports() {
        let first = packet(6, 40_000, 5_201, &[0; 12]);
        assert_eq!(connection(&first), connection(&packet(6, 40_000, 5_201, &[7; 900])));
        let others = [
            packet(6, 40_001, 5_201, &[]),
            packet(6, 40_000, 5_202, &[]),
            packet(17, 40_000, 5_201, &[]),
            [&first[..15], &[9], &first[16..]].concat(),
            [&first[..16], &[9], &first[17..]].concat(),
        ];
        for other in &others {
            assert_ne!(connection(&first), connection(other), "{other:?}");
        }
        let mut fragments = [packet(17, 1, 2, &[0; 8]), packet(17, 3, 4, &[0; 8])];
        fragments[0][6] = 0x20;
        fragments[1][7] = 1;
        assert_eq!(connection(&fragments[0]), connection(&fragments[1]), "fragments of one packet");
    }

    /// Internet checksum (RFC 1071) over a header; 0 if the header's checksum is correct.
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_marked_packet_has_a_right_checksum_whatever_else_its_header_says() {
        for id in 0..=u16::MAX {
            let mut ip = packet(6, 40_000, 61_001, &[]);
            ip[1] = 0xb8 | Ecn::Ect0.bits();
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            let right = checksum(&ip[..20]);
            ip[10..12].copy_from_slice(&right.to_be_bytes());
            assert_eq!(ecn(&ip), Ecn::Ect0);
            set_ecn(&mut ip, Ecn::Ce);
            assert_eq!((ip[1], checksum(&ip[..20])), (0xbb, 0), "{id}");
        }
        let mut other = vec![0x60; 40];
        set_ecn(&mut other, Ecn::Ce);
        assert_eq!(other, [0x60; 40], "what is not IPv4 stays as it is");
    }

    #[test]
    fn damaged_packets_do_not_panic() {
        let datagram = packet(17, 61_002, 61_002, &7_u64.to_be_bytes());
        let samples = [datagram, packet(6, 40_000, 61_001, &[0; 12])];
        skyhop_needs::fuzz::Trial::of_bytes("live packets", samples).run(|bytes| {
            let length = bytes.len().min(MTU);
            let mut frame = Frame::default();
            frame.buffer()[..length].copy_from_slice(&bytes[..length]);
            let mut packet = frame.into_packet(length);
            let was = packet.payload.is_programs_udp();
            packet.payload.set_ecn(Ecn::Ce);
            assert_eq!(
                (packet.payload.is_programs_udp(), packet.payload.ip().len()),
                (was, length)
            );
            own_packet(packet.payload.ip()).map(drop).ok_or("it is a program's")
        });
    }

    #[test]
    fn short_packets_and_later_fragments_are_not_own_packets() {
        let mut fragment = packet(17, 61_000, 61_000, &[0; 8]);
        fragment[7] = 1;
        assert_eq!(own_packet(&fragment), None);
        for length in 0..36 {
            let short = packet(17, 61_000, 61_000, &[0; 8]);
            assert_eq!(own_packet(&short[..length]), None, "{length} bytes");
        }
    }
}
