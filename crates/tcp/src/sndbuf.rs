//! The send buffer: how much the application may have written and not have been acknowledged (sysctl tcp_wmem). It grows
//! with the window; an application that has more waits for room.

use crate::{CongestionControl, Sender};

/// What a full segment may take of the buffer where each has a packet of its own: its bytes and headers in a power of
/// two, and the kernel's own struct (`tcp_sndbuf_expand`).
const BYTES_PER_SEGMENT: u32 = 4096 + 256;
/// What a burst takes beside its payload: `struct sk_buff` and `struct skb_shared_info` with room for headers in a
/// power of two (`tcp_stream_alloc_skb`).
const BYTES_PER_BURST: u64 = 1024 + 256;
/// Windows that it holds where the congestion control has no opinion: RFC 5681 3.2 needs nearly two.
const WINDOWS: u32 = 2;

impl<C: CongestionControl> Sender<C> {
    /// `tcp_sndbuf_expand`
    pub(crate) fn expand_sndbuf(&mut self) {
        let windows = if self.sizes_sndbuf { self.ask_sndbuf_windows() } else { None };
        // Who has no such hook once has none at all.
        self.sizes_sndbuf = windows.is_some();
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

    /// The application writes as much as there is room for.
    pub(crate) fn fill_sndbuf(&mut self) {
        let end = self.lengths.begin() + self.sndbuf_payload();
        self.stream.accept(self.lengths.end(), end, self.mss());
        self.note_room();
    }

    /// `tcp_check_space`: an application that waits for room writes again once a third of the buffer is free
    /// (`sk_stream_is_writeable`). Whether it has.
    pub(crate) fn check_space(&mut self) -> bool {
        if !self.stream.is_blocked() {
            return false;
        }
        if self.board.in_flight() < self.tp.snd_cwnd {
            self.expand_sndbuf();
            self.tp.snd_cwnd_stamp = self.jiffies();
        }
        if self.lengths.begin() < self.writes_again_at {
            return false;
        }
        self.check_app_limited();
        let before = self.stream.written();
        self.fill_sndbuf();
        self.stream.written() > before
    }

    /// Works out what has to be acknowledged for the application to write again.
    fn note_room(&mut self) {
        let most_queued = 2 * self.sndbuf_payload() / 3;
        self.writes_again_at = self.stream.written().saturating_sub(most_queued);
    }

    /// How much payload fits the buffer in bursts of the present size.
    fn sndbuf_payload(&mut self) -> u64 {
        let burst = u64::from(self.burst_segments()) * self.mss();
        let size = self.tp.sk().sk_sndbuf.max(0) as u64;
        (size * burst / (burst + BYTES_PER_BURST)).max(self.mss())
    }

    fn ask_sndbuf_windows(&mut self) -> Option<u32> {
        self.publish();
        self.cc.sndbuf_expand(&mut self.tp)
    }
}
