//! Quantities of a report, by the names that cards use.

use skyhop_cc::Report;
use skyhop_cc::bindings::{SKYHOP_APP_LIMITED, SKYHOP_CWND_LIMITED, SKYHOP_OBEYS, SKYHOP_RATE_ONE};

/// Time until the handover if none is announced, and upper bound of that time and of the time since a handover,
/// in s.
const NEVER_S: f64 = 60.0;

macro_rules! quantities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal),+ $(,)?) => {
        /// Quantity that a report contains or that is computed from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Quantity {
            $($(#[doc = $doc])+ $variant),+
        }

        impl Quantity {
            /// All quantities, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name of the quantity in cards.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

quantities! {
    /// Constant 1, the denominator of features that are no quotient.
    One = "one",
    /// Length of the interval, s.
    Interval = "interval_s",
    /// Mean of the interval's samples of the delivery rate, one per ACK, bit/s; 0 without samples.
    Rate = "rate_bps",
    /// Last delivery rate sample of TCP (TCP_INFO's), bit/s.
    TcpRate = "tcp_rate_bps",
    /// Data delivered in the interval, divided by its length, bit/s.
    DeliveredRate = "delivered_bps",
    /// Data cumulatively acknowledged in the interval, divided by its length, bit/s.
    AckedRate = "acked_bps",
    /// Data sent in the interval, retransmissions included, divided by its length, bit/s.
    SentRate = "sent_bps",
    /// Data marked lost in the interval, divided by its length, bit/s.
    LostRate = "lost_bps",
    /// Pacing rate, bit/s; 0 without pacing.
    Pacing = "pacing_bps",
    /// Packets delivered in the interval.
    Delivered = "delivered",
    /// Packets delivered with an ECN mark in the interval.
    Marked = "marked",
    /// Packets marked lost in the interval.
    Lost = "lost",
    /// Packets sent in the interval.
    Sent = "sent",
    /// Packets retransmitted in the interval.
    Retransmitted = "retransmitted",
    /// Bytes sent in the interval.
    SentBytes = "sent_bytes",
    /// Number of ACKs in the interval.
    Acks = "acks",
    /// Number of RTT samples in the interval.
    RttSamples = "rtt_samples",
    /// Mean RTT sample of the interval, s; 0 without samples.
    RttMean = "rtt_s",
    /// Smallest RTT sample of the interval, s; 0 without samples.
    RttLeast = "rtt_least_s",
    /// Largest RTT sample of the interval, s.
    RttMost = "rtt_most_s",
    /// Growth of the RTT within the interval, s per s.
    RttSlope = "rtt_slope",
    /// Smoothed RTT (srtt), s.
    Srtt = "srtt_s",
    /// Mean deviation of the RTT, s, which TCP_INFO calls rttvar.
    RttDev = "mdev_s",
    /// Quarter of the margin that the RTO adds to the smoothed RTT, s: at least 50 ms, a quarter of the least RTO.
    RttVar = "rttvar_s",
    /// Smallest RTT of the last minutes as TCP keeps it, s; 0: unknown.
    MinRtt = "min_rtt_s",
    /// Congestion window (cwnd), packets.
    Cwnd = "cwnd",
    /// Slow start threshold, packets.
    Ssthresh = "ssthresh",
    /// Packets sent and not cumulatively acknowledged.
    PacketsOut = "packets_out",
    /// Packets among `packets_out` that are SACKed.
    SackedOut = "sacked_out",
    /// Packets among `packets_out` that are marked lost.
    LostOut = "lost_out",
    /// Packets among `packets_out` that were retransmitted.
    RetransOut = "retrans_out",
    /// Packets in flight by TCP's count: `packets_out` - `sacked_out` - `lost_out` + `retrans_out`.
    Inflight = "inflight",
    /// Payload of a full packet, bytes.
    Mss = "mss_bytes",
    /// Congestion state: 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.
    State = "state",
    /// Flag: 1 if the application had nothing to send.
    AppLimited = "app_limited",
    /// Flag: 1 if the window was used up.
    CwndLimited = "cwnd_limited",
    /// Flag: 1 if decisions govern, 0 if the base algorithm does.
    Obeys = "obeys",
    /// Time until the announced handover, s, negative after it; 60 if none is announced.
    HandoverIn = "handover_in_s",
    /// Expected interruption by the announced handover, s.
    HandoverOutage = "handover_outage_s",
    /// Uncertainty of the announced handover's time, s.
    HandoverError = "handover_error_s",
    /// Last output of the network.
    Output = "output",
}

/// Values of all quantities for one report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantities([f64; Quantity::ALL.len()]);

/// Whether a quantity of this name comes from an announced handover.
pub(crate) fn is_announced(name: &str) -> bool {
    let announced = [Quantity::HandoverIn, Quantity::HandoverOutage, Quantity::HandoverError];
    announced.iter().any(|quantity| quantity.name() == name)
}

impl Quantities {
    /// Compute the values for `report`; `before` is the previous report; without one, the growth of counters is
    /// measured from 0. `output` is the network's last output.
    pub fn of(report: &Report, before: Option<&Report>, output: f64) -> Self {
        Self(std::array::from_fn(|index| value(Quantity::ALL[index], report, before, output)))
    }

    /// Value of one quantity.
    pub fn get(&self, quantity: Quantity) -> f64 {
        self.0[quantity as usize]
    }
}

fn value(quantity: Quantity, now: &Report, before: Option<&Report>, output: f64) -> f64 {
    let zero = Report::default();
    let old = before.unwrap_or(&zero);
    let began = before.map_or(now.began_ns, |before| before.at_ns);
    let interval = now.at_ns.saturating_sub(began).max(1000) as f64 / 1e9;
    let grown = |now: u32, old: u32| f64::from(now.wrapping_sub(old));
    let packets = |number: f64| number * f64::from(now.mss) * 8.0;
    let seconds = |us: u32| f64::from(us) / 1e6;
    let flag = |flag: u32| f64::from(u8::from(now.flags & flag != 0));
    let handover = now.handover.valid != 0;
    match quantity {
        Quantity::One => 1.0,
        Quantity::Interval => interval,
        Quantity::Rate => {
            let mean = now.rate_sum as f64 / f64::from(now.rate_samples.max(1));
            packets(mean * 1e6 / f64::from(SKYHOP_RATE_ONE))
        }
        Quantity::TcpRate => {
            packets(f64::from(now.rate_packets)) / seconds(now.rate_interval_us.max(1))
        }
        Quantity::DeliveredRate => packets(grown(now.delivered, old.delivered)) / interval,
        Quantity::AckedRate => {
            now.bytes_acked.wrapping_sub(old.bytes_acked) as f64 * 8.0 / interval
        }
        Quantity::SentRate => now.bytes_sent.wrapping_sub(old.bytes_sent) as f64 * 8.0 / interval,
        Quantity::LostRate => packets(grown(now.lost, old.lost)) / interval,
        Quantity::Pacing if now.pacing_rate == u64::MAX => 0.0,
        Quantity::Pacing => now.pacing_rate as f64 * 8.0,
        Quantity::Delivered => grown(now.delivered, old.delivered),
        Quantity::Marked => grown(now.delivered_ce, old.delivered_ce),
        Quantity::Lost => grown(now.lost, old.lost),
        Quantity::Sent => grown(now.sent, old.sent),
        Quantity::Retransmitted => grown(now.retransmitted, old.retransmitted),
        Quantity::SentBytes => now.bytes_sent.wrapping_sub(old.bytes_sent) as f64,
        Quantity::Acks => now.acks.into(),
        Quantity::RttSamples => now.rtt_samples.into(),
        Quantity::RttMean => now.rtt_sum_us as f64 / 1e6 / f64::from(now.rtt_samples.max(1)),
        Quantity::RttLeast => seconds(now.rtt_least_us),
        Quantity::RttMost => seconds(now.rtt_most_us),
        Quantity::RttSlope => (seconds(now.rtt_last_us) - seconds(now.rtt_first_us)) / interval,
        Quantity::Srtt => seconds(now.srtt_us),
        Quantity::RttDev => seconds(now.mdev_us),
        Quantity::RttVar => seconds(now.rttvar_us),
        Quantity::MinRtt if now.min_rtt_us == u32::MAX => 0.0,
        Quantity::MinRtt => seconds(now.min_rtt_us),
        Quantity::Cwnd => now.cwnd.into(),
        Quantity::Ssthresh => now.ssthresh.into(),
        Quantity::PacketsOut => now.packets_out.into(),
        Quantity::SackedOut => now.sacked_out.into(),
        Quantity::LostOut => now.lost_out.into(),
        Quantity::RetransOut => now.retrans_out.into(),
        Quantity::Inflight => {
            f64::from(now.packets_out) - f64::from(now.sacked_out) - f64::from(now.lost_out)
                + f64::from(now.retrans_out)
        }
        Quantity::Mss => now.mss.into(),
        Quantity::State => now.state.into(),
        Quantity::AppLimited => flag(SKYHOP_APP_LIMITED),
        Quantity::CwndLimited => flag(SKYHOP_CWND_LIMITED),
        Quantity::Obeys => flag(SKYHOP_OBEYS),
        Quantity::HandoverIn if !handover => NEVER_S,
        Quantity::HandoverIn => {
            (now.handover.at_ns as f64 - now.at_ns as f64).clamp(-NEVER_S * 1e9, NEVER_S * 1e9)
                / 1e9
        }
        Quantity::HandoverOutage if !handover => 0.0,
        Quantity::HandoverOutage => now.handover.outage_ns as f64 / 1e9,
        Quantity::HandoverError if !handover => 0.0,
        Quantity::HandoverError => now.handover.error_ns as f64 / 1e9,
        Quantity::Output => output,
    }
}
