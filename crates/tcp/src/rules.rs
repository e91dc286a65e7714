//! What differs between the Linuxes that a host's TCP may be. Each rule is read in one place, and says which release
//! changed it; what is not here is alike in all of them, or counts as it is in the latest.

use skyhop_model::Profile;

/// The rules of a Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How the receive buffer begins and grows.
    pub(crate) receive_tuning: ReceiveTuning,
    /// Duplicate ACKs of a burst are merged (4.18).
    pub(crate) sack_compression: bool,
    /// A full segment that ends a burst is acknowledged once it has been read (6.6: `tcp_measure_rcv_mss`).
    pub(crate) acks_pushed: bool,
    /// SYNs leave a second apart at first (6.5: sysctl tcp_syn_linear_timeouts).
    pub(crate) linear_syns: u32,
    /// Recovery lets the window grow with each ACK that advances (5.14: `tcp_cwnd_reduction`); before, only while
    /// retransmissions are acknowledged.
    pub(crate) prr_grows_on_advance: bool,
    /// Bursts may be larger on short paths (5.18: sysctl tcp_tso_rtt_log).
    pub(crate) tso_by_rtt: bool,
    /// A burst waits for an ACK that is near (6.18: `tcp_tso_should_defer`); before, for one whose segment left half an
    /// RTT ago.
    pub(crate) defers_for_near_ack: bool,
    /// What is due within a window is noted by its end (6.1: `tcp_cwnd_validate`); before, by the most that was out.
    pub(crate) notes_limited_windows: bool,
    /// Where nothing has been sent again an ACK shows that the segment was late (6.12: `tcp_packet_delayed`).
    pub(crate) undoes_without_retransmission: bool,
    /// Short timers wait 2 ms longer (6.6: `TCP_TIMEOUT_MIN_US`); before, two ticks.
    pub(crate) short_timers_in_us: bool,
}

/// `tcp_rcv_space_adjust` and what goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveTuning {
    /// Before 4.16: a window of 20 segments at first, in steps of half as much and twice as much.
    Steps,
    /// Before 6.16: by how much more came, twice; room for what is lost. Half of the memory is window.
    HalfWindow,
    /// The same, with the part of the memory that is window measured (6.6).
    MeasuredWindow,
    /// From 6.16 on: only what came twice, and room for what waits beyond a gap.
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

/// What the congestion controls of a Linux had otherwise, as parameters of those here: Linux up to 5.4 let HyStart look at
/// the first 8 RTTs of a round alone; BBR allows for aggregated ACKs from 5.1 on.
pub fn parameters_of(profile: Profile) -> &'static [(&'static str, &'static str)] {
    match profile {
        Profile::Linux4_15 => &[("hystart_all_samples", "0"), ("extra_acked_gain", "0")],
        Profile::Linux5_4 => &[("hystart_all_samples", "0")],
        Profile::Linux6_12 | Profile::Linux6_18 => &[],
    }
}
