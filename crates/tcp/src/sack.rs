//! The SACK option's blocks (RFC 2018, with RFC 2883's D-SACK in first place).

/// How many blocks fit beside the timestamps option (RFC 2018 3).
pub const MAX_SACK_BLOCKS: usize = 3;

/// Segments `start..end` that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// The first segment.
    pub start: u64,
    /// The segment after the last.
    pub end: u64,
}

impl SackBlock {
    /// Whether all of `other` lies in this block.
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// The blocks of one acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const EMPTY: Self =
        Self { blocks: [SackBlock { start: 0, end: 0 }; MAX_SACK_BLOCKS], len: 0 };

    /// Adds a block behind the others; a block that no longer fits is left out.
    pub fn push(&mut self, block: SackBlock) {
        debug_assert!(block.start < block.end, "a SACK block covers something");
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = block;
            self.len += 1;
        }
    }

    /// The blocks in the order in which they are sent.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks from `skip` on, by sequence number.
    pub(crate) fn sorted_from(&mut self, skip: usize) -> &[SackBlock] {
        let blocks = &mut self.blocks[skip..usize::from(self.len)];
        blocks.sort_unstable_by_key(|block| block.start);
        blocks
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the option takes in a header, in bytes (RFC 2018 3): two of its own and two of padding, then eight per block.
    pub const fn option_bytes(&self) -> u64 {
        Self::option_bytes_of(self.len)
    }

    /// The same for so many blocks.
    pub(crate) const fn option_bytes_of(blocks: u8) -> u64 {
        if blocks == 0 { 0 } else { 4 + 8 * blocks as u64 }
    }

    /// The D-SACK, if the first block is one: it lies below the cumulative acknowledgement, or
    /// inside the second block (RFC 2883 4).
    pub fn duplicate(&self, cumulative: u64) -> Option<SackBlock> {
        let blocks = self.as_slice();
        let first = blocks.first()?;
        let repeated =
            first.end <= cumulative || blocks.get(1).is_some_and(|second| second.contains(first));
        repeated.then_some(*first)
    }
}
