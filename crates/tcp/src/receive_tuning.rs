//! How the receive buffer begins and grows with the flow: Linux's receiver auto-tuning (dynamic right-sizing).

use skyhop_units::{Duration, Instant};

use crate::config::ReceiverConfig;
use crate::receive_buffer::ReceiveBuffer;
use crate::rules::{ReceiveTuning, Rules};
use crate::segment::timestamp_at;

/// The window's share of memory is counted in parts of 256 (`TCP_RMEM_TO_WIN_SCALE`).
const SHARE_SHIFT: u32 = 8;
/// Before it is known: half (`TCP_DEFAULT_SCALING_RATIO`; before 6.6 sysctl tcp_adv_win_scale).
const HALF: u64 = 1 << (SHARE_SHIFT - 1);
/// Segments that a sender may begin with (`TCP_INIT_CWND`).
const INITIAL_SEGMENTS: u64 = 10;
/// What the headers of a packet in memory are given room for, and the kernel's own two structs, each in whole cache
/// lines (`MAX_TCP_HEADER`, `struct skb_shared_info`, `struct sk_buff`).
const HEADER_ROOM: u64 = 320;
const SHARED_INFO: u64 = 320;
const SK_BUFF: u64 = 256;
/// A device driver's: Ethernet, IPv4, TCP with timestamps, and some room in front of them.
const PACKET_HEADERS: u64 = 14 + 20 + 32 + 64;
/// The timestamps option with its padding.
const TIMESTAMPS: u64 = 12;
/// `tcp_event_data_recv`: shorter segments let no window grow.
const LEAST_GROWING: u32 = 128;

/// Which share of a buffer's memory is window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowShare {
    of_256: u64,
}

impl WindowShare {
    pub(crate) const HALF: Self = Self { of_256: HALF };

    /// `tcp_win_from_space`
    pub(crate) fn of(self, memory: u64) -> u64 {
        (memory * self.of_256) >> SHARE_SHIFT
    }

    /// `tcp_space_from_win`
    fn memory_of(self, window: u64) -> u64 {
        (window << SHARE_SHIFT) / self.of_256
    }

    /// `tcp_measure_rcv_mss`: what a segment fills of the memory that it takes.
    fn measured(len: u32) -> Self {
        Self { of_256: ((u64::from(len) << SHARE_SHIFT) / true_size(len)).max(1) }
    }

    /// `tcp_grow_window` and `__tcp_grow_window`: by how much a segment lets a window of `ssthresh` grow. One that takes
    /// much memory for little payload does so only while the window is small.
    /// `most` is the buffer's largest size.
    pub(crate) fn growth(self, ssthresh: u64, len: u32, mss: u64, most: u64) -> u64 {
        let bytes = u64::from(len);
        let mut size = self.of(true_size(len));
        if size <= bytes {
            return 2 * mss.max(bytes);
        }
        size /= 2;
        let mut window = self.of(most) / 2;
        while ssthresh <= window {
            if size <= bytes {
                return 2 * bytes;
            }
            (size, window) = (size / 2, window / 2);
        }
        0
    }
}

/// `skb->truesize` of a packet that a device driver has put in a buffer of its own.
fn true_size(len: u32) -> u64 {
    (u64::from(len) + PACKET_HEADERS + SHARED_INFO).next_power_of_two() + SK_BUFF
}

/// `rcvmem`, before 6.6: what a full segment is taken to need, of which half is window.
fn memory_of_segment(mss: u64) -> u64 {
    let packet = mss + HEADER_ROOM + SHARED_INFO + SK_BUFF;
    packet + (2 * mss).saturating_sub(packet).next_multiple_of(128)
}

/// What the receiver knows of the flow's rate.
#[derive(Debug)]
pub(crate) struct ReceiveTuner {
    tuning: ReceiveTuning,
    enabled: bool,
    most: u64,
    mss: u64,
    /// `rcvq_space`: the most that was read in a round trip, and where and when the present one began.
    space: u64,
    begin: u64,
    since: Instant,
    /// When the present one ends; never while its length is not known.
    until: Instant,
    /// `rcv_rtt_est`: eight times the round trip in microseconds, 0 while it is not known; and when and up to where the
    /// window reached from which it is measured without timestamps.
    rtt_x8: u64,
    window_since: Option<Instant>,
    window_end: u64,
    /// `rcv_rtt_last_tsecr`
    last_tsecr: u32,
}

impl ReceiveTuner {
    /// The tuner, and the buffer as it is at first. `opens` where this end opens the connection.
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
        // Before it is known whether the other end sends timestamps there is room for more.
        let segment = if opens && config.host.timestamps { mss + TIMESTAMPS } else { mss };
        let first = (WindowShare::HALF.of(memory).min(most_at_first) / segment).max(1) * segment;
        let buffer = ReceiveBuffer::new(config, memory, first);
        let tuner = Self {
            tuning,
            enabled: config.auto_tuning,
            most: config.rmem.max.as_u64(),
            mss,
            space: buffer.offered().min(INITIAL_SEGMENTS * mss),
            begin: 0,
            since: Instant::START,
            until: Instant::NEVER,
            rtt_x8: 0,
            window_since: None,
            window_end: 0,
            last_tsecr: 0,
        };
        (tuner, buffer)
    }

    /// `tcp_init_buffer_space`: the connection is there.
    pub(crate) fn on_established(&mut self, now: Instant) {
        self.since = now;
    }

    /// Eight times the round trip in microseconds, 0 while it is not known.
    pub(crate) fn rtt_x8(&self) -> u64 {
        self.rtt_x8
    }

    /// `tcp_rcv_rtt_measure_ts`: a segment came, which echoes another timestamp than the last one.
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

    /// `tcp_rcv_rtt_measure`: a segment in order, which ends at byte `end`; without timestamps it is known only how long
    /// a window takes, which is a round trip or more.
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

    /// `tcp_rcv_rtt_update`: the least counts at once, what is longer is smoothed.
    fn measure_rtt(&mut self, rtt_us: u64, of_window: bool) {
        let old = self.rtt_x8;
        self.rtt_x8 = if old == 0 || 8 * rtt_us < old {
            8 * rtt_us
        } else if of_window {
            old
        } else {
            old - old / 8 + rtt_us
        };
        self.begin_round(self.begin, self.since);
    }

    /// A round trip began at byte `begin`.
    fn begin_round(&mut self, begin: u64, since: Instant) {
        (self.begin, self.since) = (begin, since);
        self.until = since + Duration::from_nanos(125 * self.rtt_x8);
    }

    /// `tcp_measure_rcv_mss`: a segment longer than any before.
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

    /// `tcp_rcv_space_adjust`: the application has read.
    #[inline]
    pub(crate) fn on_read(&mut self, now: Instant, buffer: &mut ReceiveBuffer) {
        if now >= self.until {
            self.end_round(now, buffer);
        }
    }

    fn end_round(&mut self, now: Instant, buffer: &mut ReceiveBuffer) {
        let copied = (buffer.copied() - self.begin).saturating_sub(buffer.unread());
        if copied > self.space {
            self.grow(copied, buffer);
            self.space = copied;
        }
        self.begin_round(buffer.copied(), now);
    }

    /// `tcp_data_queue_ofo`: a segment came beyond a gap.
    pub(crate) fn on_out_of_order(&mut self, buffer: &mut ReceiveBuffer, highest: u64) {
        if self.tuning == ReceiveTuning::Tight && self.enabled {
            let window = 2 * self.space + highest.saturating_sub(buffer.in_order);
            self.resize(window, buffer);
        }
    }

    /// More came in a round trip than ever before: the buffer grows so that the sender may double its rate, and again
    /// while this is on its way.
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

    /// The buffer grows to have room for `window`; it never shrinks.
    fn resize(&self, window: u64, buffer: &mut ReceiveBuffer) {
        let memory = if self.measures() {
            buffer.share().memory_of(window)
        } else {
            window / self.mss * memory_of_segment(self.mss)
        };
        let memory = memory.min(self.most);
        if memory > buffer.memory() {
            buffer.resize(memory, buffer.share());
        }
    }
}

/// `tcp_event_data_recv`: whether a segment is long enough for the window to grow by it.
pub(crate) const fn lets_grow(len: u32) -> bool {
    len >= LEAST_GROWING
}
