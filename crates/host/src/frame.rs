//! Packets as live carries them, and what can be told from their headers.

use skyhop_link::Packet;
use skyhop_model::ETHERNET_HEADER;
use skyhop_units::Bytes;

/// The largest IP packet, bytes.
pub const MTU: usize = skyhop_model::MTU.as_u64() as usize;
/// Ports of skyhop's own traffic start here, above those that the kernel gives to programs.
/// UDP: a probe uses its port at both ends. TCP: a flow's receiver listens on it.
pub const FIRST_PORT: u16 = 61_000;

/// An IP packet in a buffer that is used again and again.
#[derive(Debug)]
pub struct Frame {
    bytes: Box<[u8; MTU]>,
    length: usize,
}

impl Default for Frame {
    /// One without a packet.
    fn default() -> Self {
        Self { bytes: Box::new([0; MTU]), length: 0 }
    }
}

impl Frame {
    /// Room for one packet.
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes[..]
    }

    /// The packet as it counts on the wire, once `length` bytes of the buffer have been filled.
    pub fn into_packet(mut self, length: usize) -> Packet<Self> {
        self.length = length;
        let wire_size = Bytes::new(length as u64) + ETHERNET_HEADER;
        Packet { wire_size, payload: self }
    }

    /// The IP packet.
    pub fn ip(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A packet of skyhop's own traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// The probe at this place, with its sequence number.
    Probe {
        /// Its place.
        index: usize,
        /// The packet's number.
        seq: u64,
    },
    /// The TCP flow at this place.
    Tcp {
        /// Its place.
        index: usize,
    },
}

/// Whose packet this is; `None` for a program's.
pub fn recognise(ip: &[u8]) -> Option<Own> {
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
            let seq = transport.get(8..)?.first_chunk::<8>()?;
            Some(Own::Probe { index: own_index(source)?, seq: u64::from_be_bytes(*seq) })
        }
        libc::IPPROTO_TCP => {
            own_index(destination).or(own_index(source)).map(|index| Own::Tcp { index })
        }
        _ => None,
    }
}

/// The place in the plan of what uses this port.
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
        let probe = packet(17, 61_002, 61_002, &7_u64.to_be_bytes());
        assert_eq!(recognise(&probe), Some(Own::Probe { index: 2, seq: 7 }));
        assert_eq!(recognise(&packet(6, 40_000, 61_001, &[])), Some(Own::Tcp { index: 1 }));
        assert_eq!(recognise(&packet(6, 61_001, 40_000, &[])), Some(Own::Tcp { index: 1 }));
        assert_eq!(recognise(&packet(6, 40_000, 5_201, &[])), None);
        assert_eq!(recognise(&packet(17, 61_002, 53, &[0; 8])), None);
    }

    #[test]
    fn short_packets_and_later_fragments_belong_to_nobody() {
        let mut fragment = packet(17, 61_000, 61_000, &[0; 8]);
        fragment[7] = 1;
        assert_eq!(recognise(&fragment), None);
        for length in 0..36 {
            let short = packet(17, 61_000, 61_000, &[0; 8]);
            assert_eq!(recognise(&short[..length]), None, "{length} bytes");
        }
    }
}
