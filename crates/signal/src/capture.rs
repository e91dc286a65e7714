//! Packets as the samples of blind estimation: of captures (pcap and pcapng), and as they arrive.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use skyhop_units::UtcInstant;
use thiserror::Error;

use crate::blind::{Estimate, Period, Sample, Traffic};

/// Why a capture cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// It is neither pcap nor pcapng.
    #[error("it is neither a pcap nor a pcapng file")]
    NotACapture,
    /// It ends or goes wrong in the middle.
    #[error("it is damaged after {packets} packets: {what}")]
    Damaged {
        /// How many packets were read.
        packets: usize,
        /// What is wrong.
        what: String,
    },
    /// Its packets come from a kind of interface that is not known here.
    #[error("its link type {0} is not known; Ethernet, raw IP and Linux cooked captures are")]
    LinkType(i32),
    /// There is not one TCP or UDP packet in it.
    #[error("it holds no TCP or UDP packet over IP")]
    Empty,
}

/// One direction of a conversation: the packets that went from one socket to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// "TCP 192.0.2.1:443 > 192.0.2.7:51000"
    pub name: String,
    /// When its packets were captured.
    pub samples: Vec<Sample>,
}

/// Both directions of the conversation with the most packets, the busier one first: over the bottleneck
/// one has data and the other ACKs, and either stops at a handover.
///
/// # Errors
/// [`CaptureError`].
pub fn busiest_conversation(capture: impl Read + Send) -> Result<Vec<Stream>, CaptureError> {
    let mut arrivals: BTreeMap<Direction, Vec<Sample>> = BTreeMap::new();
    for_each_packet(capture, |at, link, bytes| {
        let direction = direction(link, bytes)?;
        if let Some(direction) = direction {
            arrivals.entry(direction).or_default().push(Sample { at, delay: None });
        }
        Ok(())
    })?;
    let count = |direction: &Direction| arrivals.get(direction).map_or(0, Vec::len);
    let busiest = arrivals.keys().max_by_key(|one| count(one) + count(&one.reversed()));
    let busiest = *busiest.ok_or(CaptureError::Empty)?;
    let mut streams: Vec<Stream> = [busiest, busiest.reversed()]
        .into_iter()
        .filter_map(|one| Some(Stream { name: one.name(), samples: arrivals.remove(&one)? }))
        .collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.samples.len()));
    Ok(streams)
}

/// The last minutes of what arrives at an interface, by conversation.
#[derive(Debug, Default)]
pub struct Conversations {
    arrivals: BTreeMap<Direction, Traffic>,
}

/// How many of the busiest conversations are looked at: the clearest one counts.
const LOOKED_AT: usize = 3;
/// Of more conversations the less busy ones are forgotten at the next look.
const MOST_KEPT: usize = 100;

impl Conversations {
    /// Notes an IP packet; one that is not TCP or UDP counts for nothing.
    pub fn arrived(&mut self, at: UtcInstant, ip: &[u8]) {
        let packet = LaxSlicedPacket::from_ip(ip).ok();
        if let Some(direction) = packet.and_then(|packet| sockets(&packet)) {
            self.arrivals.entry(direction).or_default().push(Sample { at, delay: None });
        }
    }

    /// Forgets what is older than `before`, and all but the busiest conversations.
    pub fn forget(&mut self, before: UtcInstant) {
        self.arrivals.values_mut().for_each(|traffic| traffic.forget(before));
        let busiest = self.busiest(MOST_KEPT);
        self.arrivals.retain(|one, traffic| busiest.contains(one) && traffic.samples() > 0);
    }

    /// The estimate of the busy conversation that shows a grid most clearly, and its name.
    pub fn estimate(&self, period: Period) -> Option<(String, Estimate)> {
        let busiest = self.busiest(LOOKED_AT).into_iter();
        let estimates = busiest.map(|one| (one.name(), self.arrivals[&one].estimate(period)));
        estimates.max_by(|(_, a), (_, b)| Estimate::by_clarity(a, b))
    }

    fn busiest(&self, most: usize) -> Vec<Direction> {
        let mut busiest: Vec<Direction> = self.arrivals.keys().copied().collect();
        busiest.sort_by_key(|one| std::cmp::Reverse(self.arrivals[one].samples()));
        busiest.truncate(most);
        busiest
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Direction {
    protocol: &'static str,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl Direction {
    fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }

    fn name(self) -> String {
        let socket = |(ip, port)| std::net::SocketAddr::new(ip, port);
        format!("{} {} > {}", self.protocol, socket(self.from), socket(self.to))
    }
}

/// Between whom a packet goes; `None` where it is not TCP or UDP.
fn direction(link: Linktype, bytes: &[u8]) -> Result<Option<Direction>, CaptureError> {
    let cooked = |header: usize, place: usize| {
        let kind = bytes.get(place..)?.first_chunk()?;
        let kind = EtherType(u16::from_be_bytes(*kind));
        Some(LaxSlicedPacket::from_ether_type(kind, bytes.get(header..)?))
    };
    // A packet that is cut or malformed belongs to no conversation.
    let packet = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        Linktype::LINUX_SLL => cooked(16, 14),
        Linktype::LINUX_SLL2 => cooked(20, 0),
        Linktype(other) => return Err(CaptureError::LinkType(other)),
    };
    Ok(packet.and_then(|packet| sockets(&packet)))
}

fn sockets(packet: &LaxSlicedPacket<'_>) -> Option<Direction> {
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
    Some(Direction { protocol, from: (from, source), to: (to, destination) })
}

// --- the file ---

/// More than the largest packet that is captured (256 KiB with segmentation offload).
const BUFFER: usize = 1 << 20;
const NANOSECONDS: i128 = 1_000_000_000;

/// What the packets of one interface have in common.
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

fn for_each_packet(
    capture: impl Read + Send,
    mut work: impl FnMut(UtcInstant, Linktype, &[u8]) -> Result<(), CaptureError>,
) -> Result<(), CaptureError> {
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
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => {
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

/// A block's packet: its interface, its time and its bytes. Blocks that describe interfaces are noted.
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
