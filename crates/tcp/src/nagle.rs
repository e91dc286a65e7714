//! Length of the next segment and whether it may leave: the receiver's window, Nagle's algorithm with
//! Minshall's modification, and TCP_CORK (RFC 9293 3.7.4, 3.8.6.2.1).

use crate::{CongestionControl, Sender};

/// Data that was never sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsent {
    pub(crate) bytes: u64,
    /// Bytes that the receiver's window has room for.
    pub(crate) room: u64,
}

impl<C: CongestionControl> Sender<C> {
    pub(crate) fn unsent(&self) -> Unsent {
        let sent = self.lengths.end();
        Unsent {
            bytes: self.stream.written() - sent,
            room: self.receive_window_end.saturating_sub(sent),
        }
    }

    /// Payload of the next full-size segment, in bytes (`tcp_current_mss`).
    pub(crate) fn current_mss(&self) -> u64 {
        u64::from(self.config.host.mss) - self.option_bytes
    }

    /// Whether data or a FIN was never sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.stream.wanted() > self.lengths.end() || self.stream.fin_is_due()
    }

    /// Whether a full-size segment waits, or the shorter rest of a closed stream.
    pub(crate) fn has_more(&self) -> bool {
        let bytes = self.unsent().bytes;
        bytes >= self.current_mss() || (bytes > 0 && self.stream.is_finished())
    }

    /// Whether new data may leave now, as far as the receiver's window, Nagle and the cork decide; congestion
    /// window and pacing are not considered.
    pub(crate) fn has_new_data(&self) -> bool {
        let (unsent, mss) = (self.unsent(), self.current_mss());
        if unsent.bytes > mss {
            return unsent.room >= mss;
        }
        self.window_takes_next() && !self.nagle_holds_next()
    }

    /// Whether the receiver's window has room for the next segment (`tcp_snd_wnd_test`). A FIN occupies one
    /// byte of the window, too.
    pub(crate) fn window_takes_next(&self) -> bool {
        let (unsent, mss) = (self.unsent(), self.current_mss());
        let fin = u64::from(self.stream.fin_is_due() && unsent.bytes <= mss);
        let taken = unsent.bytes.min(mss) + fin;
        taken > 0 && taken <= unsent.room
    }

    /// Whether the next segment has to wait for more data (`tcp_nagle_test`). A segment with the FIN need not.
    fn nagle_holds_next(&self) -> bool {
        !self.stream.is_finished() && self.unsent().bytes < self.current_mss() && self.nagle_check()
    }

    /// Whether a short segment has to wait (`tcp_nagle_check`). Minshall: only while another short segment is
    /// outstanding.
    fn nagle_check(&self) -> bool {
        self.config.cork
            || (!self.config.nodelay
                && self.board.packets_out() > 0
                && self.short_end > self.board.una)
    }

    /// Number of segments that leave at once, at most `most`, and their payload in bytes
    /// (`tcp_mss_split_point`). The last of them may be short if it fills the receiver's window.
    pub(crate) fn next_burst(&self, most: u32) -> (u32, u64) {
        let unsent = self.unsent();
        let mss = self.current_mss();
        let needed = unsent.bytes.min(unsent.room);
        if u64::from(most) * mss <= needed {
            return (most, u64::from(most) * mss);
        }
        let (full, partial) = (needed / mss, needed % mss);
        if full == 0 || (partial > 0 && !self.nagle_check()) {
            return (full as u32 + 1, needed);
        }
        (full as u32, full * mss)
    }

    /// Fix the length of segment `seq`, the next one, and whether it carries the FIN.
    pub(crate) fn cut_segment(&mut self, seq: u64) {
        let unsent = self.unsent();
        let mss = self.current_mss();
        let len = unsent.bytes.min(unsent.room).min(mss);
        self.lengths.push(seq, len);
        if len < mss {
            // `tcp_minshall_update`
            self.short_end = seq + 1;
        }
        if self.stream.fin_is_due() && len == unsent.bytes && len < unsent.room {
            self.stream.send_fin(seq);
        }
    }
}
