//! IPv4, TCP and UDP headers (RFC 791, RFC 9293, RFC 768).

use std::net::SocketAddrV4;

use etherparse::{
    IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, TcpOptionWriteError,
    UdpHeader,
};

/// Sockets of a packet, and the TOS byte of its IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Socket that sends the packet.
    pub source: SocketAddrV4,
    /// Socket that the packet goes to.
    pub destination: SocketAddrV4,
    /// DSCP and ECN bits.
    pub tos: u8,
}

/// Flags of a TCP header; ACK is set if the header has an acknowledgement number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// First packet of the connection (SYN).
    pub syn: bool,
    /// Last packet of the stream (FIN).
    pub fin: bool,
    /// Reset of the whole connection (RST).
    pub rst: bool,
    /// Whether nothing follows at once (PSH).
    pub psh: bool,
    /// Echo of a mark (ECE).
    pub ece: bool,
    /// Congestion window was reduced (CWR).
    pub cwr: bool,
}

/// Fields of a TCP header without ports. Sequence numbers count bytes and wrap around.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpFields {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement number: next byte that is expected.
    pub ack: Option<u32>,
    /// Flags other than ACK.
    pub flags: Flags,
    /// Window as the header has it, scaled except on a SYN.
    pub window: u16,
    /// Largest segment that the sender accepts, in bytes; on a SYN.
    pub mss: Option<u16>,
    /// Whether selective acknowledgements are permitted; on a SYN.
    pub sack_permitted: bool,
    /// Logarithm of the factor of later windows; on a SYN.
    pub window_scale: Option<u8>,
    /// Value and echo of the timestamps option, in ms.
    pub timestamps: Option<[u32; 2]>,
    /// Blocks of the SACK option: first byte, and the byte after the last one.
    pub sack: Vec<(u32, u32)>,
}

/// Headers of a TCP packet whose payload is `payload` zeros: IPv4 and TCP with options, padded as Linux pads them
/// (`tcp_options_write`), and with their checksums.
///
/// # Panics
/// The packet is too large for IPv4, or the options are too long for TCP: 4 SACK blocks, or 3 with timestamps, fit.
pub fn tcp(addresses: &Addresses, fields: &TcpFields, payload: u16) -> Vec<u8> {
    let Addresses { source, destination, .. } = addresses;
    let Flags { syn, fin, rst, psh, ece, cwr } = fields.flags;
    let mut tcp = TcpHeader {
        ack: fields.ack.is_some(),
        acknowledgment_number: fields.ack.unwrap_or(0),
        syn,
        fin,
        rst,
        psh,
        ece,
        cwr,
        ..TcpHeader::new(source.port(), destination.port(), fields.seq, fields.window)
    };
    set_options(&mut tcp, fields).expect("options of up to 40 bytes");
    let ip = ipv4(addresses, IpNumber::TCP, tcp.header_len_u16() + payload);
    let zeros = &ZEROS[..usize::from(payload)];
    tcp.checksum = tcp.calc_checksum_ipv4(&ip, zeros).expect("a payload of 16 bits");
    [&ip.to_bytes()[..], &tcp.to_bytes()].concat()
}

/// Headers of a UDP packet whose payload is `payload` zeros: IPv4 and UDP with their checksums.
///
/// # Panics
/// The packet is too large for IPv4.
pub fn udp(addresses: &Addresses, payload: u16) -> Vec<u8> {
    let Addresses { source, destination, .. } = addresses;
    let ip = ipv4(addresses, IpNumber::UDP, UdpHeader::LEN as u16 + payload);
    let zeros = &ZEROS[..usize::from(payload)];
    let ports = (source.port(), destination.port());
    let udp = UdpHeader::with_ipv4_checksum(ports.0, ports.1, &ip, zeros);
    [&ip.to_bytes()[..], &udp.expect("a payload of 16 bits").to_bytes()].concat()
}

/// Payload of all packets.
static ZEROS: [u8; u16::MAX as usize] = [0; u16::MAX as usize];

fn ipv4(addresses: &Addresses, protocol: IpNumber, payload: u16) -> Ipv4Header {
    let [source, destination] =
        [addresses.source, addresses.destination].map(|at| at.ip().octets());
    let ip = Ipv4Header::new(payload, TTL, protocol, source, destination);
    let mut ip = ip.expect("a packet of up to 65,535 bytes");
    ip.dscp = IpDscp::try_new(addresses.tos >> 2).expect("six bits");
    ip.ecn = IpEcn::try_new(addresses.tos & 3).expect("two bits");
    ip.dont_fragment = true;
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// Hops that a packet may make, Linux's default.
const TTL: u8 = 64;

/// Add the options in the order and with the padding of Linux.
fn set_options(tcp: &mut TcpHeader, fields: &TcpFields) -> Result<(), TcpOptionWriteError> {
    use TcpOptionElement::{
        MaximumSegmentSize, Noop, SelectiveAcknowledgement, SelectiveAcknowledgementPermitted,
        Timestamp, WindowScale,
    };
    let mut options = Vec::new();
    options.extend(fields.mss.map(MaximumSegmentSize));
    if fields.sack_permitted {
        // The option takes the place of the padding before the timestamps.
        let padding = if fields.timestamps.is_some() { 0 } else { 2 };
        options.extend(vec![Noop; padding]);
        options.push(SelectiveAcknowledgementPermitted);
    }
    if let Some([value, echo]) = fields.timestamps {
        let padding = if fields.sack_permitted { 0 } else { 2 };
        options.extend(vec![Noop; padding]);
        options.push(Timestamp(value, echo));
    }
    options.extend(fields.window_scale.into_iter().flat_map(|scale| [Noop, WindowScale(scale)]));
    if let [first, others @ ..] = &fields.sack[..] {
        let mut rest = [None; 3];
        rest.iter_mut().zip(others).for_each(|(place, block)| *place = Some(*block));
        options.extend([Noop, Noop, SelectiveAcknowledgement(*first, rest)]);
    }
    tcp.set_options(&options)
}

/// Read the fields of a TCP header, as [`tcp`] writes them, and the sockets; `None` if the bytes are not an IPv4 header and
/// a TCP header.
pub fn read_tcp(bytes: &[u8]) -> Option<(Addresses, TcpFields)> {
    let (ip, rest) = Ipv4Header::from_slice(bytes).ok()?;
    let (tcp, _) = TcpHeader::from_slice(rest).ok()?;
    let socket = |address: [u8; 4], port| SocketAddrV4::new(address.into(), port);
    let addresses = Addresses {
        source: socket(ip.source, tcp.source_port),
        destination: socket(ip.destination, tcp.destination_port),
        tos: ip.dscp.value() << 2 | ip.ecn.value(),
    };
    let mut fields = TcpFields {
        seq: tcp.sequence_number,
        ack: tcp.ack.then_some(tcp.acknowledgment_number),
        flags: Flags {
            syn: tcp.syn,
            fin: tcp.fin,
            rst: tcp.rst,
            psh: tcp.psh,
            ece: tcp.ece,
            cwr: tcp.cwr,
        },
        window: tcp.window_size,
        ..TcpFields::default()
    };
    for option in tcp.options_iterator() {
        match option.ok()? {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => fields.mss = Some(mss),
            TcpOptionElement::WindowScale(scale) => fields.window_scale = Some(scale),
            TcpOptionElement::SelectiveAcknowledgementPermitted => fields.sack_permitted = true,
            TcpOptionElement::Timestamp(value, echo) => fields.timestamps = Some([value, echo]),
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                fields.sack.push(first);
                fields.sack.extend(rest.into_iter().flatten());
            }
        }
    }
    Some((addresses, fields))
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_addresses()(
            source in any::<([u8; 4], u16)>(),
            destination in any::<([u8; 4], u16)>(),
            tos in any::<u8>(),
        ) -> Addresses {
            let socket = |(address, port): ([u8; 4], u16)| SocketAddrV4::new(address.into(), port);
            Addresses { source: socket(source), destination: socket(destination), tos }
        }
    }

    prop_compose! {
        fn any_flags()(flags in any::<[bool; 6]>()) -> Flags {
            let [syn, fin, rst, psh, ece, cwr] = flags;
            Flags { syn, fin, rst, psh, ece, cwr }
        }
    }

    prop_compose! {
        /// Fields of a SYN, or of another segment with as many blocks as there is room for.
        fn any_fields()(
            (seq, ack, flags, window) in (any::<u32>(), of(any::<u32>()), any_flags(), any::<u16>()),
            of_syn in of((any::<u16>(), any::<bool>(), 0_u8..15)),
            timestamps in of(any::<[u32; 2]>()),
            sack in prop::collection::vec(any::<(u32, u32)>(), 0..=4),
        ) -> TcpFields {
            let most = match (of_syn.is_some(), timestamps.is_some()) {
                (true, _) => 0,
                (false, true) => 3,
                (false, false) => 4,
            };
            TcpFields {
                seq, ack, flags, window, timestamps,
                mss: of_syn.map(|(mss, ..)| mss),
                sack_permitted: of_syn.is_some_and(|(_, permitted, _)| permitted),
                window_scale: of_syn.map(|(.., scale)| scale),
                sack: sack.into_iter().take(most).collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn a_tcp_header_is_read_as_it_was_written(
            addresses in any_addresses(),
            fields in any_fields(),
            payload in 0_u16..9000,
        ) {
            let bytes = tcp(&addresses, &fields, payload);
            prop_assert_eq!(read_tcp(&bytes), Some((addresses, fields)));
            prop_assert!(bytes.len().is_multiple_of(4));
            let whole = [bytes, vec![0; usize::from(payload)]].concat();
            let packet = SlicedPacket::from_ip(&whole).unwrap();
            let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(read))) = (packet.net, packet.transport)
            else { panic!("a TCP packet over IPv4") };
            let header = ip.header().to_header();
            prop_assert_eq!(usize::from(header.total_len), whole.len());
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!(read.checksum(), read.calc_checksum_ipv4(header.source, header.destination).unwrap());
        }

        #[test]
        fn a_udp_header_has_its_size_and_checksum(addresses in any_addresses(), payload in 0_u16..9000) {
            let whole = [udp(&addresses, payload), vec![0; usize::from(payload)]].concat();
            prop_assert_eq!(whole.len(), 28 + usize::from(payload));
            let packet = SlicedPacket::from_ip(&whole).unwrap();
            let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(read))) = (packet.net, packet.transport)
            else { panic!("a UDP packet over IPv4") };
            let header = ip.header().to_header();
            prop_assert_eq!(read.source_port(), addresses.source.port());
            let again = read.to_header().calc_checksum_ipv4(&header, &whole[28..]).unwrap();
            prop_assert_eq!(read.checksum(), again);
        }
    }
}
