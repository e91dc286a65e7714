//! Receiving half of a connection: reassembly, acknowledgements and the receive window.

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

/// Number of duplicate ACKs sent without delay before compression begins (DupThresh).
const UNCOMPRESSED_DUPLICATES: u32 = 3;
/// Largest number of ACKs compressed into one (sysctl tcp_comp_sack_nr).
const COMPRESSED_MAX: u32 = 44;
/// Longest delay of a compressed ACK (sysctl tcp_comp_sack_delay_ns); at most a twentieth of the RTT.
const COMPRESSION_DELAY: Duration = Duration::from_millis(1);

/// Shortest interval between answers to probes or other segments outside the window without data (sysctl
/// tcp_invalid_ratelimit).
const INVALID_RATE_LIMIT: Duration = Duration::from_millis(500);

/// TCP receiver with Linux's behaviour: it takes segments and returns the ACKs to send.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Lowest segment that has not arrived (`rcv_nxt`).
    next: u64,
    out_of_order: SackedRanges,
    delayed_ack: DelayedAck,
    compression: Compression,
    ecn: ReceiverEcn,
    /// Timestamp of the other end that the next ACK echoes (RFC 7323 4.3).
    ts_recent: u32,
    jiffies: Jiffies,
    /// Current time, as of the last call.
    now: Instant,
    handshake: HandshakeRtt,
    buffer: ReceiveBuffer,
    tuner: ReceiveTuner,
    compression_enabled: bool,
    /// Duplicate segment that the next ACK reports as D-SACK.
    dsack: Option<SackBlock>,
    /// Segments beyond a gap that are shorter than the MSS: sequence number, and the number of bytes by which
    /// each falls short.
    short: BTreeMap<u64, u64>,
    /// Sequence number of the segment with the FIN, once it has arrived.
    fin: Option<u64>,
    /// Highest byte offset that has arrived, gaps disregarded.
    highest: u64,
    /// Time of the last answer to a probe.
    probe_answered: Option<Instant>,
    stats: ReceiverStats,
}

/// State of SACK compression: merging the ACKs of a burst of out-of-order segments.
#[derive(Debug, Default)]
struct Compression {
    /// Value of `Receiver::next` when `duplicates` was last reset.
    at: u64,
    duplicates: u32,
    merged: u32,
    deadline: Option<Instant>,
}

/// RTT measurement of the SYN-ACK and its answer.
#[derive(Debug, Default)]
struct HandshakeRtt {
    syn_ack_sent: Option<Instant>,
    retransmitted: bool,
    answered: bool,
    /// Smoothed RTT of this end in microseconds, 0 while unknown.
    srtt_us: u64,
}

/// Counters of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverStats {
    /// Payload that has arrived in order.
    pub bytes_in_order: Bytes,
    /// Segments that have arrived, duplicates included.
    pub segments: u64,
    /// Segments received that had already arrived before.
    pub duplicates: u64,
    /// Segments received beyond the advertised window.
    pub outside_window: u64,
    /// ACKs sent, the SYN-ACK included.
    pub acks: u64,
    /// Time at which the stream was complete, FIN included.
    pub completed: Option<Instant>,
}

impl Receiver {
    /// Return a receiver for the passive end, which waits for a SYN.
    pub fn new(config: ReceiverConfig) -> Self {
        Self::for_end(config, false)
    }

    /// Return the receiver of an end that `opens` the connection, or waits for the other end to open it.
    pub(crate) fn for_end(config: ReceiverConfig, opens: bool) -> Self {
        let rules = Rules::of(config.host.profile);
        let jiffies = Jiffies::new(config.host.jiffy, config.host.timer_wheel);
        let (tuner, buffer) = ReceiveTuner::new(&config, opens);
        Self {
            config,
            next: 0,
            out_of_order: SackedRanges::default(),
            delayed_ack: DelayedAck::new(config.host.mss, &jiffies, rules.acks_pushed),
            compression: Compression::default(),
            ecn: ReceiverEcn::new(config.ecn),
            ts_recent: 0,
            jiffies,
            now: Instant::START,
            handshake: HandshakeRtt::default(),
            buffer,
            tuner,
            compression_enabled: config.host.sack
                && config.sack_compression
                && rules.sack_compression,
            dsack: None,
            short: BTreeMap::new(),
            fin: None,
            highest: 0,
            probe_answered: None,
            stats: ReceiverStats::default(),
        }
    }

    /// Process a segment; return the ACK that has to leave at once, if any.
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

    /// Complete the handshake if this segment is the first after the SYN-ACK.
    fn on_established(&mut self) {
        let Some(syn_ack_sent) = self.handshake.syn_ack_sent.take() else { return };
        self.handshake.answered = true;
        self.tuner.on_established(self.now);
        if !self.handshake.retransmitted {
            let mut rtt = RttEstimator::new();
            rtt.sample((self.now - syn_ack_sent).as_micros(), 0, 0);
            let of = Duration::from_micros;
            self.set_rtt(of(rtt.srtt_us()), of(rtt.rto_us()));
        }
    }

    /// Consume `bytes` of the data in order; return the ACK that this causes, if any. Only for an application
    /// that does not read at once.
    pub fn read(&mut self, now: Instant, bytes: Bytes) -> Option<Ack> {
        debug_assert!(!self.config.reads_at_once, "everything is read at once");
        self.set_clock(now);
        let unread = self.buffer.unread();
        self.buffer.consume(bytes.as_u64());
        if self.buffer.unread() == unread {
            return None;
        }
        self.tuner.on_read(now, &mut self.buffer);
        self.clean_up_after_read()
    }

    /// Number of bytes in order that the application has not read.
    pub fn unread(&self) -> Bytes {
        Bytes::new(self.buffer.unread())
    }

    /// Whether the whole stream has arrived, FIN included.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin < self.next)
    }

    /// Whether a data segment has arrived.
    pub(crate) fn has_received(&self) -> bool {
        self.stats.segments > 0
    }

    /// Return the acknowledgement that an outgoing segment carries; it counts as sent.
    pub(crate) fn carried_ack(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        self.ack(false)
    }

    /// Record that this end sent data, which makes the connection interactive if it is a reply.
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        self.set_clock(now);
        self.delayed_ack.on_data_sent(self.jiffies.now());
    }

    /// Set the smoothed RTT and the timeout measured by this end's sender.
    pub(crate) fn set_rtt(&mut self, rtt: Duration, rto: Duration) {
        self.handshake.srtt_us = rtt.as_micros();
        self.delayed_ack.set_rtt(&self.jiffies, rtt, rto);
    }

    /// Bytes that the SACK option of an ACK would take now.
    pub(crate) fn sack_option_bytes(&self) -> u64 {
        if !self.config.host.sack || self.out_of_order.is_empty() {
            0
        } else {
            self.out_of_order.blocks(None).option_bytes()
        }
    }

    /// Return the SYN-ACK for retransmission.
    pub(crate) fn syn_ack(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        self.ack(true)
    }

    /// Return the acknowledgement part of this end's SYN: its initial window. It acknowledges nothing.
    pub(crate) fn window_of_syn(&mut self, now: Instant) -> Ack {
        self.set_clock(now);
        Ack { ece: false, ..self.build_ack(true) }
    }

    pub(crate) fn ecn_enabled(&self) -> bool {
        self.ecn.is_enabled()
    }

    /// Set whether ECN is in use, as the other end's SYN-ACK decided.
    pub(crate) fn set_ecn_enabled(&mut self, enabled: bool) {
        self.ecn.set(enabled);
    }

    /// Time of the next [`Self::on_timer`] call, if any.
    pub fn next_timer(&self) -> Option<Instant> {
        match (self.delayed_ack.deadline(), self.compression.deadline) {
            (Some(delayed_ack), Some(compressed)) => Some(delayed_ack.min(compressed)),
            (delayed_ack, compressed) => delayed_ack.or(compressed),
        }
    }

    /// Handle timers that are due; return the ACK to send, if any.
    pub fn on_timer(&mut self, now: Instant) -> Option<Ack> {
        self.set_clock(now);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.delayed_ack.deadline()) {
            self.delayed_ack.on_expiry();
            return Some(self.ack(false));
        }
        due(self.compression.deadline).then(|| self.ack(false))
    }

    /// Lowest segment that has not arrived (`rcv_nxt`).
    pub fn next_expected(&self) -> u64 {
        self.next
    }

    /// Counters since the start.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    fn on_data(&mut self, now: Instant, segment: &Segment) -> Option<Ack> {
        self.on_established();
        self.stats.segments += 1;
        let (seq, end) = (segment.seq, segment.offset + u64::from(segment.len));
        // RFC 7323 4.3: echo the timestamp of the segment that made the ACK advance.
        if seq <= self.delayed_ack.acked && (segment.tsval.wrapping_sub(self.ts_recent) as i32) >= 0
        {
            self.ts_recent = segment.tsval;
        }
        self.delayed_ack.schedule();
        if !self.buffer.accepts(end) {
            self.stats.outside_window += 1;
            return Some(self.ack(false));
        }
        self.ecn.accept_cwr(segment, &mut self.delayed_ack);
        let is_full = u64::from(segment.len) >= self.delayed_ack.rcv_mss();
        self.tuner.on_echo(now, segment.tsecr, is_full);
        if seq < self.next {
            // RFC 2883 4: report duplicates at once. A needless retransmission means that the sender is in
            // trouble; Linux helps with an ACK for every segment.
            self.stats.duplicates += 1;
            self.delayed_ack.enter_quick_mode(self.buffer.offered());
            self.dsack = Some(SackBlock { start: seq, end: seq + 1 });
            return Some(self.ack(false));
        }
        if seq == self.next {
            return self.on_in_order(now, segment);
        }
        self.on_out_of_order(now, segment, end)
    }

    /// Queue a segment beyond a gap (`tcp_data_queue_ofo`). `end` is the byte offset after it.
    fn on_out_of_order(&mut self, now: Instant, segment: &Segment, end: u64) -> Option<Ack> {
        let seq = segment.seq;
        self.ecn.check_ce(segment, &mut self.delayed_ack);
        let displaced = self.flush_merged(seq);
        if self.out_of_order.insert(seq) {
            if segment.fin {
                self.fin = Some(seq);
            }
            self.buffer.out_of_order += u64::from(segment.len);
            let len = u32::from(segment.len);
            if len < self.config.host.mss {
                self.short.insert(seq, u64::from(self.config.host.mss - len));
            }
            self.highest = self.highest.max(end);
            // Without SACK an ACK is a duplicate only if its window is unchanged.
            if self.config.host.sack && self.buffer.grow_window(len) {
                self.delayed_ack.on_grown_window();
            }
            self.tuner.on_out_of_order(&mut self.buffer, self.highest);
        } else {
            self.stats.duplicates += 1;
            self.dsack = Some(SackBlock { start: seq, end: seq + 1 });
        }
        if self.is_gap_acknowledged(now) { Some(self.ack(false)) } else { displaced }
    }

    /// Return the compressed ACK if segment `seq` starts a new range that would displace what that ACK would
    /// report.
    fn flush_merged(&mut self, seq: u64) -> Option<Ack> {
        let waits = self.compression.merged > 0 && !self.delayed_ack.is_quick();
        (waits && self.out_of_order.would_displace(seq)).then(|| self.ack(false))
    }

    /// Advance past a segment in order, and past the segments beyond the gap that it fills.
    fn advance(&mut self, now: Instant, segment: &Segment) {
        self.next += 1;
        self.buffer.in_order += u64::from(segment.len);
        if !self.out_of_order.is_empty() {
            let next = self.out_of_order.advance(self.next);
            let mut bytes = (next - self.next) * u64::from(self.config.host.mss);
            while let Some(short) = self.short.first_entry().filter(|short| *short.key() < next) {
                bytes -= short.remove();
            }
            self.buffer.in_order += bytes;
            self.buffer.out_of_order -= bytes;
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
        let had_gap = !self.out_of_order.is_empty();
        self.advance(now, segment);
        if segment.len > 0 {
            self.update_estimates(now, segment);
        }
        // An ACK sent now advertises the window before the application has read.
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

    /// Update the estimates of MSS, RTT, window and inter-arrival time from a segment in order
    /// (`tcp_event_data_recv`).
    fn update_estimates(&mut self, now: Instant, segment: &Segment) {
        let len = u32::from(segment.len);
        if self.delayed_ack.measure_mss(len, segment.push) {
            self.tuner.on_longer_segment(len, &mut self.buffer);
        }
        self.tuner.on_arrival(now, &self.buffer);
        self.delayed_ack.on_arrival(self.jiffies.now(), self.buffer.offered());
        self.ecn.check_ce(segment, &mut self.delayed_ack);
        if lets_grow(len) && self.buffer.grow_window(len) {
            self.delayed_ack.on_grown_window();
        }
    }

    /// Whether a segment in order is acknowledged at once; otherwise the delayed ACK is armed.
    fn is_in_order_acknowledged(&mut self, now: Instant, segment: &Segment, had_gap: bool) -> bool {
        // RFC 5681 4.2: a gap that closes is acknowledged at once.
        let closes_gap = had_gap && self.out_of_order.is_empty();
        if closes_gap || segment.fin || self.is_ack_due() {
            return true;
        }
        if had_gap {
            return self.is_gap_acknowledged(now);
        }
        self.delayed_ack.delay(now, &self.jiffies)
    }

    /// Whether an ACK is due: after more than one full-size segment unless the application holds the window
    /// back, or for every segment in quick-ACK mode (`__tcp_ack_snd_check`).
    fn is_ack_due(&mut self) -> bool {
        (self.delayed_ack.has_two_segments(self.buffer.in_order)
            && self.select_window() >= self.buffer.offered())
            || self.delayed_ack.is_quick()
    }

    /// Return the ACK that is due after the application has read: a delayed one, or one for a window that at
    /// least doubled (`tcp_cleanup_rbuf`).
    fn clean_up_after_read(&mut self) -> Option<Ack> {
        let mut due =
            self.delayed_ack.is_due_after_read(self.buffer.in_order, self.buffer.queued() == 0);
        let left = self.buffer.window_left();
        if !due && !self.is_finished() && 2 * left <= self.buffer.space() {
            let window = self.select_window();
            due = window > 0 && window >= 2 * left;
        }
        due.then(|| self.ack(false))
    }

    fn answer_probe(&mut self, now: Instant) -> Option<Ack> {
        let answered_recently =
            self.probe_answered.is_some_and(|last| now - last < INVALID_RATE_LIMIT);
        if answered_recently {
            return None;
        }
        self.probe_answered = Some(now);
        Some(self.ack(false))
    }

    /// Window to advertise now, in bytes (`__tcp_select_window`).
    fn select_window(&mut self) -> u64 {
        if self.buffer.is_crowded() {
            self.delayed_ack.end_quick_acks();
        }
        self.buffer.room(self.delayed_ack.rcv_mss())
    }

    /// Whether an out-of-order segment is acknowledged at once (RFC 5681 4.2); after three duplicate ACKs Linux
    /// merges them.
    fn is_gap_acknowledged(&mut self, now: Instant) -> bool {
        if self.delayed_ack.is_quick() || !self.compression_enabled {
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

    /// Make an ACK; inlined at the hottest call, so that the ACK is written once.
    #[inline(always)]
    fn ack_in_place(&mut self, syn: bool) -> Ack {
        self.stats.acks += 1;
        self.compression.merged = 0;
        self.compression.deadline = None;
        if !syn {
            self.delayed_ack.on_sent(self.next, self.buffer.in_order);
        }
        if self.buffer.is_crowded() {
            self.delayed_ack.end_quick_acks();
        }
        self.build_ack(syn)
    }

    #[inline(always)]
    fn build_ack(&mut self, syn: bool) -> Ack {
        let ece = if syn { self.ecn.is_enabled() } else { self.ecn.demands_cwr() };
        let dsack = self.dsack.take();
        let news = !self.out_of_order.is_empty() || dsack.is_some();
        let reports = news && self.config.host.sack && !syn;
        Ack {
            syn,
            cumulative: self.next,
            sack: if reports { self.out_of_order.blocks(dsack) } else { SackBlocks::EMPTY },
            acknowledged: self.buffer.in_order,
            window: if syn {
                self.buffer.offered()
            } else {
                self.buffer.offer(self.delayed_ack.rcv_mss())
            },
            tsval: if self.config.host.timestamps { timestamp_at(self.now) } else { 0 },
            tsecr: self.ts_recent,
            ece,
        }
    }
}

impl HandshakeRtt {
    /// Start the RTT measurement; the answer to a retransmitted SYN-ACK gives no sample (RFC 6298 3).
    fn on_syn(&mut self, now: Instant) {
        if !self.answered {
            self.retransmitted |= self.syn_ack_sent.is_some();
            self.syn_ack_sent = Some(now);
        }
    }
}
