//! Reno in a few lines (RFC 5681), so that these tests do not depend on the modules of cc/.

use skyhop_tcp::{CongestionControl, RateSample, TcpSock};

/// Reno of RFC 5681 3.1, with optional pacing.
#[derive(Debug, Default)]
pub struct Reno {
    /// Pacing rate to request, in bytes per second, if any.
    pub pacing_rate: Option<u64>,
    pub window_before: u32,
}

impl CongestionControl for Reno {
    fn init(&mut self, tp: &mut TcpSock) {
        if let Some(rate) = self.pacing_rate {
            tp.sk_mut().sk_pacing_status = 1;
            tp.sk_mut().sk_pacing_rate = rate;
            tp.sk_mut().sk_max_pacing_rate = rate;
        }
    }

    fn has_cong_control(&self) -> bool {
        false
    }

    fn cong_control(&mut self, _: &mut TcpSock, _: u32, _: u32, _: &RateSample) {}

    fn cong_avoid(&mut self, tp: &mut TcpSock, _: u32, acked: u32) {
        let limited =
            tp.is_cwnd_limited() || (tp.in_slow_start() && tp.snd_cwnd < 2 * tp.max_packets_out);
        if !limited {
            return;
        }
        let slow = acked.min(tp.snd_ssthresh.saturating_sub(tp.snd_cwnd));
        tp.snd_cwnd += slow;
        tp.snd_cwnd_cnt += acked - slow;
        if tp.snd_cwnd_cnt >= tp.snd_cwnd {
            tp.snd_cwnd_cnt -= tp.snd_cwnd;
            tp.snd_cwnd += 1;
        }
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        self.window_before = tp.snd_cwnd;
        (tp.snd_cwnd / 2).max(2)
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_cwnd.max(self.window_before)
    }
}

/// Controller with a fixed window that records every delivery rate sample.
#[derive(Debug)]
pub struct FixedWindow {
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Valid samples: (delivered segments per second, application-limited).
    pub rates: Vec<(f64, bool)>,
}

impl CongestionControl for FixedWindow {
    fn init(&mut self, tp: &mut TcpSock) {
        tp.snd_cwnd = self.cwnd;
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn cong_control(&mut self, tp: &mut TcpSock, _: u32, _: u32, sample: &RateSample) {
        tp.snd_cwnd = self.cwnd;
        if sample.delivered > 0 && sample.interval_us > 0 {
            let rate = f64::from(sample.delivered) * 1e6 / sample.interval_us as f64;
            self.rates.push((rate, sample.is_app_limited));
        }
    }

    fn cong_avoid(&mut self, _: &mut TcpSock, _: u32, _: u32) {}

    fn ssthresh(&mut self, _: &mut TcpSock) -> u32 {
        self.cwnd
    }

    fn undo_cwnd(&mut self, _: &mut TcpSock) -> u32 {
        self.cwnd
    }
}
