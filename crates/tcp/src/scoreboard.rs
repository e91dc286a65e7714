//! Scoreboard of RFC 6675: the sender's state of every segment between `una` and `nxt`, with the times that RFC
//! 8985 and the delivery-rate draft need.
//!
//! It is a power-of-two ring of small entries that grows with the window, with one bit ring for SACKed
//! segments, one for segments that wait for retransmission, and a list through the entries in order of
//! transmission. Every operation takes constant time per segment, apart from searches, which skip 64 segments
//! at a time.

use crate::rate_sample::sent_after;
use crate::ring_bits::RingBits;

const INITIAL_CAPACITY: u64 = 64;

/// Flag: the segment arrived out of order and was SACKed.
pub(crate) const SACKED: u8 = 1;
/// Flag: the segment is marked as lost; remains set while its retransmission is in flight.
pub(crate) const LOST: u8 = 2;
/// Flag: a retransmission of the segment is in flight.
pub(crate) const RETRANS: u8 = 4;
/// Flag: the segment was retransmitted at some time.
pub(crate) const EVER_RETRANS: u8 = 8;
/// Flag: the segment was sent while the application limited the flow.
pub(crate) const APP_LIMITED: u8 = 16;
/// Flag: the segment is in the list by time of transmission.
const LISTED: u8 = 32;
/// Flag: a timeout, not RACK, marked the segment as lost.
const BY_TIMEOUT: u8 = 64;

/// State of one outstanding segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    /// Time of the last transmission, in microseconds.
    pub(crate) sent_us: u64,
    /// Value of the connection's `first_tx_mstamp` at the transmission, in microseconds.
    pub(crate) first_tx_us: u64,
    /// Value of the connection's `delivered_mstamp` at the transmission, in microseconds.
    pub(crate) delivered_us: u64,
    /// Value of the connection's `delivered` at the transmission, in segments.
    pub(crate) delivered: u32,
    /// Neighbours in the list, as the low half of their sequence numbers; the ends of the list refer to
    /// themselves.
    earlier: u32,
    later: u32,
    /// Low half of the connection's `delivered_ce` at the transmission; Linux keeps 20 bits.
    pub(crate) delivered_ce: u16,
    pub(crate) flags: u8,
}

impl Entry {
    pub(crate) const fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// Outstanding segments and their counts, named as in the kernel.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    entries: Vec<Entry>,
    mask: u64,
    sacked: RingBits,
    /// Segments that wait for retransmission: LOST and not RETRANS.
    pending: RingBits,
    /// Lower bound of the bits set in `pending`, where searches begin.
    pending_from: u64,
    /// First and last segment in the list by time of transmission.
    oldest: Option<u64>,
    newest: Option<u64>,
    /// Last segment in that list that was sent before the newest delivered segment, as of the last
    /// [`Self::advance_edge`].
    edge: Option<u64>,
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) sacked_out: u32,
    pub(crate) lost_out: u32,
    pub(crate) retrans_out: u32,
    /// Segment after the highest one that was SACKed.
    highest_sacked: u64,
}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        Self {
            entries: vec![Entry::default(); INITIAL_CAPACITY as usize],
            mask: INITIAL_CAPACITY - 1,
            sacked: RingBits::new(INITIAL_CAPACITY),
            pending: RingBits::new(INITIAL_CAPACITY),
            pending_from: 0,
            oldest: None,
            newest: None,
            edge: None,
            una: 0,
            nxt: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            highest_sacked: 0,
        }
    }

    #[inline]
    pub(crate) fn packets_out(&self) -> u32 {
        (self.nxt - self.una) as u32
    }

    /// Pipe of RFC 6675 4, as the kernel counts it, in segments.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.packets_out() - (self.sacked_out + self.lost_out) + self.retrans_out
    }

    #[inline]
    pub(crate) fn entry(&self, seq: u64) -> &Entry {
        debug_assert!((self.una..self.nxt).contains(&seq));
        &self.entries[(seq & self.mask) as usize]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, seq: u64) -> &mut Entry {
        debug_assert!((self.una..self.nxt).contains(&seq));
        &mut self.entries[(seq & self.mask) as usize]
    }

    /// Segment after the highest SACKed one; `una` while nothing is SACKed.
    pub(crate) fn sacked_end(&self) -> u64 {
        if self.sacked_out == 0 { self.una } else { self.highest_sacked }
    }

    /// Append segment `nxt` with its state.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.nxt - self.una > self.mask {
            self.grow();
        }
        let seq = self.nxt;
        self.nxt += 1;
        *self.entry_mut(seq) = entry;
        self.list_as_newest(seq);
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = 2 * (self.mask + 1);
        let mask = capacity - 1;
        let mut entries = vec![Entry::default(); capacity as usize];
        let mut sacked = RingBits::new(capacity);
        let mut pending = RingBits::new(capacity);
        for seq in self.una..self.nxt {
            entries[(seq & mask) as usize] = *self.entry(seq);
            if self.sacked.get(seq) {
                sacked.set(seq);
            }
            if self.pending.get(seq) {
                pending.set(seq);
            }
        }
        (self.entries, self.mask, self.sacked, self.pending) = (entries, mask, sacked, pending);
    }

    /// Remove segment `una` from the board and return its state.
    #[inline]
    pub(crate) fn pop(&mut self) -> Entry {
        let seq = self.una;
        let entry = *self.entry(seq);
        if entry.is(SACKED) {
            self.sacked_out -= 1;
            self.sacked.clear(seq);
        }
        if entry.is(LOST) {
            self.lost_out -= 1;
            self.pending.clear(seq);
        }
        if entry.is(RETRANS) {
            self.retrans_out -= 1;
        }
        self.unlist(seq);
        self.una += 1;
        entry
    }

    /// Find the first segment in `from..to` that was not SACKed.
    pub(crate) fn first_unsacked(&self, from: u64, to: u64) -> Option<u64> {
        self.sacked.first_clear(from, to)
    }

    /// Mark a segment as SACKed.
    pub(crate) fn mark_sacked(&mut self, seq: u64) {
        let flags = self.entry(seq).flags;
        debug_assert!(flags & SACKED == 0);
        if flags & LOST != 0 {
            self.lost_out -= 1;
            self.pending.clear(seq);
            // A retransmission of a segment not marked as lost may still be in flight: the kernel keeps
            // counting it until the cumulative acknowledgement.
            if flags & RETRANS != 0 {
                self.retrans_out -= 1;
                self.entry_mut(seq).flags &= !RETRANS;
            }
        }
        let entry = self.entry_mut(seq);
        entry.flags = (entry.flags & !LOST) | SACKED;
        self.sacked.set(seq);
        self.sacked_out += 1;
        self.highest_sacked = self.highest_sacked.max(seq + 1);
        self.unlist(seq);
    }

    /// Mark a segment as lost, or its retransmission as lost again; return whether the mark is new.
    pub(crate) fn mark_lost(&mut self, seq: u64, by_timeout: bool) -> bool {
        let entry = self.entry_mut(seq);
        if entry.is(SACKED) || (entry.is(LOST) && !entry.is(RETRANS)) {
            return false;
        }
        let flags = entry.flags;
        entry.flags = (flags | LOST) & !BY_TIMEOUT;
        if by_timeout {
            entry.flags |= BY_TIMEOUT;
        }
        // RACK waits for a retransmission that an undo has left in flight (`tcp_mark_skb_lost`).
        let waits = flags & (LOST | RETRANS) == RETRANS && !by_timeout;
        if flags & RETRANS != 0 && !waits {
            entry.flags &= !RETRANS;
            self.retrans_out -= 1;
        }
        if flags & LOST == 0 {
            self.lost_out += 1;
        }
        if !waits {
            self.pending.set(seq);
            self.pending_from = self.pending_from.min(seq);
        }
        self.unlist(seq);
        true
    }

    /// Remove every loss mark: the segments are in flight again. Only those that a timeout had marked return to
    /// the list; RACK has already examined and unlisted the others.
    pub(crate) fn unmark_all_lost(&mut self) {
        for seq in (self.una..self.nxt).rev() {
            if !self.entry(seq).is(LOST) {
                continue;
            }
            let entry = self.entry_mut(seq);
            let relist = entry.is(BY_TIMEOUT) && !entry.is(LISTED);
            entry.flags &= !(LOST | BY_TIMEOUT);
            self.pending.clear(seq);
            self.lost_out -= 1;
            if relist {
                self.list_as_oldest(seq);
            }
        }
        debug_assert_eq!(self.lost_out, 0);
    }

    /// Find the lowest segment that is lost and not yet retransmitted.
    pub(crate) fn next_pending(&mut self) -> Option<u64> {
        if self.lost_out == 0 {
            return None;
        }
        let found = self.pending.first_set(self.pending_from.max(self.una), self.nxt);
        self.pending_from = found.unwrap_or(self.nxt);
        found
    }

    /// Record a retransmission of `seq`; `counted` is false for a loss probe, which the kernel leaves out of
    /// `retrans_out`.
    pub(crate) fn mark_retransmitted(&mut self, seq: u64, counted: bool) {
        let entry = self.entry_mut(seq);
        entry.flags |= EVER_RETRANS;
        if counted {
            debug_assert!(!entry.is(RETRANS));
            entry.flags |= RETRANS;
            self.retrans_out += 1;
            self.pending.clear(seq);
        }
        self.unlist(seq);
        self.list_as_newest(seq);
    }

    /// Record that the retransmission of `seq` was a duplicate.
    pub(crate) fn unmark_retransmission(&mut self, seq: u64) {
        let entry = self.entry_mut(seq);
        if entry.is(RETRANS) {
            entry.flags &= !RETRANS;
            let pending = entry.is(LOST);
            self.retrans_out -= 1;
            if pending {
                self.pending.set(seq);
                self.pending_from = self.pending_from.min(seq);
            }
        }
    }

    /// First segment of the list: the one sent the longest time ago.
    pub(crate) fn oldest_sent(&self) -> Option<u64> {
        self.oldest
    }

    /// Advance the edge to the last segment in the list that was sent before a given segment, and return it.
    /// The given segment was sent at `sent_us`; `end` is the sequence number after it.
    pub(crate) fn advance_edge(&mut self, sent_us: u64, end: u64) -> Option<u64> {
        let mut next = self.edge.map_or(self.oldest, |edge| self.sent_next(edge));
        while let Some(seq) = next {
            if !sent_after(sent_us, end, self.entry(seq).sent_us, seq + 1) {
                break;
            }
            self.edge = next;
            next = self.sent_next(seq);
        }
        self.edge
    }

    /// Next segment in the list by time of transmission.
    pub(crate) fn sent_next(&self, seq: u64) -> Option<u64> {
        let later = self.entry(seq).later;
        (later != seq as u32).then(|| self.widen(later))
    }

    fn widen(&self, low: u32) -> u64 {
        self.una + u64::from(low.wrapping_sub(self.una as u32))
    }

    #[inline]
    fn list_as_newest(&mut self, seq: u64) {
        let newest = self.newest.replace(seq);
        let entry = self.entry_mut(seq);
        debug_assert!(!entry.is(LISTED));
        entry.flags |= LISTED;
        entry.later = seq as u32;
        entry.earlier = newest.map_or(seq as u32, |newest| newest as u32);
        match newest {
            Some(newest) => self.entry_mut(newest).later = seq as u32,
            None => self.oldest = Some(seq),
        }
    }

    fn list_as_oldest(&mut self, seq: u64) {
        let oldest = self.oldest.replace(seq);
        let entry = self.entry_mut(seq);
        entry.flags |= LISTED;
        entry.earlier = seq as u32;
        entry.later = oldest.map_or(seq as u32, |oldest| oldest as u32);
        match oldest {
            Some(oldest) => self.entry_mut(oldest).earlier = seq as u32,
            None => self.newest = Some(seq),
        }
    }

    #[inline]
    fn unlist(&mut self, seq: u64) {
        let entry = self.entry_mut(seq);
        if !entry.is(LISTED) {
            return;
        }
        entry.flags &= !LISTED;
        let (low, earlier, later) = (seq as u32, entry.earlier, entry.later);
        let before = (earlier != low).then(|| self.widen(earlier));
        let after = (later != low).then(|| self.widen(later));
        if self.edge == Some(seq) {
            self.edge = before;
        }
        match before {
            Some(before) => {
                self.entry_mut(before).later = after.map_or(before as u32, |after| after as u32);
            }
            None => self.oldest = after,
        }
        match after {
            Some(after) => {
                self.entry_mut(after).earlier = before.map_or(after as u32, |before| before as u32);
            }
            None => self.newest = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, LOST, Scoreboard};

    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::new();
        for seq in 0..segments {
            board.push(Entry { sent_us: 10 * seq, ..Entry::default() });
        }
        board
    }

    fn listed(board: &Scoreboard) -> Vec<u64> {
        std::iter::successors(board.oldest_sent(), |seq| board.sent_next(*seq)).collect()
    }

    #[test]
    fn growing_keeps_every_mark_and_the_order_of_transmission() {
        let mut board = board(60);
        for _ in 0..50 {
            board.pop();
        }
        board.mark_sacked(55);
        board.mark_lost(52, false);
        board.mark_retransmitted(52, true);
        for seq in 60..200 {
            board.push(Entry { sent_us: 10 * seq, ..Entry::default() });
        }
        assert_eq!((board.packets_out(), board.sacked_out), (150, 1));
        assert_eq!((board.lost_out, board.retrans_out, board.in_flight()), (1, 1, 149));
        assert!(board.entry(52).is(LOST));
        assert_eq!(board.first_unsacked(55, 200), Some(56));
        let expected: Vec<u64> =
            [50, 51, 53, 54].into_iter().chain(56..60).chain([52]).chain(60..200).collect();
        assert_eq!(listed(&board), expected);
    }

    #[test]
    fn the_edge_follows_the_delivered_segment_and_survives_removals() {
        let mut board = board(10);
        assert_eq!(board.advance_edge(45, 5), Some(4));
        board.mark_sacked(4);
        assert_eq!(board.advance_edge(45, 5), Some(3));
        board.mark_lost(3, false);
        board.mark_lost(2, false);
        assert_eq!(board.advance_edge(45, 5), Some(1));
        for _ in 0..2 {
            board.pop();
        }
        assert_eq!(board.advance_edge(45, 5), None);
        assert_eq!(board.advance_edge(75, 8), Some(7));
    }

    #[test]
    fn lost_segments_are_retransmitted_from_the_lowest() {
        let mut board = board(300);
        for seq in [200, 7, 130] {
            assert!(board.mark_lost(seq, false));
            assert!(!board.mark_lost(seq, false));
        }
        for seq in [7, 130, 200] {
            assert_eq!(board.next_pending(), Some(seq));
            board.mark_retransmitted(seq, true);
        }
        assert_eq!(board.next_pending(), None);
        // The retransmission is lost again.
        assert!(board.mark_lost(130, false));
        assert_eq!(board.next_pending(), Some(130));
        board.unmark_all_lost();
        assert_eq!((board.lost_out, board.next_pending()), (0, None));
    }
}
