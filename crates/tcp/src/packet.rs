//! What travels between two [`Endpoint`](crate::Endpoint)s.

use skyhop_model::Ecn;
use skyhop_units::Bytes;

use crate::sack::{MAX_SACK_BLOCKS, SackBlock, SackBlocks};
use crate::segment::{Ack, Segment};

/// IPv4 header and TCP header.
const RESET_BYTES: u64 = 20 + 20;

/// A packet of a connection with data both ways. Plain numbers: what has nothing to free is cheap to hand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// Data, from an end that has nothing to acknowledge.
    Segment(Segment),
    /// An acknowledgement alone.
    Ack(PackedAck),
    /// Data and an acknowledgement, or the window of an end that opens a connection.
    Both(Segment, PackedAck),
    /// The connection is over (RST).
    Reset,
}

/// Who takes the packets that leave an end. An implementation that is inlined writes each packet once, where it is to
/// be: copying what was just written has to wait for it.
pub trait Outlet {
    /// A packet leaves now.
    fn send(&mut self, packet: Packet);
}

impl Outlet for Vec<Packet> {
    fn send(&mut self, packet: Packet) {
        self.push(packet);
    }
}

/// An acknowledgement in little room: links copy it from place to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedAck {
    cumulative: u64,
    acknowledged: u64,
    window: u32,
    tsval: u32,
    tsecr: u32,
    /// From `cumulative`, which a D-SACK may lie below.
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
    /// All that it says.
    #[inline]
    pub fn whole(&self) -> Ack {
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
    pub(crate) fn both(segment: Segment, ack: Ack) -> Self {
        Self::Both(segment, ack.into())
    }

    /// The IP header's ECN bits.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) | Self::Both(segment, _) => segment.ecn,
            Self::Ack(_) | Self::Reset => Ecn::NotEct,
        }
    }

    /// Changes them, as queues on the way do; what carries no segment has none to be looked at.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        match self {
            Self::Segment(segment) | Self::Both(segment, _) => segment.ecn = ecn,
            Self::Ack(_) | Self::Reset => {}
        }
    }

    /// What it acknowledges, and whether it carries nothing else.
    pub fn acknowledgement(&self) -> Option<(Ack, bool)> {
        match self {
            Self::Ack(ack) => Some((ack.whole(), true)),
            Self::Both(_, ack) => Some((ack.whole(), false)),
            Self::Segment(_) | Self::Reset => None,
        }
    }

    /// The size of the IP packet.
    #[inline]
    pub fn ip_size(&self) -> Bytes {
        match self {
            Self::Segment(segment) => segment.ip_size(),
            Self::Ack(ack) => ack.ip_size(),
            Self::Both(segment, ack) => {
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
        assert_eq!(PackedAck::from(ack).whole(), ack);
        // A D-SACK, and blocks far above.
        for (start, end) in [
            (9_999_999_000, 9_999_999_001),
            (10_000_000_001, 10_002_000_000),
            (10_003_000_000, 10_003_000_009),
        ] {
            ack.sack.push(SackBlock { start, end });
            let packed = PackedAck::from(ack);
            assert_eq!(packed.whole(), ack);
            assert_eq!(packed.ip_size(), ack.ip_size());
        }
    }
}
