//! Counters and results that an engine passes to the recorder.

use skyhop_model::CongestionState;
use skyhop_signal::blind::Estimate;
use skyhop_units::{Bytes, Duration, Instant};

use crate::Quantiles;

/// State of a TCP flow at a sample; counters are cumulative since the flow's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowState {
    /// Id of the flow.
    pub id: u32,
    /// Start of the interval over which goodput is computed, for the flow's first sample. The
    /// interval of a later sample starts at the sample before.
    pub since: Instant,
    /// End of the interval over which goodput is computed: the sample's time, or the flow's end if
    /// that is earlier.
    pub until: Instant,
    /// Payload received in order so far.
    pub received: Bytes,
    /// Congestion window in packets.
    pub cwnd_packets: u32,
    /// Slow-start threshold; `None` while it is infinite.
    pub ssthresh_packets: Option<u32>,
    /// Smoothed RTT; `None` before the first sample.
    pub srtt_us: Option<u64>,
    /// RTTs of the acknowledgements; `None` if the engine does not measure them.
    pub ack_rtts: Option<AckRtts>,
    /// Packets sent, but neither acknowledged nor considered lost.
    pub inflight_packets: u32,
    /// Number of segments retransmitted.
    pub retransmits: u64,
    /// Pacing rate of the sender; `None` if it does not pace.
    pub pacing_rate_bps: Option<u64>,
    /// Congestion state, as Linux names it.
    pub state: CongestionState,
}

/// Total RTT of a flow's acknowledgements: for each one, the time since the first transmission of the segment with
/// which it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AckRtts {
    /// Sum of the RTTs.
    pub sum: Duration,
    /// Number of acknowledgements of new data.
    pub count: u64,
}

impl AckRtts {
    /// Sum of two totals.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }

    /// Mean RTT in microseconds of the acknowledgements since an earlier total; `None` if there were none.
    #[must_use]
    pub(crate) fn mean_us_since(self, earlier: Self) -> Option<i64> {
        let count = self.count.checked_sub(earlier.count).filter(|count| *count > 0)?;
        let sum = self.sum.saturating_sub(earlier.sum);
        Some((sum.as_micros() / count) as i64)
    }
}

/// Counters of a TCP flow at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnd {
    /// Id of the flow.
    pub id: u32,
    /// End of the flow; not before its start.
    pub at: Instant,
    /// Payload received in order.
    pub received: Bytes,
    /// Number of segments retransmitted.
    pub retransmits: u64,
    /// Number of data segments sent, retransmissions included.
    pub sent_packets: u64,
    /// Arrival of a finite transfer's last byte.
    pub completed: Option<Instant>,
    /// Mean RTT without queueing over the flow's lifetime; `None` if the experiment's links say it.
    pub base_rtt: Option<Duration>,
}

/// One direction of a program's connection at its end; such a flow is not part of the experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// Counters of the direction.
    pub end: FlowEnd,
    /// Time at which the connection was first observed.
    pub start: Instant,
    /// Congestion control of the sender.
    pub cc: String,
    /// Addresses of the connection, such as "from:40312 -> to:5201".
    pub name: String,
    /// Whether the sender is one of the run's own ends, whose window and retransmissions can be observed.
    pub sender_observed: bool,
}

/// Facts about a run at its end.
#[derive(Debug)]
pub struct RunConclusion<'e, Own> {
    /// Time of the end.
    pub at: Instant,
    /// Whether the user interrupted the run.
    pub interrupted: bool,
    /// Wall-clock duration of the run, in seconds.
    pub wall_s: f64,
    /// Kernel whose TCP ran; `None` for the simulator's own.
    pub kernel: Option<String>,
    /// Estimate of the handover grid, if the run uses blind estimation.
    pub grid: Option<&'e Estimate>,
    /// Time by which packets left links later than scheduled.
    pub lateness_us: Option<Quantiles>,
    /// Measured RTT of probes minus the RTT that the links scheduled.
    pub rtt_excess_us: Option<Quantiles>,
    /// Entries of run.json that are specific to the engine; serialized as an object.
    pub own: Own,
}

impl<Own> RunConclusion<'_, Own> {
    /// Create the facts of a run with the engine's `own` entries; the wall-clock duration is 0, and
    /// the optional fields are `None`.
    pub fn new(at: Instant, interrupted: bool, own: Own) -> Self {
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
