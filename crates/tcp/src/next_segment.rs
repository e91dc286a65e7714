//! Choice of the next segment, separate from building the segment: the choice is a few bytes in registers, and
//! the segment is written only once, directly to the driver's destination.

use skyhop_model::Ecn;

use crate::handshake::Phase;
use crate::segment::{self, Segment, SegmentKind};
use crate::{CongestionControl, Sender};

/// Choice of the segment to send now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextSegment {
    pub(crate) purpose: SegmentPurpose,
    /// Sequence number; 0 for segments without data.
    pub(crate) seq: u64,
    /// Whether the segment has PSH set, because no other segment follows at once.
    pub(crate) push: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentPurpose {
    Syn,
    HandshakeAck,
    Probe,
    NewData,
    RetransmittedData,
}

impl SegmentPurpose {
    const fn kind(self) -> SegmentKind {
        match self {
            Self::Syn => SegmentKind::Syn,
            Self::HandshakeAck => SegmentKind::HandshakeAck,
            Self::Probe => SegmentKind::Probe,
            Self::NewData | Self::RetransmittedData => SegmentKind::Data,
        }
    }
}

impl<C: CongestionControl> Sender<C> {
    /// Build the chosen segment, with timestamps, FIN and ECN bits.
    #[inline(always)]
    pub(crate) fn build_segment(&mut self, next: NextSegment) -> Segment {
        let NextSegment { purpose, seq, push } = next;
        let is_data =
            matches!(purpose, SegmentPurpose::NewData | SegmentPurpose::RetransmittedData);
        let is_second_syn = matches!(self.phase, Phase::SynSent { attempt: 2.., .. });
        let mut segment = Segment {
            seq,
            offset: if is_data { self.lengths.start_of(seq) } else { 0 },
            len: if is_data { self.lengths.len_of(seq) as u16 } else { 0 },
            tsval: if self.config.host.timestamps { segment::timestamp_at(self.now) } else { 0 },
            tsecr: if self.config.host.timestamps { self.ts_recent } else { 0 },
            kind: purpose.kind(),
            fin: is_data && self.stream.is_fin(seq),
            push,
            retransmission: purpose == SegmentPurpose::RetransmittedData || is_second_syn,
            ecn: Ecn::NotEct,
            cwr: false,
        };
        self.ecn.send(&mut segment);
        segment
    }
}
