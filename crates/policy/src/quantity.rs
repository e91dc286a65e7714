//! What a report says, by the names that cards use.

use skyhop_cc::Report;
use skyhop_cc::bindings::{SKYHOP_APP_LIMITED, SKYHOP_CWND_LIMITED, SKYHOP_OBEYS, SKYHOP_RATE_ONE};

/// A time that lies so far ahead that nothing is announced, s.
const NEVER_S: f64 = 60.0;

macro_rules! quantities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal),+ $(,)?) => {
        /// What a report says.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Quantity {
            $($(#[doc = $doc])+ $variant),+
        }

        impl Quantity {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in cards.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

quantities! {
    /// 1, for what is no quotient.
    One = "one",
    /// Length of the interval, s.
    Interval = "interval_s",
    /// Mean of the interval's samples of the delivery rate, one per ACK; 0: there was none.
    Rate = "rate_bps",
    /// TCP's own sample of the delivery rate (TCP_INFO's).
    TcpRate = "tcp_rate_bps",
    /// Delivered in the interval over its length.
    DeliveredRate = "delivered_bps",
    /// Cumulatively acknowledged in the interval over its length.
    AckedRate = "acked_bps",
    /// Sent in the interval, again or for the first time, over its length.
    SentRate = "sent_bps",
    /// Marked lost in the interval over its length.
    LostRate = "lost_bps",
    /// Pacing rate; 0: there is none.
    Pacing = "pacing_bps",
    /// Delivered in the interval, packets.
    Delivered = "delivered",
    /// Delivered with an ECN mark in the interval, packets.
    Marked = "marked",
    /// Marked lost in the interval, packets.
    Lost = "lost",
    /// Sent in the interval, packets.
    Sent = "sent",
    /// Retransmitted in the interval, packets.
    Retransmitted = "retransmitted",
    /// Sent in the interval, bytes.
    SentBytes = "sent_bytes",
    /// ACKs of the interval.
    Acks = "acks",
    /// Samples of the round trip in the interval.
    RttSamples = "rtt_samples",
    /// Their mean, s; 0: there was none.
    RttMean = "rtt_s",
    /// The least of them, s; 0: there was none.
    RttLeast = "rtt_least_s",
    /// The largest of them, s.
    RttMost = "rtt_most_s",
    /// How much the round trip grew within the interval, s per s.
    RttSlope = "rtt_slope",
    /// Smoothed round trip, s.
    Srtt = "srtt_s",
    /// Its mean deviation, s, which TCP_INFO calls rttvar.
    RttDev = "mdev_s",
    /// A quarter of what the RTO adds to it, s: no less than that of the least RTO, 50 ms.
    RttVar = "rttvar_s",
    /// TCP's least round trip of some minutes, s; 0: unknown.
    MinRtt = "min_rtt_s",
    /// Window, packets.
    Cwnd = "cwnd",
    /// Slow start threshold, packets.
    Ssthresh = "ssthresh",
    /// Sent and not cumulatively acknowledged, packets.
    PacketsOut = "packets_out",
    /// Of these, SACKed.
    SackedOut = "sacked_out",
    /// Of these, marked lost.
    LostOut = "lost_out",
    /// Of these, sent again.
    RetransOut = "retrans_out",
    /// In flight, packets.
    Inflight = "inflight",
    /// Payload of a packet, bytes.
    Mss = "mss_bytes",
    /// The congestion state: 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.
    State = "state",
    /// 1: the application had nothing to send.
    AppLimited = "app_limited",
    /// 1: the window was used up.
    CwndLimited = "cwnd_limited",
    /// 1: decisions govern; 0: the base algorithm does.
    Obeys = "obeys",
    /// Time until the announced handover, s, negative after it; 60: nothing is announced.
    HandoverIn = "handover_in_s",
    /// How long it is expected to interrupt the link, s.
    HandoverOutage = "handover_outage_s",
    /// How wrong its time may be, s.
    HandoverError = "handover_error_s",
    /// What the network said last.
    Output = "output",
}

/// The values of all quantities of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantities([f64; Quantity::ALL.len()]);

impl Quantities {
    /// Those of `report`, where `before` is the one before it, or nothing: then what has grown has grown from 0.
    /// `output` is what the network said last.
    pub fn of(report: &Report, before: Option<&Report>, output: f64) -> Self {
        Self(std::array::from_fn(|index| value(Quantity::ALL[index], report, before, output)))
    }

    /// One of them.
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
