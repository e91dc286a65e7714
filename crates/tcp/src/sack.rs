//! Blocks of the SACK option (RFC 2018), with a D-SACK block first if there is one (RFC 2883).

/// Number of blocks that fit a header with the timestamps option (RFC 2018 3).
pub const MAX_SACK_BLOCKS: usize = 3;

/// Contiguous segments `start..end` that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// First segment of the block.
    pub start: u64,
    /// Segment after the last of the block.
    pub end: u64,
}

impl SackBlock {
    /// Whether all of `other` lies in this block.
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// SACK blocks of one acknowledgement, in the order of transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// Option without any blocks.
    pub const EMPTY: Self =
        Self { blocks: [SackBlock { start: 0, end: 0 }; MAX_SACK_BLOCKS], len: 0 };

    /// Append a block; it is dropped if there is no room left.
    pub fn push(&mut self, block: SackBlock) {
        debug_assert!(block.start < block.end, "a SACK block covers something");
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = block;
            self.len += 1;
        }
    }

    /// Return the blocks in the order of transmission.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Sort the blocks from `skip` on by sequence number and return them.
    pub(crate) fn sorted_from(&mut self, skip: usize) -> &[SackBlock] {
        let blocks = &mut self.blocks[skip..usize::from(self.len)];
        blocks.sort_unstable_by_key(|block| block.start);
        blocks
    }

    /// Number of blocks in the option.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the option has no blocks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the option in a header, in bytes (RFC 2018 3): two bytes of kind and length, two of padding, and
    /// eight per block.
    pub const fn option_bytes(&self) -> u64 {
        Self::option_bytes_of(self.len)
    }

    /// Size of an option with `blocks` blocks, in bytes; see [`Self::option_bytes`].
    pub(crate) const fn option_bytes_of(blocks: u8) -> u64 {
        if blocks == 0 { 0 } else { 4 + 8 * blocks as u64 }
    }

    /// Return the first block if it is a D-SACK: it lies below the cumulative acknowledgement, or inside the
    /// second block (RFC 2883 4).
    pub fn duplicate(&self, cumulative: u64) -> Option<SackBlock> {
        let blocks = self.as_slice();
        let first = blocks.first()?;
        let repeated =
            first.end <= cumulative || blocks.get(1).is_some_and(|second| second.contains(first));
        repeated.then_some(*first)
    }
}
