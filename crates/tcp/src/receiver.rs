//! The receiving end of a connection.

use std::collections::BTreeMap;

use skyhop_units::{Bytes, Duration, Instant};

use crate::config::ReceiverConfig;
use crate::delayed_ack::DelayedAck;
use crate::ecn::ReceiverEcn;
use crate::jiffies::Jiffies;
use crate::receive_buffer::ReceiveBuffer;
use crate::receive_tuning::{ReceiveTuner, lets_grow};
use crate::rtt::RttEstimator;
use crate::rules::Rules;
use crate::sack::{SackBlock, SackBlocks};
use crate::sacked_ranges::SackedRanges;
use crate::segment::{Ack, Segment, SegmentKind, timestamp_at};

/// Duplicate ACKs that leave at once before Linux begins to merge them.
const UNCOMPRESSED_DUPLICATES: u32 = 3;
/// At most so many are merged (sysctl tcp_comp_sack_nr).
const COMPRESSED_MAX: u32 = 44;
/// For at most so long (sysctl tcp_comp_sack_delay_ns), and at most a twentieth of the RTT.
const COMPRESSION_DELAY: Duration = Duration::from_millis(1);

/// A probe, or anything else outside the window without data, is answered once in this time (sysctl
/// tcp_invalid_ratelimit).
const INVALID_RATE_LIMIT: Duration = Duration::from_millis(500);

/// A TCP receiver with Linux's behaviour.
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
    jiffies: Jiffies,
    /// The time of the last call.
    now: Instant,
    handshake: HandshakeRtt,
    buffer: ReceiveBuffer,
    tuner: ReceiveTuner,
    compresses: bool,
    /// What the next ACK reports as having come twice.
    duplicate: Option<SackBlock>,
    /// By how many bytes segments beyond a gap fall short of full size, where they do.
    short: BTreeMap<u64, u64>,
    /// The stream's last segment, once it has arrived.
    fin: Option<u64>,
    /// Where the stream ends of all that has arrived, whatever is missing before, in bytes.
    highest: u64,
    /// When a probe was last answered.
    probe_answered: Option<Instant>,
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

/// How long the other end took to answer the SYN-ACK.
#[derive(Debug, Default)]
struct HandshakeRtt {
    syn_acked: Option<Instant>,
    again: bool,
    answered: bool,
    /// Of this end, 0 while it is not known.
    srtt_us: u64,
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
        Self::of_end(config, false)
    }

    /// The receiver of an end which `opens` the connection, or waits for the other to do so.
    pub(crate) fn of_end(config: ReceiverConfig, opens: bool) -> Self {
        let rules = Rules::of(config.host.profile);
        let jiffies = Jiffies::new(config.host.jiffy, config.host.timer_wheel);
        let (tuner, buffer) = ReceiveTuner::new(&config, opens);
        Self {
            config,
            next: 0,
            beyond: SackedRanges::default(),
            delayed: DelayedAck::new(config.host.mss, &jiffies, rules.acks_pushed),
            compression: Compression::default(),
            ecn: ReceiverEcn::new(config.ecn),
            ts_recent: 0,
            jiffies,
            now: Instant::START,
            handshake: HandshakeRtt::default(),
            buffer,
            tuner,
            compresses: config.host.sack && config.sack_compression && rules.sack_compression,
            duplicate: None,
            short: BTreeMap::new(),
            fin: None,
            highest: 0,
            probe_answered: None,
            stats: ReceiverStats::default(),
        }
    }

    /// A segment arrived; the ACK that it causes at once, if any.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment) -> Option<Ack> {
        self.set_clock(now);
        match segment.kind {
            SegmentKind::Syn => {
                self.ts_recent = segment.tsval;
                self.ecn.rcv_syn(segment);
                self.handshake.on_syn(now);
                Some(self.ack(true))
            }
            SegmentKind::HandshakeAck => {
                self.on_established();
                None
            }
            SegmentKind::Data => self.on_data(now, segment),
            SegmentKind::Probe => self.answer_probe(now),
        }
    }

    #[inline]
    fn set_clock(&mut self, now: Instant) {
        self.now = now;
        self.jiffies.advance(now);
    }

    /// What arrived answers the SYN-ACK, if none has before.
    fn on_established(&mut self) {
        let Some(syn_acked) = self.handshake.syn_acked.take() else { return };
        self.handshake.answered = true;
        self.tuner.on_established(self.now);
        if !self.handshake.again {
            let mut rtt = RttEstimator::new();
            rtt.sample((self.now - syn_acked).as_micros(), 0, 0);
            let of = Duration::from_micros;
            self.set_rtt(of(rtt.srtt_us()), of(rtt.rto_us()));
        }
    }

    /// The application takes `bytes` of what is in order; the ACK that this causes, if any. Only for who does not read
    /// at once.
    pub fn read(&mut self, now: Instant, bytes: Bytes) -> Option<Ack> {
        debug_assert!(!self.config.reads_at_once, "everything is read at once");
        self.set_clock(now);
        let unread = self.buffer.unread();
        self.buffer.take(bytes.as_u64());
        if self.buffer.unread() == unread {
            return None;
        }
        self.tuner.on_read(now, &mut self.buffer);
        self.clean_up_after_read()
    }

    /// What is in order and has not been read.
    pub fn unread(&self) -> Bytes {
        Bytes::new(self.buffer.unread())
    }

    /// Whether the stream's end is in order.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin < self.next)
    }

    /// Whether anything has arrived.
    pub(crate) fn has_received(&self) -> bool {
        self.stats.segments > 0
    }

    /// The acknowledgement that a segment carries, and which counts as sent.
    pub(crate) fn carried_ack(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        self.ack(false)
    }

    /// Data left this end.
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        self.set_clock(now);
        self.delayed.on_data_sent(self.jiffies.now());
    }

    /// What the smoothed RTT and the timeout of this end are.
    pub(crate) fn set_rtt(&mut self, rtt: Duration, rto: Duration) {
        self.handshake.srtt_us = rtt.as_micros();
        self.delayed.set_rtt(&self.jiffies, rtt, rto);
    }

    /// What the SACK option of an ACK would take now.
    pub(crate) fn sack_option_bytes(&self) -> u64 {
        if !self.config.host.sack || self.beyond.is_empty() {
            0
        } else {
            self.beyond.blocks(None).option_bytes()
        }
    }

    /// The SYN-ACK once more.
    pub(crate) fn syn_ack(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        self.ack(true)
    }

    /// What this end's SYN says: how much it has room for. It acknowledges nothing.
    pub(crate) fn window_of_syn(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        Ack { ece: false, ..self.compose(true) }
    }

    pub(crate) fn speaks_ecn(&self) -> bool {
        self.ecn.is_spoken()
    }

    /// The other end's SYN-ACK said whether ECN is spoken.
    pub(crate) fn set_ecn(&mut self, spoken: bool) {
        self.ecn.set(spoken);
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
        self.set_clock(now);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.delayed.deadline()) {
            self.delayed.on_expiry();
            return Some(self.ack(false));
        }
        due(self.compression.deadline).then(|| self.ack(false))
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
        self.on_established();
        self.stats.segments += 1;
        let (seq, end) = (segment.seq, segment.offset + u64::from(segment.len));
        // RFC 7323 4.3: the echo belongs to the segment that made the ACK advance.
        if seq <= self.delayed.acked && (segment.tsval.wrapping_sub(self.ts_recent) as i32) >= 0 {
            self.ts_recent = segment.tsval;
        }
        self.delayed.schedule();
        if !self.buffer.accepts(end) {
            self.stats.outside_window += 1;
            return Some(self.ack(false));
        }
        self.ecn.accept_cwr(segment, &mut self.delayed);
        let is_full = u64::from(segment.len) >= self.delayed.rcv_mss();
        self.tuner.on_echo(now, segment.tsecr, is_full);
        if seq < self.next {
            // RFC 2883 4: tell at once. A retransmission in vain means that the sender is in
            // trouble: Linux helps with an ACK for every segment.
            self.stats.duplicates += 1;
            self.delayed.enter_quick_mode(self.buffer.offered());
            self.duplicate = Some(SackBlock { start: seq, end: seq + 1 });
            return Some(self.ack(false));
        }
        if seq == self.next {
            return self.on_in_order(now, segment);
        }
        self.on_out_of_order(now, segment, end)
    }

    /// `tcp_data_queue_ofo`
    fn on_out_of_order(&mut self, now: Instant, segment: &Segment, end: u64) -> Option<Ack> {
        let seq = segment.seq;
        self.ecn.check_ce(segment, &mut self.delayed);
        let displaced = self.flush_merged(seq);
        if self.beyond.insert(seq) {
            if segment.fin {
                self.fin = Some(seq);
            }
            self.buffer.beyond += u64::from(segment.len);
            let len = u32::from(segment.len);
            if len < self.config.host.mss {
                self.short.insert(seq, u64::from(self.config.host.mss - len));
            }
            self.highest = self.highest.max(end);
            // Without SACK the same window makes the ACK a duplicate.
            if self.config.host.sack && self.buffer.grow_window(len) {
                self.delayed.on_grown_window();
            }
            self.tuner.on_out_of_order(&mut self.buffer, self.highest);
        } else {
            self.stats.duplicates += 1;
            self.duplicate = Some(SackBlock { start: seq, end: seq + 1 });
        }
        if self.is_gap_acknowledged(now) { Some(self.ack(false)) } else { displaced }
    }

    /// The ACK that waits has to leave before a new range displaces what it would report.
    fn flush_merged(&mut self, seq: u64) -> Option<Ack> {
        let waits = self.compression.merged > 0 && !self.delayed.is_quick();
        (waits && self.beyond.would_displace(seq)).then(|| self.ack(false))
    }

    /// Moves on behind a segment in order, and what it makes of those beyond the gap that it fills.
    fn advance(&mut self, now: Instant, segment: &Segment) {
        self.next += 1;
        self.buffer.in_order += u64::from(segment.len);
        if !self.beyond.is_empty() {
            let next = self.beyond.advance(self.next);
            let mut bytes = (next - self.next) * u64::from(self.config.host.mss);
            while let Some(short) = self.short.first_entry().filter(|short| *short.key() < next) {
                bytes -= short.remove();
            }
            self.buffer.in_order += bytes;
            self.buffer.beyond -= bytes;
            self.next = next;
        }
        self.stats.bytes_in_order = Bytes::new(self.buffer.in_order);
        if self.is_finished() {
            self.stats.completed.get_or_insert(now);
        }
    }

    fn on_in_order(&mut self, now: Instant, segment: &Segment) -> Option<Ack> {
        if segment.fin {
            self.fin = Some(segment.seq);
        }
        let had_gap = !self.beyond.is_empty();
        self.advance(now, segment);
        if segment.len > 0 {
            self.learn_from(now, segment);
        }
        // What leaves now tells the window before the application has read.
        if self.is_in_order_acknowledged(now, segment, had_gap) {
            let ack = self.ack_in_place(false);
            if self.config.reads_at_once {
                self.tuner.on_read(now, &mut self.buffer);
            }
            return Some(ack);
        }
        if !self.config.reads_at_once {
            return None;
        }
        self.tuner.on_read(now, &mut self.buffer);
        self.clean_up_after_read()
    }

    /// `tcp_event_data_recv`
    fn learn_from(&mut self, now: Instant, segment: &Segment) {
        let len = u32::from(segment.len);
        if self.delayed.measure_mss(len, segment.push) {
            self.tuner.on_longer_segment(len, &mut self.buffer);
        }
        self.tuner.on_arrival(now, &self.buffer);
        self.delayed.on_arrival(self.jiffies.now(), self.buffer.offered());
        self.ecn.check_ce(segment, &mut self.delayed);
        if lets_grow(len) && self.buffer.grow_window(len) {
            self.delayed.on_grown_window();
        }
    }

    /// Whether a segment in order is acknowledged at once.
    fn is_in_order_acknowledged(&mut self, now: Instant, segment: &Segment, had_gap: bool) -> bool {
        // RFC 5681 4.2: a gap that closes is acknowledged at once.
        let closes_gap = had_gap && self.beyond.is_empty();
        if closes_gap || segment.fin || self.is_ack_due() {
            return true;
        }
        if had_gap {
            return self.is_gap_acknowledged(now);
        }
        self.delayed.delay(now, &self.jiffies)
    }

    /// `__tcp_ack_snd_check`: more than one full segment, and its application does not hold the window back; or each.
    fn is_ack_due(&mut self) -> bool {
        (self.delayed.has_two_segments(self.buffer.in_order)
            && self.select_window() >= self.buffer.offered())
            || self.delayed.is_quick()
    }

    /// `tcp_cleanup_rbuf`: the application has read; an ACK may be due for it, or for a window that at least doubled.
    fn clean_up_after_read(&mut self) -> Option<Ack> {
        let mut due = self.delayed.is_due_after_read(self.buffer.in_order, self.buffer.held() == 0);
        let left = self.buffer.window_left();
        if !due && !self.is_finished() && 2 * left <= self.buffer.space() {
            let window = self.select_window();
            due = window > 0 && window >= 2 * left;
        }
        due.then(|| self.ack(false))
    }

    fn answer_probe(&mut self, now: Instant) -> Option<Ack> {
        let again = self.probe_answered.is_some_and(|last| now - last < INVALID_RATE_LIMIT);
        if again {
            return None;
        }
        self.probe_answered = Some(now);
        Some(self.ack(false))
    }

    /// `__tcp_select_window`
    fn select_window(&mut self) -> u64 {
        if self.buffer.is_crowded() {
            self.delayed.end_quick_acks();
        }
        self.buffer.room(self.delayed.rcv_mss())
    }

    /// RFC 5681 4.2: out of order, so at once; but after three duplicates Linux merges them.
    fn is_gap_acknowledged(&mut self, now: Instant) -> bool {
        if self.delayed.is_quick() || !self.compresses {
            return true;
        }
        let compression = &mut self.compression;
        if compression.at != self.next {
            compression.at = self.next;
            compression.duplicates = 0;
        }
        if compression.duplicates < UNCOMPRESSED_DUPLICATES {
            compression.duplicates += 1;
            return true;
        }
        if compression.merged >= COMPRESSED_MAX {
            return true;
        }
        compression.merged += 1;
        if compression.deadline.is_none() {
            let srtt_us = self.handshake.srtt_us;
            let mut rtt_us = self.tuner.rtt_x8() / 8;
            if srtt_us > 0 {
                rtt_us = rtt_us.min(srtt_us);
            }
            let share = Duration::from_micros(rtt_us / 20);
            compression.deadline = Some(now + share.min(COMPRESSION_DELAY));
        }
        false
    }

    fn ack(&mut self, syn: bool) -> Ack {
        self.ack_in_place(syn)
    }

    /// Inlined where nearly all are made, so that each is written once.
    #[inline(always)]
    fn ack_in_place(&mut self, syn: bool) -> Ack {
        self.stats.acks += 1;
        self.compression.merged = 0;
        self.compression.deadline = None;
        if !syn {
            self.delayed.on_sent(self.next, self.buffer.in_order);
        }
        if self.buffer.is_crowded() {
            self.delayed.end_quick_acks();
        }
        self.compose(syn)
    }

    #[inline(always)]
    fn compose(&mut self, syn: bool) -> Ack {
        let ece = if syn { self.ecn.is_spoken() } else { self.ecn.demands_cwr() };
        let duplicate = self.duplicate.take();
        let news = !self.beyond.is_empty() || duplicate.is_some();
        let reports = news && self.config.host.sack && !syn;
        Ack {
            syn,
            cumulative: self.next,
            sack: if reports { self.beyond.blocks(duplicate) } else { SackBlocks::EMPTY },
            acknowledged: self.buffer.in_order,
            window: if syn {
                self.buffer.offered()
            } else {
                self.buffer.offer(self.delayed.rcv_mss())
            },
            tsval: if self.config.host.timestamps { timestamp_at(self.now) } else { 0 },
            tsecr: self.ts_recent,
            ece,
        }
    }
}

impl HandshakeRtt {
    /// RFC 6298 3: an answer to a SYN-ACK that left twice tells nothing.
    fn on_syn(&mut self, now: Instant) {
        if !self.answered {
            self.again |= self.syn_acked.is_some();
            self.syn_acked = Some(now);
        }
    }
}
