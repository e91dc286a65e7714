//! Differences between Linux releases. Each rule is read in one place and names the release that changed it;
//! behaviour not listed here is the same in all of them, or follows the latest release.

use skyhop_model::Profile;

/// Rules of one Linux release, for the features that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Algorithm of receive buffer auto-tuning.
    pub(crate) receive_tuning: ReceiveTuning,
    /// Whether duplicate ACKs of a burst are merged (4.18).
    pub(crate) sack_compression: bool,
    /// Whether a full-size segment with PSH is acknowledged once it has been read (6.6: `tcp_measure_rcv_mss`).
    pub(crate) acks_pushed: bool,
    /// Number of SYN timeouts before exponential back-off begins (6.5: sysctl tcp_syn_linear_timeouts).
    pub(crate) linear_syns: u32,
    /// Whether PRR lets the window grow with each ACK that advances (5.14: `tcp_cwnd_reduction`); before, only
    /// while retransmissions are acknowledged.
    pub(crate) prr_grows_on_advance: bool,
    /// Whether bursts may be larger on paths with a short RTT (5.18: sysctl tcp_tso_rtt_log).
    pub(crate) tso_by_rtt: bool,
    /// Whether a burst waits for an ACK that is near (6.18: `tcp_tso_should_defer`); before, for one whose
    /// segment left half an RTT ago.
    pub(crate) defers_for_near_ack: bool,
    /// Whether cwnd validation records flights that the window limited (6.1: `tcp_cwnd_validate`); before, it
    /// records only the largest number of segments outstanding.
    pub(crate) notes_limited_windows: bool,
    /// Whether an ACK shows that a segment was late even if nothing was retransmitted (6.12:
    /// `tcp_packet_delayed`).
    pub(crate) undoes_without_retransmission: bool,
    /// Whether the margin of short timers is 2 ms (6.6: `TCP_TIMEOUT_MIN_US`); before, two ticks.
    pub(crate) short_timers_in_us: bool,
}

/// Algorithm of `tcp_rcv_space_adjust` and related functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveTuning {
    /// Linux before 4.16: initial window of 20 segments; the window grows by a half or to its double, depending
    /// on the relative increase of data per round trip.
    Steps,
    /// Linux from 4.16 to 6.5: growth by twice the relative increase of data per round trip, with room for
    /// losses. Half of the memory is window.
    HalfWindow,
    /// Linux from 6.6 to 6.15: the same growth, with the window's share of memory measured.
    MeasuredWindow,
    /// Linux from 6.16 on: growth by twice the relative increase only, and room for data beyond a gap.
    Tight,
}

impl Rules {
    pub(crate) fn of(profile: Profile) -> Self {
        let since = |first: Profile| profile >= first;
        Self {
            receive_tuning: match profile {
                Profile::Linux4_15 => ReceiveTuning::Steps,
                Profile::Linux5_4 => ReceiveTuning::HalfWindow,
                Profile::Linux6_12 => ReceiveTuning::MeasuredWindow,
                Profile::Linux6_18 => ReceiveTuning::Tight,
            },
            sack_compression: since(Profile::Linux5_4),
            acks_pushed: since(Profile::Linux6_12),
            linear_syns: if since(Profile::Linux6_12) { 4 } else { 0 },
            prr_grows_on_advance: since(Profile::Linux6_12),
            tso_by_rtt: since(Profile::Linux6_12),
            defers_for_near_ack: since(Profile::Linux6_18),
            notes_limited_windows: since(Profile::Linux6_12),
            undoes_without_retransmission: since(Profile::Linux6_12),
            short_timers_in_us: since(Profile::Linux6_12),
        }
    }
}

/// Parameters that make the congestion controls of cc/ behave as in a Linux release: HyStart in Linux up to 5.4
/// uses only the first 8 RTT samples of a round; BBR allows for aggregated ACKs from 5.1 on.
pub fn parameters_of(profile: Profile) -> &'static [(&'static str, &'static str)] {
    match profile {
        Profile::Linux4_15 => &[("hystart_all_samples", "0"), ("extra_acked_gain", "0")],
        Profile::Linux5_4 => &[("hystart_all_samples", "0")],
        Profile::Linux6_12 | Profile::Linux6_18 => &[],
    }
}
