//! Packets between two [`Endpoint`](crate::Endpoint)s.

use skyhop_model::Ecn;
use skyhop_units::Bytes;

use crate::sack::{MAX_SACK_BLOCKS, SackBlock, SackBlocks};
use crate::segment::{Ack, Segment};

/// Size of a reset: IPv4 header and TCP header, in bytes.
const RESET_BYTES: u64 = 20 + 20;

/// Packet of a connection with data both ways. It owns no memory, so that moving it is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// Segment without an acknowledgement, from an end that has received nothing yet.
    Segment(Segment),
    /// Acknowledgement without data (a pure ACK).
    Ack(PackedAck),
    /// Segment with an acknowledgement; on a SYN, this part carries only the window of the end that opens the
    /// connection.
    DataWithAck(Segment, PackedAck),
    /// Reset of the connection (RST).
    Reset,
}

/// Consumer of the packets that an end sends. An implementation that is inlined writes each packet once,
/// directly to its destination: copying freshly written memory would stall.
pub trait PacketSink {
    /// Take a packet that is sent now.
    fn send(&mut self, packet: Packet);
}

impl PacketSink for Vec<Packet> {
    fn send(&mut self, packet: Packet) {
        self.push(packet);
    }
}

/// Compact form of [`Ack`]: links copy packets often, and smaller ones are copied faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedAck {
    cumulative: u64,
    acknowledged: u64,
    window: u32,
    tsval: u32,
    tsecr: u32,
    /// Start of each block relative to `cumulative`; negative for a D-SACK below it.
    sack_starts: [i32; MAX_SACK_BLOCKS],
    sack_lens: [u32; MAX_SACK_BLOCKS],
    sack_blocks: u8,
    syn: bool,
    ece: bool,
}

impl From<Ack> for PackedAck {
    #[inline]
    fn from(ack: Ack) -> Self {
        let Ack { cumulative, sack, acknowledged, window, tsval, tsecr, syn, ece } = ack;
        debug_assert!(window <= u32::MAX.into(), "a window has 16 bits and a scale of at most 14");
        let mut packed = Self {
            cumulative,
            acknowledged,
            window: window as u32,
            tsval,
            tsecr,
            sack_starts: [0; MAX_SACK_BLOCKS],
            sack_lens: [0; MAX_SACK_BLOCKS],
            sack_blocks: sack.len() as u8,
            syn,
            ece,
        };
        for (place, block) in sack.as_slice().iter().enumerate() {
            packed.sack_starts[place] = block.start.wrapping_sub(cumulative) as i32;
            packed.sack_lens[place] = (block.end - block.start) as u32;
        }
        packed
    }
}

impl PackedAck {
    /// Unpack to the plain [`Ack`].
    #[inline]
    pub fn unpack(&self) -> Ack {
        let Self { cumulative, acknowledged, window, tsval, tsecr, syn, ece, .. } = *self;
        let mut sack = SackBlocks::EMPTY;
        for place in 0..usize::from(self.sack_blocks) {
            let start = cumulative.wrapping_add_signed(self.sack_starts[place].into());
            sack.push(SackBlock { start, end: start + u64::from(self.sack_lens[place]) });
        }
        Ack { cumulative, sack, acknowledged, window: window.into(), tsval, tsecr, syn, ece }
    }

    #[inline]
    fn ip_size(&self) -> Bytes {
        Ack::ip_size_with(self.syn, self.tsval != 0, self.sack_blocks)
    }
}

impl Packet {
    #[inline]
    pub(crate) fn ack(ack: Ack) -> Self {
        Self::Ack(ack.into())
    }

    #[inline]
    pub(crate) fn data_with_ack(segment: Segment, ack: Ack) -> Self {
        Self::DataWithAck(segment, ack.into())
    }

    /// ECN bits of the IP header.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) | Self::DataWithAck(segment, _) => segment.ecn,
            Self::Ack(_) | Self::Reset => Ecn::NotEct,
        }
    }

    /// Set the ECN bits of the IP header, as queues do; packets without a segment are never ECN-capable and
    /// stay as they are.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        match self {
            Self::Segment(segment) | Self::DataWithAck(segment, _) => segment.ecn = ecn,
            Self::Ack(_) | Self::Reset => {}
        }
    }

    /// Return the acknowledgement that the packet carries, and whether it carries nothing else.
    pub fn acknowledgement(&self) -> Option<(Ack, bool)> {
        match self {
            Self::Ack(ack) => Some((ack.unpack(), true)),
            Self::DataWithAck(_, ack) => Some((ack.unpack(), false)),
            Self::Segment(_) | Self::Reset => None,
        }
    }

    /// Size of the IP packet, headers included.
    #[inline]
    pub fn ip_size(&self) -> Bytes {
        match self {
            Self::Segment(segment) => segment.ip_size(),
            Self::Ack(ack) => ack.ip_size(),
            Self::DataWithAck(segment, ack) => {
                segment.ip_size() + Bytes::new(SackBlocks::option_bytes_of(ack.sack_blocks))
            }
            Self::Reset => Bytes::new(RESET_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_packs_and_unpacks() {
        let mut ack = Ack {
            cumulative: 10_000_000_000,
            sack: SackBlocks::EMPTY,
            acknowledged: 14_480_000_000_000,
            window: 65_535 << 14,
            tsval: 8,
            tsecr: 7,
            syn: false,
            ece: true,
        };
        assert_eq!(PackedAck::from(ack).unpack(), ack);
        // The first block is a D-SACK, the others lie far above `cumulative`.
        for (start, end) in [
            (9_999_999_000, 9_999_999_001),
            (10_000_000_001, 10_002_000_000),
            (10_003_000_000, 10_003_000_009),
        ] {
            ack.sack.push(SackBlock { start, end });
            let packed = PackedAck::from(ack);
            assert_eq!(packed.unpack(), ack);
            assert_eq!(packed.ip_size(), ack.ip_size());
        }
    }
}
