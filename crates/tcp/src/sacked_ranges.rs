//! Segments received beyond a gap, and the SACK blocks that report them.

use std::collections::VecDeque;

use crate::sack::{SackBlock, SackBlocks};

/// Number of recent blocks that the kernel remembers (`selective_acks`).
const RECENT: usize = 4;
/// Number of recent blocks that an ACK reports even if other options leave little room.
const REPORTED_FOR_SURE: usize = 2;

/// Segments beyond the cumulative acknowledgement, as disjoint ranges that do not touch.
#[derive(Debug, Default)]
pub(crate) struct SackedRanges {
    ranges: VecDeque<SackBlock>,
    /// Most recently changed ranges, newest first (RFC 2018 4).
    recent: [SackBlock; RECENT],
    recent_len: usize,
}

impl SackedRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Add a segment; return `false` if it had already arrived.
    pub(crate) fn insert(&mut self, seq: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= seq);
        if after > 0 && seq < self.ranges[after - 1].end {
            return false;
        }
        let joins_before = after > 0 && self.ranges[after - 1].end == seq;
        let joins_after = self.ranges.get(after).is_some_and(|range| range.start == seq + 1);
        let changed = match (joins_before, joins_after) {
            (true, true) => {
                let end = self.ranges[after].end;
                self.ranges.remove(after);
                self.ranges[after - 1].end = end;
                self.ranges[after - 1]
            }
            (true, false) => {
                self.ranges[after - 1].end = seq + 1;
                self.ranges[after - 1]
            }
            (false, true) => {
                self.ranges[after].start = seq;
                self.ranges[after]
            }
            (false, false) => {
                self.ranges.insert(after, SackBlock { start: seq, end: seq + 1 });
                self.ranges[after]
            }
        };
        self.note_recent(changed);
        true
    }

    /// Whether adding `seq` would move a recent range out of the first [`REPORTED_FOR_SURE`] places, so that a
    /// delayed ACK might no longer report it.
    pub(crate) fn would_displace(&self, seq: u64) -> bool {
        let recent = &self.recent[..self.recent_len];
        let touches = |range: &SackBlock| range.start <= seq + 1 && seq <= range.end;
        recent.iter().position(touches).unwrap_or(self.recent_len) >= REPORTED_FOR_SURE
    }

    /// Move a range to the front of the recent ones, and drop those that it now contains.
    fn note_recent(&mut self, range: SackBlock) {
        let mut kept = [SackBlock::default(); RECENT];
        kept[0] = range;
        let mut len = 1;
        for old in &self.recent[..self.recent_len] {
            if len < RECENT && !range.contains(old) {
                kept[len] = *old;
                len += 1;
            }
        }
        (self.recent, self.recent_len) = (kept, len);
    }

    /// Remove the ranges that follow without a gap once all segments below `next` have arrived; return the
    /// lowest segment that is still missing.
    pub(crate) fn advance(&mut self, next: u64) -> u64 {
        let mut next = next;
        while let Some(first) = self.ranges.front().filter(|first| first.start <= next) {
            next = next.max(first.end);
            self.ranges.pop_front();
        }
        let mut len = 0;
        for index in 0..self.recent_len {
            if self.recent[index].start > next {
                self.recent[len] = self.recent[index];
                len += 1;
            }
        }
        self.recent_len = len;
        next
    }

    /// Return the range that contains `seq`.
    pub(crate) fn containing(&self, seq: u64) -> Option<SackBlock> {
        let after = self.ranges.partition_point(|range| range.start <= seq);
        self.ranges.get(after.checked_sub(1)?).filter(|range| seq < range.end).copied()
    }

    /// Return the blocks to report, after a D-SACK if there is one (RFC 2883 4: the range that contains the
    /// duplicate comes second).
    pub(crate) fn blocks(&self, duplicate: Option<SackBlock>) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        let mut around = None;
        if let Some(duplicate) = duplicate {
            blocks.push(duplicate);
            around = self.containing(duplicate.start);
            if let Some(around) = around {
                blocks.push(around);
            }
        }
        for range in &self.recent[..self.recent_len] {
            if Some(*range) != around {
                blocks.push(*range);
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::SackedRanges;
    use crate::sack::SackBlock;

    fn block(start: u64, end: u64) -> SackBlock {
        SackBlock { start, end }
    }

    #[test]
    fn ranges_join_and_the_newest_comes_first() {
        let mut ranges = SackedRanges::default();
        for seq in [5, 9, 7] {
            assert!(ranges.insert(seq));
        }
        assert_eq!(ranges.blocks(None).as_slice(), [block(7, 8), block(9, 10), block(5, 6)]);
        assert!(ranges.insert(6));
        assert_eq!(ranges.blocks(None).as_slice(), [block(5, 8), block(9, 10)]);
        assert!(!ranges.insert(7));
        assert_eq!(ranges.advance(5), 8);
        assert_eq!(ranges.blocks(None).as_slice(), [block(9, 10)]);
    }

    #[test]
    fn a_duplicate_comes_before_the_range_around_it() {
        let mut ranges = SackedRanges::default();
        for seq in [5, 6, 9] {
            assert!(ranges.insert(seq));
        }
        let blocks = ranges.blocks(Some(block(5, 6)));
        assert_eq!(blocks.as_slice(), [block(5, 6), block(5, 7), block(9, 10)]);
        assert_eq!(blocks.duplicate(3), Some(block(5, 6)));
        assert_eq!(ranges.blocks(None).duplicate(3), None);
    }
}
