//! What travels between two [`Endpoint`](crate::Endpoint)s.

use skyhop_model::Ecn;
use skyhop_units::Bytes;

use crate::sack::SackBlocks;
use crate::segment::{Ack, Segment};

/// IPv4 header and TCP header.
const RESET_BYTES: u64 = 20 + 20;

/// A packet of a connection with data both ways.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(u64)]
pub enum Packet {
    /// Data, from an end that has nothing to acknowledge.
    Segment(Segment),
    /// An acknowledgement alone.
    Ack(PureAck),
    /// Data and an acknowledgement, or the window of an end that opens a connection.
    Both(Box<(Segment, Ack)>),
    /// The connection is over (RST).
    Reset,
}

/// An acknowledgement in little room, as links copy it from place to place: few bring SACK blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PureAck {
    cumulative: u64,
    acknowledged: u64,
    window: u64,
    sack: Option<Box<SackBlocks>>,
    tsecr: u32,
    syn: bool,
    ece: bool,
}

impl From<Ack> for PureAck {
    fn from(ack: Ack) -> Self {
        let Ack { cumulative, sack, acknowledged, window, tsecr, syn, ece } = ack;
        let sack = (!sack.is_empty()).then(|| Box::new(sack));
        Self { cumulative, acknowledged, window, sack, tsecr, syn, ece }
    }
}

impl PureAck {
    /// All that it says.
    #[inline]
    pub fn whole(&self) -> Ack {
        let Self { cumulative, acknowledged, window, ref sack, tsecr, syn, ece } = *self;
        let sack = sack.as_deref().copied().unwrap_or(SackBlocks::EMPTY);
        Ack { cumulative, sack, acknowledged, window, tsecr, syn, ece }
    }

    #[inline]
    fn ip_size(&self) -> Bytes {
        match &self.sack {
            Some(_) => self.whole().ip_size(),
            None => Ack::plain_ip_size(self.syn),
        }
    }
}

impl Packet {
    pub(crate) fn ack(ack: Ack) -> Self {
        Self::Ack(ack.into())
    }

    pub(crate) fn both(segment: Segment, ack: Ack) -> Self {
        Self::Both(Box::new((segment, ack)))
    }

    /// The IP header's ECN bits.
    pub fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) => segment.ecn,
            Self::Both(both) => both.0.ecn,
            Self::Ack(_) | Self::Reset => Ecn::NotEct,
        }
    }

    /// Changes them, as queues on the way do; what carries no segment has none to be looked at.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        match self {
            Self::Segment(segment) => segment.ecn = ecn,
            Self::Both(both) => both.0.ecn = ecn,
            Self::Ack(_) | Self::Reset => {}
        }
    }

    /// The size of the IP packet.
    pub fn ip_size(&self) -> Bytes {
        match self {
            Self::Segment(segment) => segment.ip_size(),
            Self::Ack(ack) => ack.ip_size(),
            Self::Both(both) => both.0.ip_size() + Bytes::new(both.1.sack.option_bytes()),
            Self::Reset => Bytes::new(RESET_BYTES),
        }
    }
}
