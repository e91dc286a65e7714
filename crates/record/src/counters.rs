//! What engines hand to a recorder.

use skyhop_model::CongestionState;
use skyhop_signal::blind::Estimate;
use skyhop_units::{Bytes, Instant};

use crate::Quantiles;

/// A TCP flow at a sample; counters are those since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowState {
    /// The flow's id.
    pub id: u32,
    /// From when on it counts: its goodput is that since then, or since its last sample.
    pub since: Instant,
    /// Until when: the sample's time, or the flow's end before it.
    pub until: Instant,
    /// Payload that has reached the receiver in order.
    pub received: Bytes,
    /// Congestion window.
    pub cwnd_packets: u32,
    /// Slow-start threshold; `None` while it is infinite.
    pub ssthresh_packets: Option<u32>,
    /// Smoothed RTT; `None` before the first sample.
    pub srtt_us: Option<u64>,
    /// Packets sent and neither acknowledged nor known lost.
    pub inflight_packets: u32,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// The rate at which the sender paces; `None` where it does not.
    pub pacing_rate_bps: Option<u64>,
    /// Linux's congestion state.
    pub state: CongestionState,
}

/// A TCP flow at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnd {
    /// The flow's id.
    pub id: u32,
    /// When it ended; not before it began.
    pub at: Instant,
    /// Payload that reached the receiver in order.
    pub received: Bytes,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Data segments sent, retransmissions included.
    pub sent_packets: u64,
    /// When a finite transfer's last byte had arrived.
    pub completed: Option<Instant>,
}

/// One direction of a program's connection at its end: a flow that no plan knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// What was counted.
    pub end: FlowEnd,
    /// When it was first seen.
    pub start: Instant,
    /// What its sender used as congestion control.
    pub cc: String,
    /// Between whom it was, such as "from:40312 -> to:5201".
    pub name: String,
    /// Whether its sender is one of the run's own ends, whose window and retransmissions can be seen.
    pub sender_seen: bool,
}

/// A run at its end.
#[derive(Debug)]
pub struct Ending<'e, Own> {
    /// When it ended.
    pub at: Instant,
    /// Whether the user ended it before its time.
    pub interrupted: bool,
    /// How long it took, in seconds.
    pub wall_s: f64,
    /// Whose TCP it was; `None` for the simulator's.
    pub kernel: Option<String>,
    /// What the run found out of the handover grid, where it was to.
    pub grid: Option<&'e Estimate>,
    /// How late packets left the links.
    pub lateness_us: Option<Quantiles>,
    /// A probe's RTT above what the links scheduled.
    pub rtt_excess_us: Option<Quantiles>,
    /// What else run.json says of a run of this engine: an object.
    pub own: Own,
}

impl<Own> Ending<'_, Own> {
    /// One of a run that has nothing but `own` to say, and took no time.
    pub fn of_run(at: Instant, interrupted: bool, own: Own) -> Self {
        Self {
            at,
            interrupted,
            wall_s: 0.0,
            kernel: None,
            grid: None,
            lateness_us: None,
            rtt_excess_us: None,
            own,
        }
    }
}
