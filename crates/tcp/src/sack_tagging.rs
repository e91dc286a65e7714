//! Entering an ACK's SACK blocks on the scoreboard (RFC 6675 5, RFC 2883 for duplicates).

use crate::ack::AckWork;
use crate::sack::{SackBlock, SackBlocks};
use crate::scoreboard::{EVER_RETRANS, RETRANS, SACKED};
use crate::segment::Ack;
use crate::{CongestionControl, Sender};
use skyhop_model::CongestionState;

impl<C: CongestionControl> Sender<C> {
    /// Marks what the blocks report, leaving out what the previous ACK reported already.
    pub(crate) fn tag_sacked(&mut self, ack: &Ack, work: &mut AckWork) {
        if ack.sack.is_empty() {
            return;
        }
        let duplicate = ack.sack.duplicate(ack.cumulative);
        if let Some(block) = duplicate {
            self.note_duplicate(block, ack.cumulative, work);
        }
        let known = std::mem::replace(&mut self.known_sack, ack.sack);
        let low = self.board.una.max(ack.cumulative);
        let skip = usize::from(duplicate.is_some());
        // Lowest first: otherwise a higher block of the same ACK would make a lower one look late.
        let mut blocks = ack.sack;
        for block in blocks.sorted_from(skip) {
            let block =
                SackBlock { start: block.start.max(low), end: block.end.min(self.board.nxt) };
            if block.start < block.end {
                self.tag_unknown(block, &known, work);
            }
        }
        // In the loss state only what may still be undone tells anything about reordering.
        if self.tp.ca_state() != CongestionState::Loss || self.undo.marker.is_some() {
            self.check_reordering(work.lowest_late, self.board.sacked_end());
        }
    }

    /// What of `block` the previous ACK did not report: at most a piece on either side.
    fn tag_unknown(&mut self, block: SackBlock, known: &SackBlocks, work: &mut AckWork) {
        let overlap = known
            .as_slice()
            .iter()
            .filter(|old| old.start < block.end && block.start < old.end)
            .max_by_key(|old| old.end.min(block.end) - old.start.max(block.start));
        match overlap {
            None => self.tag_range(block.start, block.end, work),
            Some(old) => {
                self.tag_range(block.start, old.start.min(block.end), work);
                self.tag_range(old.end.max(block.start), block.end, work);
            }
        }
    }

    fn tag_range(&mut self, start: u64, end: u64, work: &mut AckWork) {
        let mut from = start;
        while let Some(seq) = self.board.first_unsacked(from, end) {
            self.tag_one(seq, work);
            from = seq + 1;
        }
    }

    /// RFC 2883 5, RFC 3708 3: the receiver got something twice.
    fn note_duplicate(&mut self, block: SackBlock, cumulative: u64, work: &mut AckWork) {
        let count = block.end - block.start;
        self.duplicates += count;
        // More duplicates than retransmissions: the network made them (RFC 3708 3).
        if self.duplicates > u64::from(self.tp.total_retrans) {
            return;
        }
        work.dsack = true;
        if self.tlp.is_probe(block.end) {
            work.dsack_of_probe = true;
        } else if self.rack.reordering_seen {
            self.rack.dsack_seen = true;
        }
        // What came twice has been delivered twice.
        work.duplicates = count as u32;
        if block.end <= work.prior_una {
            self.uncount_retransmissions(count, block.end);
        } else {
            for seq in block.start.max(self.board.una)..block.end.min(self.board.nxt) {
                self.note_duplicate_segment(seq, cumulative, work);
            }
        }
    }

    fn note_duplicate_segment(&mut self, seq: u64, cumulative: u64, work: &mut AckWork) {
        let entry = *self.board.entry(seq);
        if entry.is(RETRANS | EVER_RETRANS) {
            self.uncount_retransmissions(1, seq + 1);
            if entry.is(SACKED) {
                work.lowest_late = work.lowest_late.min(seq);
            }
        }
        // What the same ACK acknowledges leaves the board with its own bookkeeping.
        if seq >= cumulative && entry.is(SACKED) {
            self.board.unmark_retransmission(seq);
        }
    }
}
