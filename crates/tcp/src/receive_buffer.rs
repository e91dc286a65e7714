//! Receive buffer and advertised window: data that waits for the application or for a gap to be filled, and how
//! much more the peer may send (RFC 9293 3.8.6; RFC 1122 4.2.3.3, the receiver's side of silly window
//! avoidance).

use crate::config::ReceiverConfig;
use crate::receive_tuning::WindowShare;

/// Largest window scale (RFC 7323 2.3).
const MAX_WINDOW_SCALE: u32 = 14;
/// Largest value of the header's window field, unscaled.
const MAX_WINDOW: u64 = u16::MAX as u64;

/// Receive buffer. Sizes are bytes of the stream, or bytes of memory where noted.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    /// Whether the application reads data as soon as it is in order.
    reads_at_once: bool,
    mss: u64,
    /// Memory of the buffer (`sk_rcvbuf`), its upper limit, and the share of memory that counts as window.
    memory: u64,
    max_memory: u64,
    share: WindowShare,
    /// Window that the whole memory allows (`window_clamp`, `tcp_full_space`).
    space: u64,
    /// Largest window that may be advertised at present (`rcv_ssthresh`).
    ssthresh: u64,
    /// Window that is advertised while the buffer is empty.
    full_window: u64,
    /// Window scale: windows are multiples of 2 to this power.
    scale: u32,
    /// Number of bytes that have arrived in order.
    pub(crate) in_order: u64,
    read: u64,
    /// Number of bytes that have arrived beyond a gap.
    pub(crate) out_of_order: u64,
    /// Right edge of the window advertised last (`rcv_wup` + `rcv_wnd`), and its size (`rcv_wnd`).
    offered_end: u64,
    offered: u64,
}

impl ReceiveBuffer {
    /// Return an empty buffer of `memory` bytes. `first` is the first window to advertise: whole segments, in
    /// bytes (`tcp_select_initial_window`).
    pub(crate) fn new(config: &ReceiverConfig, memory: u64, first: u64) -> Self {
        let first = first.min(MAX_WINDOW);
        let share = WindowShare::HALF;
        // A size that the application has set limits the scale as well.
        let (max_memory, scaled) = if config.auto_tuning {
            (config.rmem.max.as_u64(), config.rmem.max.as_u64().max(share.of(memory)))
        } else {
            (memory, share.of(memory))
        };
        let mut buffer = Self {
            reads_at_once: config.reads_at_once,
            mss: config.host.mss.into(),
            memory,
            max_memory,
            share,
            space: 0,
            ssthresh: first,
            full_window: 0,
            scale: scaled.max(1).ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE),
            in_order: 0,
            read: 0,
            out_of_order: 0,
            offered_end: first,
            offered: first,
        };
        buffer.resize(memory, share);
        buffer
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn share(&self) -> WindowShare {
        self.share
    }

    /// Window that the whole memory allows, in bytes.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }

    /// Set the memory and the share of it that counts as window.
    pub(crate) fn resize(&mut self, memory: u64, share: WindowShare) {
        (self.memory, self.share) = (memory, share);
        self.space = share.of(memory);
        self.limit_window(self.ssthresh);
    }

    /// Limit the advertised window to `ssthresh`.
    fn limit_window(&mut self, ssthresh: u64) {
        self.ssthresh = ssthresh;
        self.full_window = self.space.min(ssthresh).next_multiple_of(1 << self.scale);
    }

    pub(crate) fn unread(&self) -> u64 {
        if self.reads_at_once { 0 } else { self.in_order - self.read }
    }

    /// Number of bytes that the application has read (`copied_seq`).
    pub(crate) fn copied(&self) -> u64 {
        if self.reads_at_once { self.in_order } else { self.read }
    }

    /// Consume `bytes` that the application reads.
    pub(crate) fn consume(&mut self, bytes: u64) {
        self.read += bytes.min(self.unread());
    }

    /// Whether the window allows data up to byte `end`.
    pub(crate) fn accepts(&self, end: u64) -> bool {
        end <= self.offered_end
    }

    /// Number of bytes left in the window advertised last (`tcp_receive_window`).
    pub(crate) fn window_left(&self) -> u64 {
        self.offered_end.saturating_sub(self.in_order)
    }

    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// Number of bytes that wait for the application or for a gap to be filled.
    pub(crate) fn queued(&self) -> u64 {
        self.unread() + self.out_of_order
    }

    /// Free window space of the buffer (`tcp_space`).
    fn free(&self) -> u64 {
        self.space.saturating_sub(self.queued())
    }

    /// Grow the window by up to two segments after the arrival of one of `len` bytes; return whether it grew
    /// (`tcp_grow_window`).
    #[inline]
    pub(crate) fn grow_window(&mut self, len: u32) -> bool {
        // The kernel counts the segment itself as not read yet.
        let own = if self.reads_at_once { len.into() } else { 0 };
        let room = self.free().saturating_sub(own);
        if self.ssthresh >= room {
            return false;
        }
        let step = self.share.growth(self.ssthresh, len, self.mss, self.max_memory);
        self.limit_window(room.min(self.ssthresh + step));
        step > 0
    }

    /// Whether less than half of the buffer is free, which ends quick ACKs (`__tcp_select_window`).
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.queued() > 0 && self.free() < self.space / 2
    }

    /// Window that the buffer has room for, in bytes; 0 instead of a silly window, which is too small to be
    /// useful (`__tcp_select_window`).
    #[inline]
    pub(crate) fn room(&self, rcv_mss: u64) -> u64 {
        if self.queued() == 0 { self.full_window } else { self.room_with(self.queued(), rcv_mss) }
    }

    fn room_with(&self, queued: u64, rcv_mss: u64) -> u64 {
        let step = 1 << self.scale;
        let mut free = self.space.saturating_sub(queued);
        if free < self.space / 2 {
            free -= free % step;
            if free < self.space >> 4 || free < rcv_mss.min(self.space) {
                return 0;
            }
        }
        free.min(self.ssthresh).next_multiple_of(step)
    }

    /// Choose and record the window that an ACK advertises now; an offered window never shrinks
    /// (`tcp_select_window`).
    #[inline]
    pub(crate) fn offer(&mut self, rcv_mss: u64) -> u64 {
        let (left, room) = (self.window_left(), self.room(rcv_mss));
        let window = if room < left { left.next_multiple_of(1 << self.scale) } else { room };
        self.offered = window.min(MAX_WINDOW << self.scale);
        self.offered_end = self.in_order + self.offered;
        self.offered
    }
}
