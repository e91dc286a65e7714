//! From the decision that a segment leaves to the segment: in two steps, so that what decides gives a few bytes in
//! registers, and the segment is written once, where its driver wants it.

use skyhop_model::Ecn;

use crate::handshake::Phase;
use crate::segment::{self, Segment, SegmentKind};
use crate::{CongestionControl, Sender};

/// A segment that leaves now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) what: What,
    /// Its place in the stream; 0 where it has none.
    pub(crate) seq: u64,
    /// Whether nothing follows at once.
    pub(crate) push: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Syn,
    HandshakeAck,
    Probe,
    NewData,
    /// Data that was sent before.
    DataAgain,
}

impl What {
    const fn kind(self) -> SegmentKind {
        match self {
            Self::Syn => SegmentKind::Syn,
            Self::HandshakeAck => SegmentKind::HandshakeAck,
            Self::Probe => SegmentKind::Probe,
            Self::NewData | Self::DataAgain => SegmentKind::Data,
        }
    }
}

impl<C: CongestionControl> Sender<C> {
    /// The segment.
    #[inline(always)]
    pub(crate) fn segment(&mut self, leaving: Leaving) -> Segment {
        let Leaving { what, seq, push } = leaving;
        let is_data = matches!(what, What::NewData | What::DataAgain);
        let is_second_syn = matches!(self.phase, Phase::SynSent { attempt: 2.., .. });
        let mut segment = Segment {
            seq,
            offset: if is_data { self.lengths.start_of(seq) } else { 0 },
            len: if is_data { self.lengths.of(seq) as u16 } else { 0 },
            tsval: if self.config.host.timestamps { segment::timestamp_at(self.now) } else { 0 },
            tsecr: if self.config.host.timestamps { self.ts_recent } else { 0 },
            kind: what.kind(),
            fin: is_data && self.stream.is_fin(seq),
            push,
            retransmission: what == What::DataAgain || is_second_syn,
            ecn: Ecn::NotEct,
            cwr: false,
        };
        self.ecn.send(&mut segment);
        segment
    }
}
