//! The size of the send buffer, which the kernel lets grow with the window. Nothing waits for room in it here: what the
//! application has, it has written. The congestion control is asked all the same, when the kernel asks it.

use crate::{CongestionControl, Sender};

/// What a full segment takes of the buffer: its bytes and headers in a power of two, and the kernel's own struct.
const BYTES_PER_SEGMENT: u32 = 4096 + 256;
/// sysctl tcp_wmem, the largest.
const MOST: u32 = 4 << 20;
/// Windows that it holds where the congestion control has no opinion: RFC 5681 3.2 needs nearly two.
const WINDOWS: u32 = 2;

impl<C: CongestionControl> Sender<C> {
    /// `tcp_sndbuf_expand`.
    pub(crate) fn expand_sndbuf(&mut self) {
        let windows = if self.sizes_sndbuf { self.ask_sndbuf_windows() } else { None };
        // Who has no such hook once has none at all.
        self.sizes_sndbuf = windows.is_some();
        let windows = windows.unwrap_or(WINDOWS);
        let tp = &mut self.tp;
        let segments = tp.snd_cwnd.max(skyhop_cc::TCP_INIT_CWND).max(tp.reordering + 1);
        let wanted = windows.saturating_mul(segments).saturating_mul(BYTES_PER_SEGMENT);
        let sk = tp.sk_mut();
        sk.sk_sndbuf = sk.sk_sndbuf.max(wanted.min(MOST) as i32);
    }

    /// `tcp_check_space` with `tcp_should_expand_sndbuf`: the application has more than was sent, and the window is
    /// not what holds it back.
    pub(crate) fn check_space(&mut self) {
        if self.has_more() && self.board.in_flight() < self.tp.snd_cwnd {
            self.expand_sndbuf();
        }
    }

    fn ask_sndbuf_windows(&mut self) -> Option<u32> {
        self.publish();
        self.cc.sndbuf_expand(&mut self.tp)
    }
}
