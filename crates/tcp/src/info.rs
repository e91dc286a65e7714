//! Snapshot of a sender, as `TCP_INFO` would report it.

use skyhop_model::CongestionState;
use skyhop_units::Duration;

use crate::{CongestionControl, Sender};

/// Snapshot of a sender's state and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments; `None` while it is infinite.
    pub ssthresh: Option<u32>,
    /// Smoothed RTT; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Smallest RTT of the last five minutes; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout, back-off included.
    pub rto: Duration,
    /// Segments sent and neither acknowledged nor known lost (RFC 6675's pipe).
    pub inflight: u32,
    /// Segments retransmitted since the start, probes included.
    pub retransmits: u64,
    /// The pacing rate in bytes per second; `None` where the sender does not pace.
    pub pacing_rate: Option<u64>,
    /// Congestion state of the socket (`icsk_ca_state`).
    pub ca_state: CongestionState,
    /// Segments delivered since the start, the SYN included.
    pub delivered: u64,
    /// Segments delivered whose acknowledgement echoed an ECN mark.
    pub delivered_ce: u64,
    /// Data segments sent since the start, retransmissions included.
    pub sent: u64,
    /// Segments deemed lost since the start.
    pub lost: u64,
    /// Delivery rate in bytes per second, from the last valid sample; `None` before the first.
    pub delivery_rate: Option<u64>,
    /// Whether the application, not the network, limits the flow.
    pub app_limited: bool,
    /// Largest degree of reordering detected, in segments (`reordering`).
    pub reordering: u32,
    /// Retransmission timeouts since the start.
    pub timeouts: u64,
    /// Tail loss probes since the start.
    pub probes: u64,
    /// Fast recoveries since the start.
    pub recoveries: u64,
    /// Window reductions undone since the start.
    pub undos: u64,
}

impl TcpInfo {}

impl<C: CongestionControl> Sender<C> {
    /// Take a snapshot of the sender, for the results.
    pub fn info(&self) -> TcpInfo {
        let tp = &self.tp;
        let infinite = tp.snd_ssthresh >= skyhop_cc::TCP_INFINITE_SSTHRESH;
        let sampled = self.rtt.has_sample();
        let interval_us = u64::from(tp.rate_interval_us);
        let delivered_bytes = u64::from(tp.rate_delivered) * u64::from(self.config.host.mss);
        TcpInfo {
            cwnd: tp.snd_cwnd,
            ssthresh: (!infinite).then_some(tp.snd_ssthresh),
            srtt: sampled.then(|| Duration::from_micros(self.rtt.srtt_us())),
            min_rtt: sampled.then(|| Duration::from_micros(self.rtt.min_rtt_us())),
            rto: Duration::from_micros(self.rto_us),
            inflight: self.board.in_flight(),
            retransmits: tp.total_retrans.into(),
            pacing_rate: self.is_paced().then_some(tp.sk().sk_pacing_rate),
            ca_state: tp.ca_state(),
            delivered: tp.delivered.into(),
            delivered_ce: tp.delivered_ce.into(),
            sent: self.data_sent,
            lost: tp.lost.into(),
            delivery_rate: (delivered_bytes * 1_000_000).checked_div(interval_us),
            app_limited: tp.app_limited != 0,
            reordering: tp.reordering,
            timeouts: self.timeouts,
            probes: self.probes,
            recoveries: self.recoveries,
            undos: self.undos,
        }
    }
}
