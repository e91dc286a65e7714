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
    pub(crate) memory: u64,
    most: u64,
    pub(crate) share: WindowShare,
    /// The largest window that all of the buffer allows (`window_clamp`).
    pub(crate) clamp: u64,
    /// The largest window that may be told as yet (`rcv_ssthresh`).
    ssthresh: u64,
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
        Self {
            at_once: config.reads_at_once,
            mss: config.mss.into(),
            memory,
            most,
            share,
            clamp: share.of(memory),
            ssthresh: first,
            scale: scaled.max(1).ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE),
            in_order: 0,
            read: 0,
            beyond: 0,
            offered_end: first,
            offered: first,
        }
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

    /// `tcp_full_space`
    fn full_space(&self) -> u64 {
        self.share.of(self.memory)
    }

    /// `tcp_space`
    fn free(&self) -> u64 {
        self.full_space().saturating_sub(self.unread() + self.beyond)
    }

    /// The window that would be told last of all: `full_space` of `__tcp_select_window`.
    pub(crate) fn capacity(&self) -> u64 {
        self.full_space().min(self.clamp)
    }

    /// `tcp_grow_window`: a segment of `len` bytes that has just come lets the window grow by two; whether it did.
    #[inline]
    pub(crate) fn grow_window(&mut self, len: u32) -> bool {
        if self.ssthresh >= self.clamp {
            return false;
        }
        // The segment itself still waits to be read.
        let own = if self.at_once { len.into() } else { 0 };
        let room = self.clamp.min(self.free().saturating_sub(own));
        let step = self.share.growth(self.ssthresh, len, self.mss, self.most);
        if self.ssthresh >= room || step == 0 {
            return false;
        }
        self.ssthresh = room.min(self.ssthresh + step);
        true
    }

    /// Less than half is free: `__tcp_select_window` gives up quick ACKs then.
    pub(crate) fn is_crowded(&self) -> bool {
        self.free() < self.capacity() / 2
    }

    /// `__tcp_select_window`: the window that there is room for; none rather than a silly one.
    pub(crate) fn room(&self, rcv_mss: u64) -> u64 {
        let step = 1 << self.scale;
        let mut free = self.free();
        if free < self.capacity() / 2 {
            free -= free % step;
            if free < self.full_space() >> 4 || free < rcv_mss.min(self.capacity()) {
                return 0;
            }
        }
        free.min(self.ssthresh).next_multiple_of(step)
    }

    /// `tcp_select_window`: the window that an ACK tells now. What was offered stays so.
    pub(crate) fn offer(&mut self, rcv_mss: u64) -> u64 {
        let (left, room) = (self.window_left(), self.room(rcv_mss));
        let window = if room < left { left.next_multiple_of(1 << self.scale) } else { room };
        self.offered = window.min(MAX_WINDOW << self.scale);
        self.offered_end = self.in_order + self.offered;
        self.offered
    }
}
