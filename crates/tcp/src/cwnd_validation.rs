//! Congestion window validation: an unused window must not grow, and shrinks (RFC 7661, RFC 2861).

use skyhop_cc::CaEvent;

use crate::{CongestionControl, Sender};

/// Observed use of the congestion window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CwndUsage {
    /// Segment whose acknowledgement ends the observed round trip.
    round_end: u64,
    /// Largest number of segments outstanding since the window last limited the flow (`snd_cwnd_used`).
    cwnd_used: u32,
}

impl<C: CongestionControl> Sender<C> {
    /// Record, after each flight, the segments outstanding and whether the window limited the flight (RFC 7661
    /// 4.3, `tcp_cwnd_validate`).
    pub(crate) fn validate_cwnd(&mut self, limited: bool) {
        let out = self.board.packets_out();
        let tp = &mut self.tp;
        let is_news = if self.rules.notes_limited_windows {
            limited || (!tp.is_cwnd_limited() && out > tp.max_packets_out)
        } else {
            out > tp.max_packets_out
        };
        if self.board.una >= self.usage.round_end || is_news {
            tp.set_cwnd_limited(limited);
            tp.max_packets_out = out;
            self.usage.round_end = self.board.nxt;
            tp.cwnd_usage_seq = self.lengths.end() as u32;
        }
        if self.is_cwnd_limited() {
            self.usage.cwnd_used = 0;
            self.tp.snd_cwnd_stamp = self.jiffies();
            return;
        }
        self.usage.cwnd_used = self.usage.cwnd_used.max(out);
        let idle = self.jiffies().wrapping_sub(self.tp.snd_cwnd_stamp);
        if self.config.slow_start_after_idle
            && idle >= self.tp.inet_conn.icsk_rto
            && !self.has_cong_control
        {
            self.shrink_unused_cwnd();
        }
    }

    /// Whether the congestion window limits the flow. In slow start it also counts as limiting while it is
    /// smaller than twice the largest number of segments outstanding (RFC 7661 4.3).
    fn is_cwnd_limited(&self) -> bool {
        let tp = &self.tp;
        tp.is_cwnd_limited() || (tp.in_slow_start() && tp.snd_cwnd < 2 * tp.max_packets_out)
    }

    /// Reduce the window to the mean of its size and the used part, at most once per retransmission timeout
    /// (RFC 2861 3.2).
    fn shrink_unused_cwnd(&mut self) {
        if self.tp.ca_state() == skyhop_model::CongestionState::Open {
            let cwnd_used = self.usage.cwnd_used.max(self.config.initial_cwnd);
            if cwnd_used < self.tp.snd_cwnd {
                self.tp.snd_ssthresh = self.current_ssthresh();
                self.tp.snd_cwnd = (self.tp.snd_cwnd + cwnd_used) / 2;
            }
            self.usage.cwnd_used = 0;
        }
        self.tp.snd_cwnd_stamp = self.jiffies();
    }

    /// Halve the window for each timeout spent idle (RFC 2861 3.2, RFC 5681 4.1). As in Linux, an idle period
    /// ends when the application writes, not when the receiver opens its window.
    pub(crate) fn restart_after_idle(&mut self) {
        let idle_us = self.now_us.saturating_sub(self.last_sent_us);
        if !self.config.slow_start_after_idle
            || self.board.packets_out() > 0
            || self.has_cong_control
            || self.data_sent == 0
            || idle_us <= self.rto_us
        {
            return;
        }
        self.cwnd_event(CaEvent::CwndRestart);
        self.tp.snd_ssthresh = self.current_ssthresh();
        let floor = self.config.initial_cwnd.min(self.tp.snd_cwnd);
        let mut rest_us = idle_us.saturating_sub(self.rto_us);
        while rest_us > 0 && self.tp.snd_cwnd > floor {
            self.tp.snd_cwnd /= 2;
            rest_us = rest_us.saturating_sub(self.rto_us);
        }
        self.tp.snd_cwnd = self.tp.snd_cwnd.max(floor);
        self.tp.snd_cwnd_stamp = self.jiffies();
        self.usage.cwnd_used = 0;
    }
}
