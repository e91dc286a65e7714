//! One bit per segment of the window, searched a word at a time.

/// A ring of bits addressed by sequence number; its size is a power of two of at least 64.
#[derive(Debug, Clone)]
pub(crate) struct RingBits {
    words: Vec<u64>,
    mask: u64,
}

impl RingBits {
    pub(crate) fn new(capacity: u64) -> Self {
        debug_assert!(capacity.is_power_of_two() && capacity >= 64);
        Self { words: vec![0; (capacity / 64) as usize], mask: capacity - 1 }
    }

    fn place(&self, seq: u64) -> (usize, u64) {
        let slot = seq & self.mask;
        ((slot / 64) as usize, 1 << (slot % 64))
    }

    pub(crate) fn get(&self, seq: u64) -> bool {
        let (word, bit) = self.place(seq);
        self.words[word] & bit != 0
    }

    pub(crate) fn set(&mut self, seq: u64) {
        let (word, bit) = self.place(seq);
        self.words[word] |= bit;
    }

    pub(crate) fn clear(&mut self, seq: u64) {
        let (word, bit) = self.place(seq);
        self.words[word] &= !bit;
    }

    /// Find the first set bit in `from..to`.
    pub(crate) fn first_set(&self, from: u64, to: u64) -> Option<u64> {
        self.first(from, to, 0)
    }

    /// Find the first clear bit in `from..to`.
    pub(crate) fn first_clear(&self, from: u64, to: u64) -> Option<u64> {
        self.first(from, to, u64::MAX)
    }

    fn first(&self, from: u64, to: u64, invert: u64) -> Option<u64> {
        let mut seq = from;
        while seq < to {
            let (word, _) = self.place(seq);
            let offset = seq % 64;
            let rest = (self.words[word] ^ invert) >> offset;
            if rest != 0 {
                let found = seq + u64::from(rest.trailing_zeros());
                return (found < to).then_some(found);
            }
            seq += 64 - offset;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::RingBits;

    #[test]
    fn finds_bits_across_words_and_around_the_end() {
        let mut bits = RingBits::new(128);
        bits.set(70);
        bits.set(130);
        assert_eq!(bits.first_set(64, 180), Some(70));
        assert_eq!(bits.first_set(71, 180), Some(130));
        assert_eq!(bits.first_set(71, 130), None);
        assert_eq!(bits.first_clear(70, 180), Some(71));
        bits.clear(130);
        assert_eq!(bits.first_set(71, 180), None);
    }
}
