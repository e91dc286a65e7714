//! What waits at the receiver for its application or for a gap to be filled, and how much more the peer may send
//! (RFC 9293 3.8.6, RFC 1122 4.2.3.3's receiver side of silly windows).

use crate::config::ReceiverConfig;

/// Linux asks for no larger window scale (RFC 7323 2.3).
const MAX_WINDOW_SCALE: u32 = 14;

/// The receive buffer. Counts bytes of the stream.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    /// Whether the application takes everything the moment that it is in order.
    at_once: bool,
    capacity: u64,
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
    pub(crate) fn new(config: &ReceiverConfig) -> Self {
        let (window, mss) = (config.window.as_u64(), u64::from(config.mss));
        // Who reads at once always has room for the same number of segments.
        let capacity =
            if config.reads_at_once { (window / mss).max(1) * mss } else { window.max(1) };
        Self {
            at_once: config.reads_at_once,
            capacity,
            scale: capacity.ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE),
            in_order: 0,
            read: 0,
            beyond: 0,
            offered_end: capacity,
            offered: capacity,
        }
    }

    pub(crate) fn unread(&self) -> u64 {
        if self.at_once { 0 } else { self.in_order - self.read }
    }

    /// The application takes `bytes`.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.read += bytes.min(self.unread());
    }

    /// Whether the peer may have sent up to byte `end`.
    pub(crate) fn accepts(&self, end: u64) -> bool {
        end <= if self.at_once { self.in_order + self.capacity } else { self.offered_end }
    }

    /// `tcp_receive_window`: how much of the window that was told last is left.
    pub(crate) fn window_left(&self) -> u64 {
        self.offered_end.saturating_sub(self.in_order)
    }

    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.unread() + self.beyond)
    }

    /// Less than half is free: `__tcp_select_window` gives up quick ACKs then.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.at_once && self.free() < self.capacity / 2
    }

    /// `__tcp_select_window`: the window that there is room for; none rather than a silly one.
    pub(crate) fn room(&self, rcv_mss: u64) -> u64 {
        if self.at_once {
            return self.capacity;
        }
        let step = 1 << self.scale;
        let mut free = self.free();
        if self.is_crowded() {
            free -= free % step;
            if free < self.capacity >> 4 || free < rcv_mss.min(self.capacity) {
                return 0;
            }
        }
        free.next_multiple_of(step)
    }

    /// `tcp_select_window`: the window that an ACK tells now. What was offered stays so.
    pub(crate) fn offer(&mut self, rcv_mss: u64) -> u64 {
        let (left, room) = (self.window_left(), self.room(rcv_mss));
        self.offered = if self.at_once {
            room
        } else if room < left {
            left.next_multiple_of(1 << self.scale)
        } else {
            room
        };
        self.offered_end = self.in_order + self.offered;
        self.offered
    }
}
