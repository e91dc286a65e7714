//! Conversion of sequence numbers, which count segments, to byte offsets; nearly all segments are full-size.

use std::collections::VecDeque;

/// Lengths of the segments that have been sent.
#[derive(Debug)]
pub(crate) struct SegmentLengths {
    mss: u64,
    /// Byte offset of the first segment that is still tracked, and byte offset after the last segment that was
    /// sent.
    begin: u64,
    end: u64,
    /// Tracked segments that are shorter than the MSS, in order: sequence number, and the number of bytes by
    /// which all segments up to and including it fall short of full size.
    short: VecDeque<(u64, u64)>,
    /// Number of bytes by which the segments before `short` fall short of full size.
    shortfall_before: u64,
}

impl SegmentLengths {
    pub(crate) fn new(mss: u32) -> Self {
        Self { mss: mss.into(), begin: 0, end: 0, short: VecDeque::new(), shortfall_before: 0 }
    }

    /// Number of acknowledged bytes, whose segments are no longer tracked.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// Number of bytes that have been sent.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Append segment `seq`, the one after the last, of `len` bytes.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, len: u64) {
        self.end += len;
        if len < self.mss {
            let shortfall =
                self.short.back().map_or(self.shortfall_before, |(_, shortfall)| *shortfall);
            self.short.push_back((seq, shortfall + self.mss - len));
        }
    }

    /// Byte offset in the stream at which segment `seq` begins.
    #[inline]
    pub(crate) fn start_of(&self, seq: u64) -> u64 {
        if self.short.is_empty() {
            seq * self.mss - self.shortfall_before
        } else {
            self.search(seq)
        }
    }

    fn search(&self, seq: u64) -> u64 {
        let below = self.short.partition_point(|(short, _)| *short < seq);
        seq * self.mss
            - below.checked_sub(1).map_or(self.shortfall_before, |last| self.short[last].1)
    }

    /// Length of segment `seq`, in bytes.
    #[inline]
    pub(crate) fn len_of(&self, seq: u64) -> u32 {
        if self.short.is_empty() {
            return self.mss as u32;
        }
        (self.search(seq + 1) - self.search(seq)) as u32
    }

    /// Stop tracking the segments below `seq`, which have been acknowledged.
    pub(crate) fn forget_below(&mut self, seq: u64) {
        while let Some((_, shortfall)) = self.short.front().filter(|(short, _)| *short < seq) {
            self.shortfall_before = *shortfall;
            self.short.pop_front();
        }
        self.begin = seq * self.mss - self.shortfall_before;
    }
}

#[cfg(test)]
mod tests {
    use super::SegmentLengths;

    #[test]
    fn short_segments_move_what_follows() {
        let lens = [1448, 300, 0, 1448, 1448, 7, 1448];
        let mut lengths = SegmentLengths::new(1448);
        for (seq, len) in lens.into_iter().enumerate() {
            lengths.push(seq as u64, len);
        }
        assert_eq!(lengths.end(), lens.iter().sum::<u64>());
        for forgotten in 0..lens.len() {
            lengths.forget_below(forgotten as u64);
            assert_eq!(lengths.begin(), lens[..forgotten].iter().sum::<u64>());
            for seq in forgotten..lens.len() {
                assert_eq!(u64::from(lengths.len_of(seq as u64)), lens[seq]);
                assert_eq!(lengths.start_of(seq as u64), lens[..seq].iter().sum::<u64>());
            }
        }
    }
}
