//! Send buffer: the amount of data that the application may have written and that is not acknowledged (sysctl
//! tcp_wmem). It grows with the window; an application with more data waits for room.

use crate::{CongestionControl, Sender};

/// Memory of the send buffer reserved for each full-size segment, in bytes, as if it had a packet of its own:
/// payload and headers rounded up to a power of two, and `struct sk_buff` (`tcp_sndbuf_expand`).
const BYTES_PER_SEGMENT: u32 = 4096 + 256;
/// Memory of the send buffer that a burst takes in addition to its payload, in bytes: `struct sk_buff`, and
/// `struct skb_shared_info` with room for headers in a power of two (`tcp_stream_alloc_skb`).
const BYTES_PER_BURST: u64 = 1024 + 256;
/// Size of the send buffer in congestion windows if the congestion control does not set it: recovery by RFC
/// 5681 3.2 needs nearly two.
const WINDOWS: u32 = 2;

impl<C: CongestionControl> Sender<C> {
    /// Grow the buffer with the congestion window (`tcp_sndbuf_expand`).
    pub(crate) fn expand_sndbuf(&mut self) {
        let windows = if self.has_sndbuf_expand { self.call_sndbuf_expand() } else { None };
        // A congestion control without the hook is not called again.
        self.has_sndbuf_expand = windows.is_some();
        let windows = windows.unwrap_or(WINDOWS);
        let tp = &mut self.tp;
        let segments = tp.snd_cwnd.max(skyhop_cc::TCP_INIT_CWND).max(tp.reordering + 1);
        let wanted = u64::from(windows) * u64::from(segments) * u64::from(BYTES_PER_SEGMENT);
        let size = wanted.min(self.config.wmem.max.as_u64()).min(i32::MAX as u64) as i32;
        if tp.sk().sk_sndbuf < size {
            tp.sk_mut().sk_sndbuf = size;
            self.note_room();
        }
    }

    /// Let the application write as much as the send buffer has room for.
    pub(crate) fn fill_sndbuf(&mut self) {
        let end = self.lengths.begin() + self.sndbuf_payload();
        self.stream.accept(self.lengths.end(), end, self.mss());
        self.note_room();
    }

    /// Let a blocked application write once a third of the buffer is free (`tcp_check_space`,
    /// `sk_stream_is_writeable`); return whether it wrote.
    pub(crate) fn check_space(&mut self) -> bool {
        if !self.stream.is_blocked() {
            return false;
        }
        if self.board.in_flight() < self.tp.snd_cwnd {
            self.expand_sndbuf();
            self.tp.snd_cwnd_stamp = self.jiffies();
        }
        if self.lengths.begin() < self.writable_at {
            return false;
        }
        self.check_app_limited();
        let before = self.stream.written();
        self.fill_sndbuf();
        self.stream.written() > before
    }

    /// Compute the byte offset whose acknowledgement makes the socket writable again.
    fn note_room(&mut self) {
        let most_queued = 2 * self.sndbuf_payload() / 3;
        self.writable_at = self.stream.written().saturating_sub(most_queued);
    }

    /// Payload that fits the buffer in bursts of the current size, in bytes.
    fn sndbuf_payload(&mut self) -> u64 {
        let burst = u64::from(self.burst_segments()) * self.mss();
        let size = self.tp.sk().sk_sndbuf.max(0) as u64;
        (size * burst / (burst + BYTES_PER_BURST)).max(self.mss())
    }

    fn call_sndbuf_expand(&mut self) -> Option<u32> {
        self.fill_socket();
        self.cc.sndbuf_expand(&mut self.tp)
    }
}
