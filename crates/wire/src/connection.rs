//! Sequence numbers of a connection in bytes.
//!
//! Both streams begin with the number 0, which their SYN has: the byte with the offset n has the number n + 1, and the FIN
//! follows the last byte. Numbers have 32 bits and wrap around, as in a header.

use std::collections::VecDeque;

use skyhop_tcp::{Ack, Packet, Segment, SegmentKind};

use crate::headers::{Flags, TcpFields};

/// Direction of a packet between the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Packets from the end that opens the connection.
    FromClient,
    /// Packets to the end that opens the connection.
    ToClient,
}

/// Both streams of a connection, as far as packets have been sent.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Largest segment in bytes, without options.
    mss: u16,
    sack: bool,
    /// Stream from the client, and that from the server.
    streams: [Stream; 2],
}

/// Segments that an end has sent.
#[derive(Debug, Clone, Default)]
struct Stream {
    /// Number of the first segment in `ends`.
    first: u64,
    /// Offset of the byte after each segment.
    ends: VecDeque<u64>,
    /// Number of the segment with the FIN.
    fin: Option<u64>,
    /// Highest cumulative acknowledgement of the other end, in bytes of the stream.
    acknowledged: u64,
    /// Window that the end offered last, in bytes.
    window: u64,
}

/// Number of acknowledged segments whose offsets are kept: D-SACK blocks refer to them.
const KEPT: usize = 1 << 16;

/// Logarithm of the factor of windows: 64 MiB can be offered, in steps of 1 KiB.
const WINDOW_SCALE: u8 = 10;

impl Connection {
    /// Create a connection without segments, whose ends have this MSS and may permit SACK.
    pub fn new(mss: u16, sack: bool) -> Self {
        Self { mss, sack, streams: [Stream::default(), Stream::default()] }
    }

    /// Fields of the TCP header of a packet that is sent now, and the bytes of its payload.
    pub fn send(&mut self, way: Way, packet: &Packet) -> (TcpFields, u16) {
        self.note(way, packet);
        let [own, other] = match way {
            Way::FromClient => [0, 1].map(|end| &self.streams[end]),
            Way::ToClient => [1, 0].map(|end| &self.streams[end]),
        };
        let (segment, ack) = parts(packet);
        let is_syn = segment.is_some_and(|segment| segment.kind == SegmentKind::Syn)
            || ack.is_some_and(|ack| ack.syn);
        let fields = TcpFields {
            seq: own.seq(segment.as_ref(), is_syn),
            ack: match (packet, ack) {
                // The first packet of a connection acknowledges nothing.
                (Packet::DataWithAck(..) | Packet::Segment(_), _) if is_syn => None,
                (_, Some(ack)) => Some(other.acknowledgement(&ack)),
                (_, None) => Some(number_after(0)),
            },
            flags: flags(segment.as_ref(), ack.as_ref(), is_syn),
            window: own.window_field(is_syn),
            mss: is_syn.then_some(self.mss),
            sack_permitted: is_syn && self.sack,
            window_scale: is_syn.then_some(WINDOW_SCALE),
            timestamps: timestamps(segment.as_ref(), ack.as_ref()),
            sack: ack.map_or_else(Vec::new, |ack| other.blocks(&ack)),
        };
        (fields, segment.map_or(0, |segment| segment.len))
    }

    fn note(&mut self, way: Way, packet: &Packet) {
        let [client, server] = &mut self.streams;
        let [own, other] = match way {
            Way::FromClient => [client, server],
            Way::ToClient => [server, client],
        };
        let (segment, ack) = parts(packet);
        if let Some(segment) = segment.filter(|segment| segment.kind == SegmentKind::Data) {
            own.add(&segment);
        }
        if let Some(ack) = ack {
            own.window = ack.window;
            other.acknowledged = other.acknowledged.max(ack.acknowledged);
        }
    }
}

impl Stream {
    fn add(&mut self, segment: &Segment) {
        let end = segment.offset + u64::from(segment.len);
        // A segment keeps its length when it is sent again.
        if segment.seq == self.first + self.ends.len() as u64 {
            self.ends.push_back(end);
        }
        if segment.fin {
            self.fin = Some(segment.seq);
        }
        while self.ends.get(KEPT).is_some_and(|end| *end <= self.acknowledged) {
            self.ends.pop_front();
            self.first += 1;
        }
    }

    /// Sequence number of a packet with this segment, or of one without data.
    fn seq(&self, segment: Option<&Segment>, is_syn: bool) -> u32 {
        match segment {
            _ if is_syn => 0,
            Some(Segment { kind: SegmentKind::Data, offset, .. }) => number_after(*offset),
            // An old number: that of the last byte that is known to have arrived.
            Some(Segment { kind: SegmentKind::Probe, .. }) => {
                number_after(self.acknowledged).wrapping_sub(1)
            }
            _ => {
                let sent = self.ends.back().copied().unwrap_or(0);
                number_after(sent).wrapping_add(u32::from(self.fin.is_some()))
            }
        }
    }

    /// Acknowledgement number of this stream, with the FIN if that has arrived.
    fn acknowledgement(&self, ack: &Ack) -> u32 {
        let has_fin = self.fin.is_some_and(|fin| ack.cumulative > fin);
        number_after(ack.acknowledged).wrapping_add(u32::from(has_fin))
    }

    /// Blocks of the SACK option.
    fn blocks(&self, ack: &Ack) -> Vec<(u32, u32)> {
        let blocks = ack.sack.as_slice().iter();
        blocks
            .map(|block| (self.number_before(block.start), self.number_before(block.end)))
            .collect()
    }

    /// Sequence number of the first byte of a segment.
    fn number_before(&self, segment: u64) -> u32 {
        let has_fin = self.fin.is_some_and(|fin| segment > fin);
        let before = segment.checked_sub(1).map_or(0, |before| self.end_of(before));
        number_after(before).wrapping_add(u32::from(has_fin))
    }

    /// Offset of the byte after a segment; that after the first one that is kept for an older one.
    fn end_of(&self, segment: u64) -> u64 {
        let index = segment.saturating_sub(self.first) as usize;
        self.ends.get(index).or(self.ends.back()).copied().unwrap_or(0)
    }

    /// Window field. What is not zero is not rounded to zero.
    fn window_field(&self, is_syn: bool) -> u16 {
        let steps = if is_syn { self.window } else { self.window.div_ceil(1 << WINDOW_SCALE) };
        u16::try_from(steps).unwrap_or(u16::MAX)
    }
}

/// Sequence number of the byte after the first `bytes` of a stream.
const fn number_after(bytes: u64) -> u32 {
    (bytes as u32).wrapping_add(1)
}

/// Segment and acknowledgement of a packet.
fn parts(packet: &Packet) -> (Option<Segment>, Option<Ack>) {
    match packet {
        Packet::Segment(segment) => (Some(*segment), None),
        Packet::DataWithAck(segment, ack) => (Some(*segment), Some(ack.unpack())),
        Packet::Ack(ack) => (None, Some(ack.unpack())),
        Packet::Reset => (None, None),
    }
}

fn flags(segment: Option<&Segment>, ack: Option<&Ack>, is_syn: bool) -> Flags {
    Flags {
        syn: is_syn,
        fin: segment.is_some_and(|segment| segment.fin),
        rst: segment.is_none() && ack.is_none(),
        psh: segment.is_some_and(|segment| segment.push && segment.len > 0),
        // A SYN that asks for ECN has both flags (RFC 3168 6.1.1).
        ece: ack.is_some_and(|ack| ack.ece) || is_syn && segment.is_some_and(|segment| segment.cwr),
        cwr: segment.is_some_and(|segment| segment.cwr),
    }
}

fn timestamps(segment: Option<&Segment>, ack: Option<&Ack>) -> Option<[u32; 2]> {
    let of_segment = segment.map(|segment| [segment.tsval, segment.tsecr]);
    let of_ack = ack.map(|ack| [ack.tsval, ack.tsecr]);
    of_segment.or(of_ack).filter(|[value, _]| *value != 0)
}

#[cfg(test)]
mod tests {
    use skyhop_model::Ecn;
    use skyhop_tcp::{SackBlock, SackBlocks};

    use super::*;

    const SEGMENT: Segment = Segment {
        seq: 0,
        offset: 0,
        tsval: 5,
        tsecr: 0,
        len: 0,
        kind: SegmentKind::Data,
        fin: false,
        push: false,
        retransmission: false,
        ecn: Ecn::NotEct,
        cwr: false,
    };
    const ACK: Ack = Ack {
        cumulative: 0,
        sack: SackBlocks::EMPTY,
        acknowledged: 0,
        window: 65_535,
        tsval: 6,
        tsecr: 5,
        syn: false,
        ece: false,
    };

    /// Fields of a packet at the time at which it is sent.
    fn sent(connection: &mut Connection, way: Way, packet: Packet) -> TcpFields {
        let (fields, payload) = connection.send(way, &packet);
        let addresses = crate::Addresses {
            source: std::net::SocketAddrV4::new([192, 0, 2, 1].into(), 1),
            destination: std::net::SocketAddrV4::new([192, 0, 2, 2].into(), 2),
            tos: 0,
        };
        // The headers have the size with which the simulator counts.
        let size = crate::headers::tcp(&addresses, &fields, payload).len() as u64;
        assert_eq!(size + u64::from(payload), packet.ip_size().as_u64(), "{packet:?}");
        fields
    }

    fn data(seq: u64, offset: u64, len: u16, fin: bool) -> Packet {
        Packet::Segment(Segment { seq, offset, len, fin, ..SEGMENT })
    }

    #[test]
    fn numbers_count_bytes_from_the_syn_to_the_fin() {
        let mut connection = Connection::new(1448, true);
        let syn = Segment { kind: SegmentKind::Syn, ..SEGMENT };
        let first = sent(&mut connection, Way::FromClient, Packet::DataWithAck(syn, ACK.into()));
        assert_eq!((first.seq, first.ack, first.flags.syn, first.mss), (0, None, true, Some(1448)));
        assert_eq!((first.window, first.window_scale), (65_535, Some(10)));
        let syn_ack = Packet::Ack(Ack { syn: true, ..ACK }.into());
        let second = sent(&mut connection, Way::ToClient, syn_ack);
        assert_eq!((second.seq, second.ack, second.flags.syn), (0, Some(1), true));
        let third = Segment { kind: SegmentKind::HandshakeAck, ..SEGMENT };
        let third = sent(&mut connection, Way::FromClient, Packet::Segment(third));
        assert_eq!((third.seq, third.ack, third.window), (1, Some(1), 64));

        let sizes = [1448, 1448, 100, 1448];
        let mut offset = 0;
        for (seq, len) in (0..).zip(sizes) {
            let fields = sent(&mut connection, Way::FromClient, data(seq, offset, len, seq == 3));
            assert_eq!((fields.seq, fields.ack), (offset as u32 + 1, Some(1)));
            assert_eq!(fields.flags.fin, seq == 3);
            offset += u64::from(len);
        }
        // The second segment is missing; the last one, with the FIN, is there.
        let mut ack = Ack { cumulative: 1, acknowledged: 1448, ..ACK };
        ack.sack.push(SackBlock { start: 2, end: 4 });
        let fields = sent(&mut connection, Way::ToClient, Packet::Ack(ack.into()));
        assert_eq!((fields.seq, fields.ack), (1, Some(1449)));
        assert_eq!(fields.sack, [(2897, 4446)], "the FIN counts as a byte");
        let again = sent(&mut connection, Way::FromClient, data(1, 1448, 1448, false));
        assert_eq!(again.seq, 1449);
        let last = Ack { cumulative: 4, acknowledged: 4444, ..ACK };
        let fields = sent(&mut connection, Way::ToClient, Packet::Ack(last.into()));
        assert_eq!(fields.ack, Some(4446));
        // A packet without data comes after the FIN.
        let fields = sent(&mut connection, Way::FromClient, Packet::Reset);
        assert_eq!((fields.seq, fields.flags.rst), (4446, true));
    }

    #[test]
    fn a_probe_has_the_number_of_a_byte_that_has_arrived() {
        let mut connection = Connection::new(1448, true);
        sent(&mut connection, Way::FromClient, data(0, 0, 1000, false));
        let full = Ack { cumulative: 1, acknowledged: 1000, window: 0, ..ACK };
        let fields = sent(&mut connection, Way::ToClient, Packet::Ack(full.into()));
        assert_eq!((fields.ack, fields.window), (Some(1001), 0));
        let probe = Packet::Segment(Segment { kind: SegmentKind::Probe, ..SEGMENT });
        assert_eq!(sent(&mut connection, Way::FromClient, probe).seq, 1000);
        let some = Ack { cumulative: 1, acknowledged: 1000, window: 1, ..ACK };
        let fields = sent(&mut connection, Way::ToClient, Packet::Ack(some.into()));
        assert_eq!(fields.window, 1, "a window that is open is not zero");
    }

    #[test]
    fn offsets_of_acknowledged_segments_are_forgotten_after_a_while() {
        let mut connection = Connection::new(1448, true);
        for seq in 0..3 * KEPT as u64 {
            connection.send(Way::FromClient, &data(seq, 1000 * seq, 1000, false));
            let ack = Ack { cumulative: seq + 1, acknowledged: 1000 * (seq + 1), ..ACK };
            connection.send(Way::ToClient, &Packet::Ack(ack.into()));
        }
        assert!(connection.streams[0].ends.len() <= KEPT + 1);
        let mut ack = Ack { cumulative: 3 * KEPT as u64, acknowledged: 3000 * KEPT as u64, ..ACK };
        let last = 3 * KEPT as u64 - 1;
        ack.sack.push(SackBlock { start: last, end: last + 1 });
        let (fields, _) = connection.send(Way::ToClient, &Packet::Ack(ack.into()));
        let first = (1000 * last) as u32 + 1;
        assert_eq!(fields.sack, [(first, first + 1000)]);
    }
}
