//! Update of the scoreboard from an ACK's SACK blocks (RFC 6675 5; RFC 2883 for duplicates).

use crate::ack::AckContext;
use crate::sack::{SackBlock, SackBlocks};
use crate::scoreboard::{EVER_RETRANS, RETRANS, SACKED};
use crate::segment::Ack;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

impl<C: CongestionControl> Sender<C> {
    /// Mark as SACKed the segments that the ACK's SACK blocks report, except those that the previous ACK
    /// already reported (`tcp_sacktag_write_queue`).
    pub(crate) fn tag_sacked(&mut self, ack: &Ack, ctx: &mut AckContext) {
        if ack.sack.is_empty() {
            return;
        }
        let duplicate = ack.sack.duplicate(ack.cumulative);
        if let Some(block) = duplicate {
            self.note_duplicate(block, ack.cumulative, ctx);
        }
        let known = std::mem::replace(&mut self.recv_sack_cache, ack.sack);
        let low = self.board.una.max(ack.cumulative);
        let skip = usize::from(duplicate.is_some());
        // Process the lowest block first: otherwise a higher block of the same ACK would make a lower one look
        // late.
        let mut blocks = ack.sack;
        for block in blocks.sorted_from(skip) {
            let block =
                SackBlock { start: block.start.max(low), end: block.end.min(self.board.nxt) };
            if block.start < block.end {
                self.tag_unknown(block, &known, ctx);
            }
        }
        // In the Loss state, only segments of an episode that may still be undone indicate reordering.
        if self.tp.ca_state() != CongestionState::Loss || self.undo.marker.is_some() {
            self.check_reordering(ctx.lowest_late, self.board.sacked_end());
        }
    }

    /// Mark the segments of `block` that lie below and above the block of the previous ACK (`known`) that
    /// overlaps it most; all of them if no known block overlaps it.
    fn tag_unknown(&mut self, block: SackBlock, known: &SackBlocks, ctx: &mut AckContext) {
        let overlap = known
            .as_slice()
            .iter()
            .filter(|old| old.start < block.end && block.start < old.end)
            .max_by_key(|old| old.end.min(block.end) - old.start.max(block.start));
        match overlap {
            None => self.tag_range(block.start, block.end, ctx),
            Some(old) => {
                self.tag_range(block.start, old.start.min(block.end), ctx);
                self.tag_range(old.end.max(block.start), block.end, ctx);
            }
        }
    }

    fn tag_range(&mut self, start: u64, end: u64, ctx: &mut AckContext) {
        let mut from = start;
        while let Some(seq) = self.board.first_unsacked(from, end) {
            self.tag_one(seq, ctx);
            from = seq + 1;
        }
    }

    /// Process a D-SACK, which reports segments that the receiver got twice (RFC 2883 5, RFC 3708 3).
    fn note_duplicate(&mut self, block: SackBlock, cumulative: u64, ctx: &mut AckContext) {
        let count = block.end - block.start;
        self.dsack_duplicates += count;
        // More duplicates than retransmissions: the network made them (RFC 3708 3).
        if self.dsack_duplicates > u64::from(self.tp.total_retrans) {
            return;
        }
        ctx.dsack = true;
        if self.tlp.is_probe(block.end) {
            ctx.dsack_of_probe = true;
        } else if self.rack.reordering_seen {
            self.rack.dsack_seen = true;
        }
        // Duplicates count as delivered.
        ctx.duplicates = count as u32;
        if block.end <= ctx.prior_una {
            self.uncount_retransmissions(count, block.end);
        } else {
            for seq in block.start.max(self.board.una)..block.end.min(self.board.nxt) {
                self.note_duplicate_segment(seq, cumulative, ctx);
            }
        }
    }

    fn note_duplicate_segment(&mut self, seq: u64, cumulative: u64, ctx: &mut AckContext) {
        let entry = *self.board.entry(seq);
        if entry.is(RETRANS | EVER_RETRANS) {
            self.uncount_retransmissions(1, seq + 1);
            if entry.is(SACKED) {
                ctx.lowest_late = ctx.lowest_late.min(seq);
            }
        }
        // Segments that the same ACK acknowledges cumulatively are accounted for when they leave the board.
        if seq >= cumulative && entry.is(SACKED) {
            self.board.unmark_retransmission(seq);
        }
    }
}
