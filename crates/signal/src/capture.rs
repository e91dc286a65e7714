//! Samples for blind estimation from packets: of a capture (pcap or pcapng), or live from an interface.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use skyhop_units::UtcInstant;
use thiserror::Error;

use crate::blind::{Estimate, Period, Sample, Traffic};

/// Reason for which a capture cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// The file is neither pcap nor pcapng.
    #[error("it is neither a pcap nor a pcapng file")]
    NotACapture,
    /// The file is truncated or malformed.
    #[error("it is damaged after {packets} packets: {what}")]
    Damaged {
        /// Number of packets before the damage.
        packets: usize,
        /// Description of the damage.
        what: String,
    },
    /// Packets have a link type that is not supported.
    #[error(
        "its link type {0} is not supported; expected Ethernet, PPP, raw IP, BSD loopback or Linux cooked"
    )]
    LinkType(i32),
    /// The file contains no TCP or UDP packet.
    #[error("it holds no TCP or UDP packet over IP")]
    Empty,
}

/// Busiest conversation of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Both directions, the busier one first.
    pub streams: Vec<Stream>,
    /// Number of whole packets in the capture, if it ends in the middle of another.
    pub cut_after: Option<usize>,
}

/// One direction of a conversation: the packets from one socket to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Protocol and sockets, such as "TCP 192.0.2.1:443 > 192.0.2.7:51000".
    pub name: String,
    /// Capture times of the packets.
    pub samples: Vec<Sample>,
}

/// Return the conversation with the most packets.
///
/// One direction carries data over the bottleneck and the other carries ACKs; both stop at a handover. A capture that
/// was stopped while a packet was written ends in the middle of it; the whole packets before are used.
///
/// # Errors
/// [`CaptureError`].
pub fn busiest_conversation(capture: impl Read + Send) -> Result<Conversation, CaptureError> {
    let mut arrivals: BTreeMap<FiveTuple, Vec<Sample>> = BTreeMap::new();
    let cut_after = for_each_packet(capture, |at, link, bytes| {
        let five_tuple = five_tuple(link, bytes)?;
        if let Some(five_tuple) = five_tuple {
            arrivals.entry(five_tuple).or_default().push(Sample { at, delay: None });
        }
        Ok(())
    })?;
    let count = |five_tuple: &FiveTuple| arrivals.get(five_tuple).map_or(0, Vec::len);
    let busiest = arrivals.keys().max_by_key(|one| count(one) + count(&one.reversed()));
    let busiest = *busiest.ok_or(CaptureError::Empty)?;
    let mut streams: Vec<Stream> = [busiest, busiest.reversed()]
        .into_iter()
        .filter_map(|one| Some(Stream { name: one.name(), samples: arrivals.remove(&one)? }))
        .collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.samples.len()));
    Ok(Conversation { streams, cut_after })
}

/// Packet arrivals at an interface in the last minutes, by flow.
#[derive(Debug, Default)]
pub struct Conversations {
    arrivals: BTreeMap<FiveTuple, Traffic>,
}

/// Number of the busiest flows for which an estimate is made; the clearest estimate is used.
const MAX_ESTIMATED: usize = 3;
/// Number of the busiest flows that [`Conversations::forget`] keeps.
const MAX_KEPT: usize = 100;

impl Conversations {
    /// Record the arrival of an IP packet; packets other than TCP and UDP are ignored.
    pub fn arrived(&mut self, at: UtcInstant, ip: &[u8]) {
        let packet = LaxSlicedPacket::from_ip(ip).ok();
        if let Some(five_tuple) = packet.and_then(|packet| sockets(&packet)) {
            self.arrivals.entry(five_tuple).or_default().push(Sample { at, delay: None });
        }
    }

    /// Forget the arrivals before `before`, and all flows except the `MAX_KEPT` busiest.
    pub fn forget(&mut self, before: UtcInstant) {
        self.arrivals.values_mut().for_each(|traffic| traffic.forget(before));
        let busiest = self.busiest(MAX_KEPT);
        self.arrivals.retain(|one, traffic| busiest.contains(one) && traffic.samples() > 0);
    }

    /// Estimate the grid from the busiest flows; return the clearest estimate with its flow's name.
    pub fn estimate(&self, period: Period) -> Option<(String, Estimate)> {
        let busiest = self.busiest(MAX_ESTIMATED).into_iter();
        let estimates = busiest.map(|one| (one.name(), self.arrivals[&one].estimate(period)));
        estimates.max_by(|(_, a), (_, b)| Estimate::by_clarity(a, b))
    }

    fn busiest(&self, most: usize) -> Vec<FiveTuple> {
        let mut busiest: Vec<FiveTuple> = self.arrivals.keys().copied().collect();
        busiest.sort_by_key(|one| std::cmp::Reverse(self.arrivals[one].samples()));
        busiest.truncate(most);
        busiest
    }
}

/// Five-tuple that identifies one direction of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FiveTuple {
    protocol: &'static str,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl FiveTuple {
    fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }

    fn name(self) -> String {
        let socket = |(ip, port)| std::net::SocketAddr::new(ip, port);
        format!("{} {} > {}", self.protocol, socket(self.from), socket(self.to))
    }
}

/// Five-tuple of a captured packet; `None` if it is not TCP or UDP.
fn five_tuple(link: Linktype, bytes: &[u8]) -> Result<Option<FiveTuple>, CaptureError> {
    let cooked = |header: usize, place: usize| {
        let kind = bytes.get(place..)?.first_chunk()?;
        let kind = EtherType(u16::from_be_bytes(*kind));
        Some(LaxSlicedPacket::from_ether_type(kind, bytes.get(header..)?))
    };
    let ip = |header: usize| LaxSlicedPacket::from_ip(bytes.get(header..)?).ok();
    // A truncated or malformed packet does not belong to a conversation.
    let packet = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | DLT_RAW | DLT_RAW_OPENBSD => ip(0),
        Linktype::NULL | Linktype::LOOP => ip(FAMILY),
        PPP | PPP_SERIAL | PPP_WITH_DIRECTION => ppp_header(link, bytes).and_then(ip),
        Linktype::LINUX_SLL => cooked(16, 14),
        Linktype::LINUX_SLL2 => cooked(20, 0),
        Linktype(other) => return Err(CaptureError::LinkType(other)),
    };
    Ok(packet.and_then(|packet| sockets(&packet)))
}

/// Raw IP by the DLT numbers of most systems and of OpenBSD, which some programs write instead of LINKTYPE_RAW.
const DLT_RAW: Linktype = Linktype(12);
const DLT_RAW_OPENBSD: Linktype = Linktype(14);
/// PPP, PPP in HDLC-like framing (RFC 1662), and PPP after a byte for the direction.
const PPP: Linktype = Linktype(9);
const PPP_SERIAL: Linktype = Linktype(50);
const PPP_WITH_DIRECTION: Linktype = Linktype(204);
/// Length of the address family before each packet of BSD loopback, in bytes.
const FAMILY: usize = 4;

/// Length of the PPP header in bytes (RFC 1661, RFC 1662); `None` for protocols other than IP.
fn ppp_header(link: Linktype, bytes: &[u8]) -> Option<usize> {
    const ADDRESS_AND_CONTROL: [u8; 2] = [0xff, 0x03];
    let direction = usize::from(link == PPP_WITH_DIRECTION);
    let framed = bytes.get(direction..)?.starts_with(&ADDRESS_AND_CONTROL);
    let protocol = direction + if framed { ADDRESS_AND_CONTROL.len() } else { 0 };
    match bytes.get(protocol..)? {
        [0x00, 0x21 | 0x57, ..] => Some(protocol + 2),
        // Compressed protocol field.
        [0x21 | 0x57, ..] => Some(protocol + 1),
        _ => None,
    }
}

fn sockets(packet: &LaxSlicedPacket<'_>) -> Option<FiveTuple> {
    let (from, to): (IpAddr, IpAddr) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Ipv6(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ => return None,
    };
    let (protocol, source, destination) = match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => ("TCP", tcp.source_port(), tcp.destination_port()),
        TransportSlice::Udp(udp) => ("UDP", udp.source_port(), udp.destination_port()),
        _ => return None,
    };
    Some(FiveTuple { protocol, from: (from, source), to: (to, destination) })
}

// --- the file ---

/// Size of the reader's buffer, larger than any captured packet (256 KiB with segmentation offload), in bytes.
const BUFFER: usize = 1 << 20;
const NANOSECONDS: i128 = 1_000_000_000;

/// Capture interface: the link type and the timestamp format of its packets.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Linktype,
    ticks_per_second: u64,
    offset_s: i64,
}

impl Interface {
    fn at(self, ticks: u64) -> UtcInstant {
        let ns = i128::from(ticks) * NANOSECONDS / i128::from(self.ticks_per_second.max(1))
            + i128::from(self.offset_s) * NANOSECONDS;
        UtcInstant::from_unix_nanos(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

/// Call `work` for each packet. If the capture ends in the middle of a packet, return the number of packets before.
fn for_each_packet(
    capture: impl Read + Send,
    mut work: impl FnMut(UtcInstant, Linktype, &[u8]) -> Result<(), CaptureError>,
) -> Result<Option<usize>, CaptureError> {
    let mut reader = create_reader(BUFFER, capture).map_err(|_| CaptureError::NotACapture)?;
    let mut interfaces = Vec::new();
    let mut packets = 0;
    loop {
        let used = match reader.next() {
            Ok((used, block)) => {
                if let Some((interface, ticks, bytes)) = packet(&mut interfaces, &block) {
                    packets += 1;
                    work(interface.at(ticks), interface.link, bytes)?;
                }
                used
            }
            Err(PcapError::Eof) => return Ok(None),
            Err(PcapError::UnexpectedEof) if packets > 0 => return Ok(Some(packets)),
            Err(PcapError::Incomplete(_)) => {
                if reader.reader_exhausted() && packets > 0 {
                    return Ok(Some(packets));
                }
                refill(reader.as_mut(), packets)?;
                continue;
            }
            Err(error) => return Err(damaged(packets, &error)),
        };
        reader.consume(used);
    }
}

fn refill(reader: &mut dyn PcapReaderIterator, packets: usize) -> Result<(), CaptureError> {
    if reader.reader_exhausted() {
        return Err(damaged(packets, &PcapError::UnexpectedEof));
    }
    reader.refill().map_err(|error| damaged(packets, &error))
}

fn damaged(packets: usize, error: &PcapError<&[u8]>) -> CaptureError {
    let what = match error {
        PcapError::UnexpectedEof => "it ends in the middle of a packet".to_owned(),
        PcapError::ReadError => "it cannot be read any further".to_owned(),
        PcapError::BufferTooSmall => "a packet is larger than 1 MiB".to_owned(),
        _ => "a block is malformed".to_owned(),
    };
    CaptureError::Damaged { packets, what }
}

/// Return a block's packet as interface, timestamp in ticks and bytes. A block that describes an
/// interface is added to `interfaces`.
fn packet<'b>(
    interfaces: &mut Vec<Interface>,
    block: &'b PcapBlockOwned<'_>,
) -> Option<(Interface, u64, &'b [u8])> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_second =
                if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: header.network, ticks_per_second, offset_s: 0 });
            None
        }
        PcapBlockOwned::Legacy(packet) => {
            let interface = *interfaces.first()?;
            let ticks = u64::from(packet.ts_sec) * interface.ticks_per_second;
            let bytes = packet.data.get(..packet.caplen as usize)?;
            Some((interface, ticks + u64::from(packet.ts_usec), bytes))
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            interfaces.push(Interface {
                link: description.linktype,
                ticks_per_second: description.ts_resolution().unwrap_or(1_000_000),
                offset_s: description.ts_offset(),
            });
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = *interfaces.get(packet.if_id as usize)?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            Some((interface, ticks, packet.data.get(..packet.caplen as usize)?))
        }
        PcapBlockOwned::NG(_) => None,
    }
}
