//! Pacing as the kernel does it without the fq qdisc, and only where the congestion control requests it
//! (`sk_pacing_status`).

use skyhop_cc::SK_PACING_NEEDED;
use skyhop_units::Instant;

use crate::{CongestionControl, Sender};

/// Number of first segments of a connection that leave unpaced.
const UNPACED_SEGMENTS: u64 = 10;
/// Pacing rate relative to cwnd / srtt in slow start, per cent (sysctl tcp_pacing_ss_ratio).
const SLOW_START_PERCENT: u64 = 200;
/// Pacing rate relative to cwnd / srtt in congestion avoidance, per cent (sysctl tcp_pacing_ca_ratio).
const AVOIDANCE_PERCENT: u64 = 120;
/// Log2 of the RTT in µs below which bursts may be larger (sysctl tcp_tso_rtt_log).
const TSO_RTT_LOG: u32 = 9;
/// Smallest burst in segments, unless the congestion control sets it (sysctl tcp_min_tso_segs).
const MIN_TSO_SEGMENTS: u32 = 2;

impl<C: CongestionControl> Sender<C> {
    pub(crate) fn is_paced(&self) -> bool {
        self.tp.sk().sk_pacing_status == SK_PACING_NEEDED
    }

    /// Set the pacing rate to cwnd * mss / srtt with headroom to grow, as the kernel does for modules that do
    /// not set a rate (`tcp_update_pacing_rate`).
    pub(crate) fn update_pacing_rate(&mut self) {
        let tp = &self.tp;
        let percent =
            if tp.snd_cwnd < tp.snd_ssthresh / 2 { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
        let window = u64::from(tp.snd_cwnd.max(self.board.packets_out()));
        // mss * 8 * 10^6 / 100: srtt counts eighths of microseconds.
        let scaled = u64::from(self.config.host.mss) * 80_000 * percent * window;
        let rate = scaled / self.rtt.srtt_x8().max(1);
        let sk = self.tp.sk_mut();
        sk.sk_pacing_rate = rate.min(sk.sk_max_pacing_rate);
    }

    /// Time at which pacing releases the next segment; `None` if it may leave now.
    pub(crate) fn pacing_release(&self) -> Option<Instant> {
        let at = Instant::from_nanos(self.tp.tcp_wstamp_ns);
        (self.is_paced() && at > self.now).then_some(at)
    }

    /// Delay the next burst by the time that this one takes at the pacing rate. A burst that left later than
    /// pacing allowed shortens this delay, by at most half.
    pub(crate) fn pace(&mut self, segments: u32, burst_bytes: u64) {
        let prior_ns = self.tp.tcp_wstamp_ns;
        let now_ns = self.now.as_nanos().max(prior_ns);
        self.tp.tcp_wstamp_ns = now_ns;
        let rate = self.tp.sk().sk_pacing_rate;
        let sent = self.data_sent + u64::from(segments);
        if !self.is_paced() || rate == 0 || rate == u64::MAX || sent < UNPACED_SEGMENTS {
            return;
        }
        let length_ns = burst_bytes * 1_000_000_000 / rate;
        let credit_ns = now_ns - prior_ns;
        self.tp.tcp_wstamp_ns += length_ns - credit_ns.min(length_ns / 2);
    }

    /// Size of a burst in segments: about the data that the pacing rate carries in a millisecond
    /// (`sk_pacing_shift`).
    pub(crate) fn burst_segments(&mut self) -> u32 {
        if !self.config.tso {
            return 1;
        }
        let sk = self.tp.sk();
        let most = u64::from(sk.sk_gso_max_size);
        let mut bytes = sk.sk_pacing_rate >> sk.sk_pacing_shift;
        let short_path = self.rtt.min_rtt_us() >> TSO_RTT_LOG;
        if self.rules.tso_by_rtt && short_path < 32 {
            bytes = bytes.saturating_add(most >> short_path);
        }
        let segments = bytes.min(most) as u32 / self.config.host.mss;
        let least = self.cc.min_tso_segs(&mut self.tp).unwrap_or(MIN_TSO_SEGMENTS);
        segments.max(least)
    }
}
