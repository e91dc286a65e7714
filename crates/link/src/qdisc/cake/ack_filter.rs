//! Filter of TCP acknowledgements that a later one supersedes (`cake_ack_filter`), which would fill a slow
//! return path.

use std::cell::Cell;
use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Queued;

/// Policy for dropping acknowledgements that a newer one of the same connection supersedes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AckFilter {
    /// Never drop an acknowledgement.
    #[default]
    Off,
    /// Drop the oldest superseded acknowledgement of a connection, once two are superseded.
    On,
    /// Drop superseded acknowledgements as `on` does, and a single one too if it directly precedes the newer one.
    Aggressive,
}

/// Payload that may be a TCP segment.
pub trait CarriesTcp {
    /// TCP header fields; `None` if the payload is no TCP segment, acknowledges nothing, or opens a connection
    /// (SYN).
    fn tcp(&self) -> Option<TcpFacts>;
}

impl<P: CarriesTcp + Copy> CarriesTcp for Cell<P> {
    fn tcp(&self) -> Option<TcpFacts> {
        self.get().tcp()
    }
}

/// Reader of the payload's TCP header; a function pointer, so that payloads need no bounds.
pub(crate) type ReadTcp<P> = fn(&P) -> Option<TcpFacts>;

/// Fields of a TCP header that the acknowledgement filter compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFacts {
    /// Identifier of the connection and direction.
    pub connection: u64,
    /// Acknowledgement number of the header.
    pub acknowledged: u32,
    /// Whether the segment is a pure acknowledgement: no data, no flags except ACK, ECE and CWR, no unusual
    /// options.
    pub is_pure: bool,
    /// ECE and CWR flags. Where these flags change from one acknowledgement to the next, both are kept.
    pub ecn_flags: u8,
    /// Values TSval and TSecr of the timestamp option.
    pub timestamps: Option<[u32; 2]>,
    /// Blocks of the SACK option: first sequence number, and the one after the last.
    pub sacks: [Option<[u32; 2]>; 4],
}

impl AckFilter {
    /// Index of the waiting packet to drop because the last packet in the queue supersedes it; `None` if there
    /// is none.
    pub(super) fn superfluous<P>(
        self,
        waiting: &VecDeque<Queued<P>>,
        read_tcp: ReadTcp<P>,
    ) -> Option<usize> {
        let last = waiting.len().checked_sub(1).filter(|last| *last > 0)?;
        let read = |number: usize| read_tcp(&waiting.get(number)?.packet.payload);
        let new = read(last)?;
        // First superseded packet that may be dropped, and its ECN flags.
        let mut eligible: Option<(usize, u8)> = None;
        let mut found = 0;
        for number in 0..last {
            let Some(old) = read(number).filter(|old| old.connection == new.connection) else {
                continue;
            };
            if eligible.is_some_and(|(_, flags)| flags != old.ecn_flags) {
                // The flags change after the eligible packet, so it must be kept.
                (eligible, found) = (None, found - 1);
            }
            if !new.supersedes(&old) {
                continue;
            }
            eligible = eligible.or(Some((number, old.ecn_flags)));
            found += 1;
            if found > 1 {
                return eligible.map(|(first, _)| first);
            }
        }
        let (first, flags) = eligible?;
        let is_next = self == Self::Aggressive && first + 1 == last && flags == new.ecn_flags;
        is_next.then_some(first)
    }
}

impl TcpFacts {
    /// Whether `old`, of the same connection, may be dropped in favour of this acknowledgement.
    fn supersedes(&self, old: &Self) -> bool {
        let [older, newer] = [old, self].map(|facts| facts.timestamps.unwrap_or([0; 2]));
        let turns_back = old.timestamps.is_some()
            && (is_after(older[0], newer[0]) || is_after(older[1], newer[1]));
        if !old.is_pure || turns_back || is_after(old.acknowledged, self.acknowledged) {
            return false;
        }
        match old.covered_by(self) {
            SackCoverage::Not => false,
            SackCoverage::Same => old.acknowledged != self.acknowledged,
            SackCoverage::More => true,
        }
    }

    /// Compare the SACK blocks with those of another header, as `cake_tcph_sack_compare` does.
    fn covered_by(&self, other: &Self) -> SackCoverage {
        let (ours, others) = (self.sacks.iter().flatten(), other.sacks.iter().flatten());
        match (ours.clone().count(), others.clone().count()) {
            (0, 0) => return SackCoverage::Same,
            (0, _) => return SackCoverage::More,
            (_, 0) => return SackCoverage::Not,
            _ => {}
        }
        let is_held = |[from, until]: &[u32; 2]| {
            // A D-SACK block (below the acknowledgement number) is reported once, so it is not covered by a
            // later block.
            !is_after(self.acknowledged, *from)
                && others.clone().any(|[a, b]| !is_after(*a, *from) && !is_after(*until, *b))
        };
        if !ours.clone().all(is_held) {
            return SackCoverage::Not;
        }
        let length = |blocks: &mut dyn Iterator<Item = &[u32; 2]>| -> u64 {
            blocks.map(|[from, until]| u64::from(until.wrapping_sub(*from))).sum()
        };
        match length(&mut others.clone()) > length(&mut ours.clone()) {
            true => SackCoverage::More,
            false => SackCoverage::Same,
        }
    }
}

/// Extent to which another header's SACK blocks cover the SACK blocks of a header.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SackCoverage {
    /// The other header does not cover all these blocks.
    Not,
    Same,
    /// The other header covers all these blocks and more.
    More,
}

/// Whether `a` is after `b` in sequence space, modulo 2^32.
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[cfg(test)]
mod tests {
    use skyhop_units::{Bytes, Instant};

    use super::*;
    use crate::Packet;

    fn ack(acknowledged: u32) -> TcpFacts {
        TcpFacts {
            connection: 1,
            acknowledged,
            is_pure: true,
            ecn_flags: 0,
            timestamps: Some([acknowledged, acknowledged]),
            sacks: [None; 4],
        }
    }

    fn sacking(acknowledged: u32, blocks: &[[u32; 2]]) -> TcpFacts {
        let mut facts = ack(acknowledged);
        facts.sacks.iter_mut().zip(blocks).for_each(|(place, block)| *place = Some(*block));
        facts
    }

    /// Index of the packet dropped with the filter `on`, and with `aggressive`.
    fn goes(line: &[TcpFacts]) -> [Option<usize>; 2] {
        let queued = |facts: &TcpFacts| Queued {
            since: Instant::START,
            packet: Packet::new(Bytes::new(66), *facts),
        };
        let waiting: VecDeque<Queued<TcpFacts>> = line.iter().map(queued).collect();
        [AckFilter::On, AckFilter::Aggressive]
            .map(|filter| filter.superfluous(&waiting, |facts| Some(*facts)))
    }

    #[test]
    fn the_first_of_two_that_say_less_goes_and_one_alone_where_it_is_the_last() {
        assert_eq!(goes(&[ack(1)]), [None, None]);
        assert_eq!(goes(&[ack(1), ack(2)]), [None, Some(0)]);
        assert_eq!(goes(&[ack(1), ack(2), ack(3)]), [Some(0), Some(0)]);
        let other = TcpFacts { connection: 2, ..ack(5) };
        assert_eq!(goes(&[ack(1), other, ack(2)]), [None, None]);
        assert_eq!(goes(&[ack(1), other, ack(2), ack(3)]), [Some(0), Some(0)]);
    }

    #[test]
    fn acknowledgements_that_are_not_superseded_stay() {
        assert_eq!(goes(&[ack(7), ack(7), ack(7)]), [None, None], "duplicates tell of a loss");
        assert_eq!(goes(&[ack(8), ack(9), ack(7)]), [None, None]);
        let data = TcpFacts { is_pure: false, ..ack(1) };
        assert_eq!(goes(&[data, data, ack(7)]), [None, None]);
        assert_eq!(goes(&[ack(1), ack(2), TcpFacts { is_pure: false, ..ack(7) }])[0], Some(0));
        let older = TcpFacts { timestamps: Some([1, 1]), ..ack(9) };
        assert_eq!(goes(&[ack(7), ack(8), older]), [None, None], "time does not go back");
        let around = [ack(u32::MAX - 1), ack(u32::MAX), ack(3)];
        assert_eq!(goes(&around), [Some(0), Some(0)], "numbers begin again");
    }

    #[test]
    fn blocks_go_only_into_greater_ones() {
        let [small, same, large] =
            [[[20, 30]], [[20, 30]], [[20, 40]]].map(|block| sacking(10, &block));
        assert_eq!(goes(&[small, large]), [None, Some(0)]);
        assert_eq!(goes(&[small, same]), [None, None]);
        assert_eq!(goes(&[large, small]), [None, None]);
        assert_eq!(goes(&[small, ack(12)]), [None, None], "the blocks would not be known");
        assert_eq!(goes(&[ack(12), sacking(12, &[[20, 30]])]), [None, Some(0)]);
        let two = sacking(10, &[[50, 60], [20, 30]]);
        assert_eq!(goes(&[small, two]), [None, Some(0)]);
        assert_eq!(goes(&[two, large]), [None, None]);
        let doubled = sacking(10, &[[5, 6]]);
        assert_eq!(goes(&[doubled, sacking(10, &[[5, 6], [20, 30]])]), [None, None], "D-SACK");
    }

    #[test]
    fn changes_of_the_marks_are_told() {
        let marked = |acknowledged| TcpFacts { ecn_flags: 0x40, ..ack(acknowledged) };
        assert_eq!(goes(&[ack(1), marked(2), ack(3)]), [None, None]);
        assert_eq!(goes(&[ack(1), marked(2)]), [None, None]);
        assert_eq!(goes(&[marked(1), marked(2), ack(3)]), [Some(0), Some(0)]);
        assert_eq!(goes(&[ack(1), marked(2), marked(3), ack(4)]), [Some(1), Some(1)]);
    }
}
