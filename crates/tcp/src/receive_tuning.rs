//! Initial size and growth of the receive buffer: Linux's receiver auto-tuning (dynamic right-sizing).

use skyhop_units::{Duration, Instant};

use crate::config::ReceiverConfig;
use crate::receive_buffer::ReceiveBuffer;
use crate::rules::{ReceiveTuning, Rules};
use crate::segment::timestamp_at;

/// Log2 of the denominator of a [`WindowShare`], which counts in parts of 256 (`TCP_RMEM_TO_WIN_SCALE`).
const SHARE_SHIFT: u32 = 8;
/// Share of memory that counts as window before the share is measured: half (`TCP_DEFAULT_SCALING_RATIO`;
/// before 6.6 sysctl tcp_adv_win_scale).
const HALF: u64 = 1 << (SHARE_SHIFT - 1);
/// Initial congestion window of a sender, in segments (`TCP_INIT_CWND`).
const INITIAL_SEGMENTS: u64 = 10;
/// Memory for the headers of a packet (`MAX_TCP_HEADER`), for `struct skb_shared_info` and for `struct
/// sk_buff`, in bytes, each rounded up to whole cache lines.
const HEADER_ROOM: u64 = 320;
const SHARED_INFO: u64 = 320;
const SK_BUFF: u64 = 256;
/// Headers in a device driver's buffer, in bytes: Ethernet, IPv4, TCP with timestamps, and headroom.
const PACKET_HEADERS: u64 = 14 + 20 + 32 + 64;
/// Size of the timestamps option with its padding, in bytes.
const TIMESTAMPS: u64 = 12;
/// Shortest segment that lets the window grow, in bytes (`tcp_event_data_recv`).
const LEAST_GROWING: u32 = 128;

/// Share of a buffer's memory that counts as receive window; the rest allows for the overhead of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowShare {
    of_256: u64,
}

impl WindowShare {
    pub(crate) const HALF: Self = Self { of_256: HALF };

    /// Window that fits `memory` (`tcp_win_from_space`).
    pub(crate) fn of(self, memory: u64) -> u64 {
        (memory * self.of_256) >> SHARE_SHIFT
    }

    /// Memory that `window` needs (`tcp_space_from_win`).
    fn memory_of(self, window: u64) -> u64 {
        (window << SHARE_SHIFT) / self.of_256
    }

    /// Share measured from a segment: payload relative to the memory that its packet occupies
    /// (`tcp_measure_rcv_mss`).
    fn measured(len: u32) -> Self {
        Self { of_256: ((u64::from(len) << SHARE_SHIFT) / true_size(len)).max(1) }
    }

    /// Bytes by which a segment of `len` bytes lets a window of `ssthresh` grow (`tcp_grow_window`,
    /// `__tcp_grow_window`). A segment whose packet occupies much memory for little payload lets the window
    /// grow only while the window is small. `max_memory` is the upper limit of the buffer's memory, in bytes.
    pub(crate) fn growth(self, ssthresh: u64, len: u32, mss: u64, max_memory: u64) -> u64 {
        let bytes = u64::from(len);
        let mut size = self.of(true_size(len));
        if size <= bytes {
            return 2 * mss.max(bytes);
        }
        size /= 2;
        let mut window = self.of(max_memory) / 2;
        while ssthresh <= window {
            if size <= bytes {
                return 2 * bytes;
            }
            (size, window) = (size / 2, window / 2);
        }
        0
    }
}

/// Memory of a packet that a device driver has put in a buffer of its own (`skb->truesize`).
fn true_size(len: u32) -> u64 {
    (u64::from(len) + PACKET_HEADERS + SHARED_INFO).next_power_of_two() + SK_BUFF
}

/// Memory that a full-size segment is assumed to need before 6.6 (`rcvmem`), of which half is window.
fn memory_of_segment(mss: u64) -> u64 {
    let packet = mss + HEADER_ROOM + SHARED_INFO + SK_BUFF;
    packet + (2 * mss).saturating_sub(packet).next_multiple_of(128)
}

/// Auto-tuning state: the receiver's estimate of the flow's rate and round trip.
#[derive(Debug)]
pub(crate) struct ReceiveTuner {
    tuning: ReceiveTuning,
    enabled: bool,
    max_memory: u64,
    mss: u64,
    /// Largest number of bytes that the application read in one round trip so far. The next two fields are the
    /// stream offset and the time at which the current round trip began (`rcvq_space`).
    space: u64,
    round_begin: u64,
    round_start: Instant,
    /// End of the current round trip; [`Instant::NEVER`] while the RTT is unknown.
    round_end: Instant,
    /// Eight times the RTT in microseconds, 0 while unknown (`rcv_rtt_est`). The next two fields serve to
    /// measure the RTT without timestamps: the time at which the measurement began, and the stream offset at
    /// which it ends.
    rtt_x8: u64,
    window_since: Option<Instant>,
    window_end: u64,
    /// Timestamp echoed by the last segment (`rcv_rtt_last_tsecr`).
    last_tsecr: u32,
}

impl ReceiveTuner {
    /// Return the tuner and the initial buffer. `opens` is true if this end opens the connection.
    pub(crate) fn new(config: &ReceiverConfig, opens: bool) -> (Self, ReceiveBuffer) {
        let tuning = Rules::of(config.host.profile).receive_tuning;
        let mss = u64::from(config.host.mss);
        let (mut memory, mut most_at_first) = (config.rmem.initial.as_u64(), u64::MAX);
        if tuning == ReceiveTuning::Steps && config.auto_tuning {
            // `tcp_fixup_rcvbuf` and `tcp_default_init_rwnd`
            let packet = mss + HEADER_ROOM + SHARED_INFO + SK_BUFF;
            most_at_first = 2 * INITIAL_SEGMENTS * mss;
            memory = memory.max(8 * 2 * INITIAL_SEGMENTS * packet).min(config.rmem.max.as_u64());
        }
        // An end that opens the connection leaves room for timestamps, although the other end may send none.
        let segment = if opens && config.host.timestamps { mss + TIMESTAMPS } else { mss };
        let first = (WindowShare::HALF.of(memory).min(most_at_first) / segment).max(1) * segment;
        let buffer = ReceiveBuffer::new(config, memory, first);
        let tuner = Self {
            tuning,
            enabled: config.auto_tuning,
            max_memory: config.rmem.max.as_u64(),
            mss,
            space: buffer.offered().min(INITIAL_SEGMENTS * mss),
            round_begin: 0,
            round_start: Instant::START,
            round_end: Instant::NEVER,
            rtt_x8: 0,
            window_since: None,
            window_end: 0,
            last_tsecr: 0,
        };
        (tuner, buffer)
    }

    /// Start the first round trip when the connection is established (`tcp_init_buffer_space`).
    pub(crate) fn on_established(&mut self, now: Instant) {
        self.round_start = now;
    }

    /// Eight times the RTT in microseconds, 0 while unknown.
    pub(crate) fn rtt_x8(&self) -> u64 {
        self.rtt_x8
    }

    /// Measure the RTT from a segment whose echoed timestamp differs from that of the segment before
    /// (`tcp_rcv_rtt_measure_ts`).
    #[inline]
    pub(crate) fn on_echo(&mut self, now: Instant, tsecr: u32, is_full: bool) {
        if tsecr != self.last_tsecr {
            self.measure_echo(now, tsecr, is_full);
        }
    }

    fn measure_echo(&mut self, now: Instant, tsecr: u32, is_full: bool) {
        self.last_tsecr = tsecr;
        let elapsed_ms = timestamp_at(now).wrapping_sub(tsecr);
        if is_full && elapsed_ms > 0 && tsecr != 0 {
            self.measure_rtt(u64::from(elapsed_ms) * 1000, false);
        }
    }

    /// Measure the RTT when a segment arrives in order (`tcp_rcv_rtt_measure`). Without timestamps the receiver
    /// measures the time in which a whole window of data arrives, which is at least one RTT.
    #[inline]
    pub(crate) fn on_arrival(&mut self, now: Instant, buffer: &ReceiveBuffer) {
        if let Some(since) = self.window_since {
            if buffer.in_order < self.window_end {
                return;
            }
            self.measure_rtt((now - since).as_micros().max(1), true);
        }
        self.window_end = buffer.in_order + buffer.offered();
        self.window_since = Some(now);
    }

    /// Update the estimate (`tcp_rcv_rtt_update`): a smaller sample replaces the estimate. A larger one is
    /// smoothed, or ignored if it is the arrival time of a window (`of_window`).
    fn measure_rtt(&mut self, rtt_us: u64, of_window: bool) {
        let old = self.rtt_x8;
        self.rtt_x8 = if old == 0 || 8 * rtt_us < old {
            8 * rtt_us
        } else if of_window {
            old
        } else {
            old - old / 8 + rtt_us
        };
        self.begin_round(self.round_begin, self.round_start);
    }

    /// Start a round trip at byte `round_begin` and time `round_start`.
    fn begin_round(&mut self, round_begin: u64, round_start: Instant) {
        (self.round_begin, self.round_start) = (round_begin, round_start);
        self.round_end = round_start + Duration::from_nanos(125 * self.rtt_x8);
    }

    /// Measure the window's share of memory from a segment longer than any before (`tcp_measure_rcv_mss`).
    pub(crate) fn on_longer_segment(&mut self, len: u32, buffer: &mut ReceiveBuffer) {
        if !self.measures() {
            return;
        }
        let share = WindowShare::measured(len);
        if share != buffer.share() {
            buffer.resize(buffer.memory(), share);
            self.space = self.space.min(buffer.space());
        }
    }

    fn measures(&self) -> bool {
        matches!(self.tuning, ReceiveTuning::MeasuredWindow | ReceiveTuning::Tight)
    }

    /// Adjust the buffer after the application has read, once per round trip (`tcp_rcv_space_adjust`).
    #[inline]
    pub(crate) fn on_read(&mut self, now: Instant, buffer: &mut ReceiveBuffer) {
        if now >= self.round_end {
            self.end_round(now, buffer);
        }
    }

    fn end_round(&mut self, now: Instant, buffer: &mut ReceiveBuffer) {
        let copied = (buffer.copied() - self.round_begin).saturating_sub(buffer.unread());
        if copied > self.space {
            self.grow(copied, buffer);
            self.space = copied;
        }
        self.begin_round(buffer.copied(), now);
    }

    /// Make room for data beyond a gap, up to byte `highest` (`tcp_data_queue_ofo`).
    pub(crate) fn on_out_of_order(&mut self, buffer: &mut ReceiveBuffer, highest: u64) {
        if self.tuning == ReceiveTuning::Tight && self.enabled {
            let window = 2 * self.space + highest.saturating_sub(buffer.in_order);
            self.resize(window, buffer);
        }
    }

    /// Grow the buffer after a round trip with more data than ever, so that the sender may double its rate, and
    /// double it again while the new window is on its way.
    fn grow(&mut self, copied: u64, buffer: &mut ReceiveBuffer) {
        if !self.enabled {
            return;
        }
        let risen = copied - self.space;
        let base = 2 * copied;
        let window = match self.tuning {
            ReceiveTuning::Steps => {
                let cushioned = base + 16 * self.mss;
                let doubles = copied >= self.space + self.space / 2;
                let rises = copied >= self.space + self.space / 4;
                match (doubles, rises) {
                    (true, _) => 2 * cushioned,
                    (false, true) => cushioned + cushioned / 2,
                    (false, false) => cushioned,
                }
            }
            ReceiveTuning::HalfWindow | ReceiveTuning::MeasuredWindow => {
                let cushioned = base + 16 * self.mss;
                cushioned + 2 * (cushioned * risen / self.space)
            }
            ReceiveTuning::Tight => base + 2 * (base * risen / self.space),
        };
        self.resize(window, buffer);
    }

    /// Grow the buffer to have room for `window`; it never shrinks.
    fn resize(&self, window: u64, buffer: &mut ReceiveBuffer) {
        let memory = if self.measures() {
            buffer.share().memory_of(window)
        } else {
            window / self.mss * memory_of_segment(self.mss)
        };
        let memory = memory.min(self.max_memory);
        if memory > buffer.memory() {
            buffer.resize(memory, buffer.share());
        }
    }
}

/// Whether a segment is long enough to let the window grow (`tcp_event_data_recv`).
pub(crate) const fn lets_grow(len: u32) -> bool {
    len >= LEAST_GROWING
}
