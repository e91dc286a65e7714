//! What waits at the receiver for its application or for a gap to be filled, and how much more the peer may send
//! (RFC 9293 3.8.6, RFC 1122 4.2.3.3's receiver side of silly windows).

use crate::config::ReceiverConfig;
use crate::receive_tuning::WindowShare;

/// Linux asks for no larger window scale (RFC 7323 2.3).
const MAX_WINDOW_SCALE: u32 = 14;
/// What the header's window says at most, unscaled.
const MAX_WINDOW: u64 = u16::MAX as u64;

/// The receive buffer. Counts bytes of the stream, and of memory where it says so.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    /// Whether the application takes everything the moment that it is in order.
    at_once: bool,
    mss: u64,
    /// The buffer's memory (`sk_rcvbuf`), how much it may become, and which share of memory is window.
    memory: u64,
    most: u64,
    share: WindowShare,
    /// The window that all of the memory allows (`window_clamp`, `tcp_full_space`).
    space: u64,
    /// The largest window that may be told as yet (`rcv_ssthresh`).
    ssthresh: u64,
    /// The window that is told while nothing waits.
    widest: u64,
    /// Windows are told in steps of 2 to this power.
    scale: u32,
    /// How much has arrived in order.
    pub(crate) in_order: u64,
    read: u64,
    /// Bytes that have arrived beyond a gap.
    pub(crate) beyond: u64,
    /// Where the window that was told last ends, and how large it was (`rcv_wup` + `rcv_wnd`, `rcv_wnd`).
    offered_end: u64,
    offered: u64,
}

impl ReceiveBuffer {
    /// `tcp_select_initial_window`: one with this memory, whose `first` window is in whole segments.
    pub(crate) fn new(config: &ReceiverConfig, memory: u64, first: u64) -> Self {
        let first = first.min(MAX_WINDOW);
        let share = WindowShare::HALF;
        // What the application has sized limits the scale as well.
        let (most, scaled) = if config.auto_tuning {
            (config.rmem.max.as_u64(), config.rmem.max.as_u64().max(share.of(memory)))
        } else {
            (memory, share.of(memory))
        };
        let mut buffer = Self {
            at_once: config.reads_at_once,
            mss: config.host.mss.into(),
            memory,
            most,
            share,
            space: 0,
            ssthresh: first,
            widest: 0,
            scale: scaled.max(1).ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE),
            in_order: 0,
            read: 0,
            beyond: 0,
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

    /// The window that all of the memory allows.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }

    /// It has so much memory now, of which so much is window.
    pub(crate) fn resize(&mut self, memory: u64, share: WindowShare) {
        (self.memory, self.share) = (memory, share);
        self.space = share.of(memory);
        self.limit_window(self.ssthresh);
    }

    /// No larger window than `ssthresh` is told.
    fn limit_window(&mut self, ssthresh: u64) {
        self.ssthresh = ssthresh;
        self.widest = self.space.min(ssthresh).next_multiple_of(1 << self.scale);
    }

    pub(crate) fn unread(&self) -> u64 {
        if self.at_once { 0 } else { self.in_order - self.read }
    }

    /// `copied_seq`
    pub(crate) fn copied(&self) -> u64 {
        if self.at_once { self.in_order } else { self.read }
    }

    /// The application takes `bytes`.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.read += bytes.min(self.unread());
    }

    /// Whether the peer may have sent up to byte `end`.
    pub(crate) fn accepts(&self, end: u64) -> bool {
        end <= self.offered_end
    }

    /// `tcp_receive_window`: how much of the window that was told last is left.
    pub(crate) fn window_left(&self) -> u64 {
        self.offered_end.saturating_sub(self.in_order)
    }

    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// What waits, for the application or for a gap to be filled.
    pub(crate) fn held(&self) -> u64 {
        self.unread() + self.beyond
    }

    /// `tcp_space`
    fn free(&self) -> u64 {
        self.space.saturating_sub(self.held())
    }

    /// `tcp_grow_window`: a segment of `len` bytes that has just come lets the window grow by two; whether it did.
    #[inline]
    pub(crate) fn grow_window(&mut self, len: u32) -> bool {
        // The segment itself still waits to be read.
        let own = if self.at_once { len.into() } else { 0 };
        let room = self.free().saturating_sub(own);
        if self.ssthresh >= room {
            return false;
        }
        let step = self.share.growth(self.ssthresh, len, self.mss, self.most);
        self.limit_window(room.min(self.ssthresh + step));
        step > 0
    }

    /// Less than half is free: `__tcp_select_window` gives up quick ACKs then.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.held() > 0 && self.free() < self.space / 2
    }

    /// `__tcp_select_window`: the window that there is room for; none rather than a silly one.
    #[inline]
    pub(crate) fn room(&self, rcv_mss: u64) -> u64 {
        if self.held() == 0 { self.widest } else { self.room_beside(self.held(), rcv_mss) }
    }

    fn room_beside(&self, held: u64, rcv_mss: u64) -> u64 {
        let step = 1 << self.scale;
        let mut free = self.space.saturating_sub(held);
        if free < self.space / 2 {
            free -= free % step;
            if free < self.space >> 4 || free < rcv_mss.min(self.space) {
                return 0;
            }
        }
        free.min(self.ssthresh).next_multiple_of(step)
    }

    /// `tcp_select_window`: the window that an ACK tells now. What was offered stays so.
    #[inline]
    pub(crate) fn offer(&mut self, rcv_mss: u64) -> u64 {
        let (left, room) = (self.window_left(), self.room(rcv_mss));
        let window = if room < left { left.next_multiple_of(1 << self.scale) } else { room };
        self.offered = window.min(MAX_WINDOW << self.scale);
        self.offered_end = self.in_order + self.offered;
        self.offered
    }
}
