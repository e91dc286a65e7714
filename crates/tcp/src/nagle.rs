//! How long the next segment is and whether it may leave: the receiver's window, Nagle's algorithm with Minshall's
//! change and Linux's cork (RFC 9293 3.7.4, 3.8.6.2.1).

use crate::{CongestionControl, Sender};

/// What was never sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsent {
    pub(crate) bytes: u64,
    /// For how many bytes of it the receiver has room.
    pub(crate) room: u64,
}

impl<C: CongestionControl> Sender<C> {
    pub(crate) fn unsent(&self) -> Unsent {
        let sent = self.lengths.end();
        Unsent { bytes: self.stream.written() - sent, room: self.window_end.saturating_sub(sent) }
    }

    /// `tcp_current_mss`: the payload of the next full segment.
    pub(crate) fn current_mss(&self) -> u64 {
        u64::from(self.config.host.mss) - self.option_bytes
    }

    /// Whether anything was never sent, a FIN included.
    pub(crate) fn has_unsent(&self) -> bool {
        self.stream.wanted() > self.lengths.end() || self.stream.fin_is_due()
    }

    /// Whether a full segment was never sent, or what is less but all.
    pub(crate) fn has_more(&self) -> bool {
        let bytes = self.unsent().bytes;
        bytes >= self.current_mss() || (bytes > 0 && self.stream.is_finished())
    }

    /// Whether there is something that was never sent and may leave now, as far as it is not for the network to say.
    pub(crate) fn has_new_data(&self) -> bool {
        let (unsent, mss) = (self.unsent(), self.current_mss());
        if unsent.bytes > mss {
            return unsent.room >= mss;
        }
        self.window_takes_next() && !self.holds_short()
    }

    /// `tcp_snd_wnd_test`: whether the receiver has room for the next segment. A FIN takes a place there, too.
    pub(crate) fn window_takes_next(&self) -> bool {
        let (unsent, mss) = (self.unsent(), self.current_mss());
        let fin = u64::from(self.stream.fin_is_due() && unsent.bytes <= mss);
        let taken = unsent.bytes.min(mss) + fin;
        taken > 0 && taken <= unsent.room
    }

    /// `tcp_nagle_test`: whether the next segment has to wait for more data. One with the FIN need not.
    fn holds_short(&self) -> bool {
        !self.stream.is_finished() && self.unsent().bytes < self.current_mss() && self.nagle_check()
    }

    /// `tcp_nagle_check`: whether a short segment has to wait. Minshall: only for another short one.
    fn nagle_check(&self) -> bool {
        self.config.cork
            || (!self.config.nodelay
                && self.board.packets_out() > 0
                && self.short_end > self.board.una)
    }

    /// `tcp_mss_split_point`: of at most `most` segments, how many leave at once and their bytes. A short one at their
    /// end may be what fills the receiver's window.
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

    /// Decides how long segment `seq`, the next one, is and whether it carries the FIN.
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
