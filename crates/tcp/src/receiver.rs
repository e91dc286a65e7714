//! The receiving end of a connection.

use skyhop_units::{Bytes, Duration, Instant};

use crate::config::ReceiverConfig;
use crate::delayed_ack::DelayedAck;
use crate::ecn::ReceiverEcn;
use crate::sack::{SackBlock, SackBlocks};
use crate::sacked_ranges::SackedRanges;
use crate::segment::{Ack, Segment, SegmentKind};

/// Duplicate ACKs that leave at once before Linux begins to merge them.
const UNCOMPRESSED_DUPLICATES: u32 = 3;
/// At most so many are merged (sysctl tcp_comp_sack_nr).
const COMPRESSED_MAX: u32 = 44;
/// For at most so long (sysctl tcp_comp_sack_delay_ns), and at most a twentieth of the RTT.
const COMPRESSION_DELAY: Duration = Duration::from_millis(1);

/// A TCP receiver with Linux's behaviour, whose application reads everything at once.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// The lowest segment that has not arrived.
    next: u64,
    beyond: SackedRanges,
    delayed: DelayedAck,
    compression: Compression,
    ecn: ReceiverEcn,
    /// The timestamp to echo (RFC 7323 4.3).
    ts_recent: u32,
    /// The path's RTT, as far as the receiver knows it: from the SYN-ACK to the first segment.
    rtt: RttGuess,
    /// The stream's last segment and its payload, once it has arrived.
    last: Option<(u64, u32)>,
    stats: ReceiverStats,
}

/// Merging the ACKs of a burst of out-of-order segments.
#[derive(Debug, Default)]
struct Compression {
    /// `next` when `duplicates` was last reset.
    at: u64,
    duplicates: u32,
    merged: u32,
    deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct RttGuess {
    syn_acked: Option<Instant>,
    rtt: Option<Duration>,
}

/// What the receiver has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverStats {
    /// Payload that has arrived in order.
    pub bytes_in_order: Bytes,
    /// Segments that have arrived, duplicates included.
    pub segments: u64,
    /// Segments that had arrived before.
    pub duplicates: u64,
    /// Segments beyond the window.
    pub outside_window: u64,
    /// ACKs sent, the SYN-ACK included.
    pub acks: u64,
    /// When a finished stream's last byte was there.
    pub completed: Option<Instant>,
}

impl Receiver {
    /// A receiver that waits for a SYN.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            next: 0,
            beyond: SackedRanges::default(),
            delayed: DelayedAck::new(),
            compression: Compression::default(),
            ecn: ReceiverEcn::new(config.ecn),
            ts_recent: 0,
            rtt: RttGuess::default(),
            last: None,
            stats: ReceiverStats::default(),
        }
    }

    /// A segment arrived; the ACK that it causes at once, if any.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment) -> Option<Ack> {
        match segment.kind {
            SegmentKind::Syn => {
                self.ts_recent = segment.tsval;
                self.ecn.rcv_syn(segment);
                self.rtt.syn_acked = Some(now);
                Some(self.ack(true, None))
            }
            SegmentKind::HandshakeAck => {
                self.rtt.measure(now);
                None
            }
            SegmentKind::Data => self.on_data(now, segment),
        }
    }

    /// When [`Self::on_timer`] wants to be called.
    pub fn next_timer(&self) -> Option<Instant> {
        match (self.delayed.deadline(), self.compression.deadline) {
            (Some(delayed), Some(compressed)) => Some(delayed.min(compressed)),
            (delayed, compressed) => delayed.or(compressed),
        }
    }

    /// Time has passed; the ACK that was due, if any.
    pub fn on_timer(&mut self, now: Instant) -> Option<Ack> {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.delayed.deadline()) {
            self.delayed.on_expiry();
            return Some(self.ack(false, None));
        }
        due(self.compression.deadline).then(|| self.ack(false, None))
    }

    /// The lowest segment that has not arrived.
    pub fn next_expected(&self) -> u64 {
        self.next
    }

    /// What has been counted.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    fn on_data(&mut self, now: Instant, segment: &Segment) -> Option<Ack> {
        self.rtt.measure(now);
        self.stats.segments += 1;
        let seq = segment.seq;
        // RFC 7323 4.3: the echo belongs to the segment that made the ACK advance.
        if seq <= self.delayed.acked && (segment.tsval.wrapping_sub(self.ts_recent) as i32) >= 0 {
            self.ts_recent = segment.tsval;
        }
        if seq >= self.next + self.window() {
            self.stats.outside_window += 1;
            return Some(self.ack(false, None));
        }
        self.ecn.accept_cwr(segment, &mut self.delayed);
        let displaced = self.flush_merged(seq);
        let duplicate = seq < self.next || (seq > self.next && !self.beyond.insert(seq));
        if !duplicate {
            self.delayed.on_arrival(now);
        }
        if seq >= self.next {
            self.ecn.check_ce(segment, &mut self.delayed);
        }
        if duplicate {
            // RFC 2883 4: tell at once. A retransmission in vain means that the sender is in
            // trouble: Linux helps with an ACK for every segment.
            self.stats.duplicates += 1;
            self.delayed.quicken();
            return Some(self.ack(false, Some(SackBlock { start: seq, end: seq + 1 })));
        }
        if segment.fin {
            self.last = Some((seq, segment.len));
        }
        if seq == self.next {
            self.on_in_order(now, segment.fin)
        } else {
            self.acknowledge_gap(now).or(displaced)
        }
    }

    /// The ACK that waits has to leave before a new range displaces what it would report.
    fn flush_merged(&mut self, seq: u64) -> Option<Ack> {
        let waits = self.compression.merged > 0 && !self.delayed.is_quick();
        (waits && seq > self.next && self.beyond.would_displace(seq)).then(|| self.ack(false, None))
    }

    /// All segments are full-size but a stream's last.
    fn count_in_order(&mut self, now: Instant) {
        let mss = u64::from(self.config.mss);
        let mut bytes = self.next * mss;
        if let Some((_, len)) = self.last.filter(|(seq, _)| *seq < self.next) {
            bytes -= mss - u64::from(len);
            self.stats.completed.get_or_insert(now);
        }
        self.stats.bytes_in_order = Bytes::new(bytes);
    }

    fn on_in_order(&mut self, now: Instant, fin: bool) -> Option<Ack> {
        let had_gap = !self.beyond.is_empty();
        self.next = self.beyond.advance(self.next + 1);
        self.count_in_order(now);
        if had_gap && self.beyond.is_empty() {
            // RFC 5681 4.2: a gap that closes is acknowledged at once.
            return Some(self.ack(false, None));
        }
        if fin || self.delayed.is_due(self.next) {
            return Some(self.ack(false, None));
        }
        if had_gap {
            return self.acknowledge_gap(now);
        }
        self.delayed.delay(now).then(|| self.ack(false, None))
    }

    /// RFC 5681 4.2: out of order, so at once; but after three duplicates Linux merges them.
    fn acknowledge_gap(&mut self, now: Instant) -> Option<Ack> {
        if self.delayed.is_quick() || !self.config.sack_compression {
            return Some(self.ack(false, None));
        }
        let compression = &mut self.compression;
        if compression.at != self.next {
            compression.at = self.next;
            compression.duplicates = 0;
        }
        if compression.duplicates < UNCOMPRESSED_DUPLICATES {
            compression.duplicates += 1;
            return Some(self.ack(false, None));
        }
        if compression.merged >= COMPRESSED_MAX {
            return Some(self.ack(false, None));
        }
        compression.merged += 1;
        if compression.deadline.is_none() {
            let share = self.rtt.rtt.map_or(COMPRESSION_DELAY, |rtt| rtt / 20);
            compression.deadline = Some(now + share.min(COMPRESSION_DELAY));
        }
        None
    }

    /// How many segments from `next` on there is room for.
    fn window(&self) -> u64 {
        (self.config.window.as_u64() / u64::from(self.config.mss)).max(1)
    }

    fn ack(&mut self, syn: bool, duplicate: Option<SackBlock>) -> Ack {
        self.stats.acks += 1;
        self.compression.merged = 0;
        self.compression.deadline = None;
        if !syn {
            self.delayed.on_sent(self.next);
        }
        let sack = if syn { SackBlocks::EMPTY } else { self.beyond.blocks(duplicate) };
        let ece = if syn { self.ecn.is_spoken() } else { self.ecn.demands_cwr() };
        Ack { syn, cumulative: self.next, sack, window: self.window(), tsecr: self.ts_recent, ece }
    }
}

impl RttGuess {
    fn measure(&mut self, now: Instant) {
        if let Some(syn_acked) = self.syn_acked.take() {
            self.rtt = Some(now - syn_acked);
        }
    }
}
