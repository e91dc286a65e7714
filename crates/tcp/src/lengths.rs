//! Where segments begin in bytes, while sequence numbers count segments: all are full-size but a few.

use std::collections::VecDeque;

/// The lengths of the segments that have been sent.
#[derive(Debug)]
pub(crate) struct Lengths {
    mss: u64,
    /// Where the segments that still matter begin, and where all that were sent end, in bytes.
    begin: u64,
    end: u64,
    /// Those of them that are shorter, in order: the place of each, and by how many bytes all up to it, itself included,
    /// fall short of full size.
    short: VecDeque<(u64, u64)>,
    /// By how many bytes those before them do.
    before: u64,
}

impl Lengths {
    pub(crate) fn new(mss: u32) -> Self {
        Self { mss: mss.into(), begin: 0, end: 0, short: VecDeque::new(), before: 0 }
    }

    /// The bytes that nobody asks for any more: what has been acknowledged.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// The bytes that have been sent.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Segment `seq`, the one after the last, is `len` bytes long.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, len: u64) {
        self.end += len;
        if len < self.mss {
            let lacking = self.short.back().map_or(self.before, |(_, lacking)| *lacking);
            self.short.push_back((seq, lacking + self.mss - len));
        }
    }

    /// Where segment `seq` begins in the stream.
    #[inline]
    pub(crate) fn start_of(&self, seq: u64) -> u64 {
        if self.short.is_empty() { seq * self.mss - self.before } else { self.search(seq) }
    }

    fn search(&self, seq: u64) -> u64 {
        let below = self.short.partition_point(|(short, _)| *short < seq);
        seq * self.mss - below.checked_sub(1).map_or(self.before, |last| self.short[last].1)
    }

    /// How long segment `seq` is.
    #[inline]
    pub(crate) fn of(&self, seq: u64) -> u32 {
        if self.short.is_empty() {
            return self.mss as u32;
        }
        (self.search(seq + 1) - self.search(seq)) as u32
    }

    /// Nobody asks for segments below `seq` any more.
    pub(crate) fn forget_below(&mut self, seq: u64) {
        while let Some((_, lacking)) = self.short.front().filter(|(short, _)| *short < seq) {
            self.before = *lacking;
            self.short.pop_front();
        }
        self.begin = seq * self.mss - self.before;
    }
}

#[cfg(test)]
mod tests {
    use super::Lengths;

    #[test]
    fn short_segments_move_what_follows() {
        let lens = [1448, 300, 0, 1448, 1448, 7, 1448];
        let mut lengths = Lengths::new(1448);
        for (seq, len) in lens.into_iter().enumerate() {
            lengths.push(seq as u64, len);
        }
        assert_eq!(lengths.end(), lens.iter().sum::<u64>());
        for forgotten in 0..lens.len() {
            lengths.forget_below(forgotten as u64);
            assert_eq!(lengths.begin(), lens[..forgotten].iter().sum::<u64>());
            for seq in forgotten..lens.len() {
                assert_eq!(u64::from(lengths.of(seq as u64)), lens[seq]);
                assert_eq!(lengths.start_of(seq as u64), lens[..seq].iter().sum::<u64>());
            }
        }
    }
}
