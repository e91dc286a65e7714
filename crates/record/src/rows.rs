//! Rows of a run directory's tables, and its summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skyhop_app::Transaction;
use skyhop_experiment::QueueSize;
use skyhop_model::{
    CongestionState, Counts as _, Direction, Drops, End, EventKind, LossReason, PathEventKind,
    PhaseKind,
};
use skyhop_path::PathEvent;
use skyhop_signal::Announcement;
use skyhop_units::{Duration, Instant};

use crate::app_detail::{AppDetail, CallSummary, VideoSummary};

/// State of one TCP flow over one sample interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// End of the interval, since the run began.
    pub t_ns: i64,
    /// Id of the flow.
    pub flow: i32,
    /// Payload received in order during the interval, divided by the interval's length.
    pub goodput_bps: i64,
    /// Congestion window at `t_ns`.
    pub cwnd_packets: i64,
    /// Slow-start threshold at `t_ns`; `None` while it is infinite.
    pub ssthresh_packets: Option<i64>,
    /// Smoothed RTT at `t_ns`; `None` before the first sample.
    pub srtt_us: Option<i64>,
    /// Mean RTT of the acknowledgements of new data during the interval, each from the first transmission of the
    /// segment with which it ends; `None` if there were none or the engine does not measure them.
    pub ack_rtt_us: Option<i64>,
    /// Packets sent, but neither acknowledged nor considered lost, at `t_ns`.
    pub inflight_packets: i64,
    /// Number of segments retransmitted during the interval.
    pub retransmits: i64,
    /// Packets of the flow that links marked (ECN) during the interval; `None` if links do not report the flow
    /// of a marked packet.
    pub marks: Option<i64>,
    /// Pacing rate of the sender; `None` if it does not pace.
    pub pacing_rate_bps: Option<i64>,
    /// Congestion state, as Linux names it.
    pub state: CongestionState,
}

/// State of one direction of a link over one sample interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    /// End of the interval, since the run began.
    pub t_ns: i64,
    /// Number of the link.
    pub link: u16,
    /// Direction of the link.
    pub direction: Direction,
    /// Bytes in the queue at `t_ns`.
    pub backlog_bytes: i64,
    /// Packets in the queue at `t_ns`.
    pub backlog_packets: i64,
    /// Bytes on the wire, with Ethernet headers, that arrived at the far end during the interval.
    pub delivered_bytes: i64,
    /// Bytes of the background load that the link carried during the interval.
    #[serde(default)]
    pub background_bytes: i64,
    /// Drops during the interval, by reason.
    pub drops: Drops,
    /// Packets that the queue marked (ECN) during the interval.
    pub marks: i64,
}

impl LinkSample {
    /// Whether the link carried, lost, marked or held anything.
    pub(crate) fn has_content(&self) -> bool {
        self.delivered_bytes + self.background_bytes + self.backlog_bytes + self.marks > 0
            || self.drops.total() > 0
    }
}

/// Route between two sites of a network, from one time on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// First time at which the route holds, since the run began.
    pub t_ns: i64,
    /// Index of the site that sends.
    pub from: u32,
    /// Index of the site that receives.
    pub to: u32,
    /// Number of the way, for routings that spread flows over several.
    pub way: u32,
    /// Satellites in the order in which packets pass them; empty without a route.
    pub satellites: Vec<u32>,
    /// One-way delay at `t_ns` without queueing; `None` without a route.
    pub delay_ns: Option<i64>,
}

impl RouteRow {
    /// Satellites as text, as Hypatia writes paths: "84-85-119".
    pub(crate) fn satellites_text(&self) -> String {
        let numbers: Vec<String> = self.satellites.iter().map(u32::to_string).collect();
        numbers.join("-")
    }
}

/// Number of the link in events that concern none: those of a whole route over a network.
pub const NO_LINK: u16 = u16::MAX;

/// Event at one time of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Time of the event, since the run began.
    pub t_ns: i64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Hop of the path that the event concerns, if it concerns a single hop.
    pub hop: Option<i32>,
    /// Duration of the outage that begins with the event.
    pub outage_ns: i64,
    /// Reason of a loss; `None` for other events.
    pub reason: Option<LossReason>,
    /// Number of the link that the event concerns; [`NO_LINK`] if it concerns none.
    pub link: u16,
    /// Direction of a loss; `None` for other events.
    pub direction: Option<Direction>,
    /// Id of the flow that the event concerns, if known.
    pub flow: Option<i32>,
    /// Announced time of the handover, for announcements.
    pub at_ns: Option<i64>,
    /// Duration of a phase of a congestion control (hold, drain, and the phases that follow).
    pub length_ns: Option<i64>,
}

impl EventRow {
    /// Create the event of a packet's loss on a direction of a link.
    pub fn lost(
        at: Instant,
        reason: LossReason,
        (link, direction): (u16, Direction),
        flow: Option<u32>,
    ) -> Self {
        Self {
            t_ns: at.as_nanos() as i64,
            kind: EventKind::Loss,
            reason: Some(reason),
            link,
            direction: Some(direction),
            flow: flow.map(|id| id as i32),
            ..Self::default()
        }
    }

    /// Create the event of a path, on the link with the given number.
    pub fn of_path(event: &PathEvent, link: u16) -> Self {
        Self {
            t_ns: event.at.as_nanos() as i64,
            kind: EventKind::Path(event.kind),
            hop: event.hop.map(i32::from),
            outage_ns: event.outage.as_nanos() as i64,
            link,
            ..Self::default()
        }
    }

    /// Create the event of a congestion control's phase, its reaction to a handover, from `begin` to `end`.
    pub fn phase(kind: PhaseKind, (begin, end): (Instant, Instant), flow: Option<u32>) -> Self {
        Self {
            t_ns: begin.as_nanos() as i64,
            kind: EventKind::Phase(kind),
            flow: flow.map(|id| id as i32),
            length_ns: Some(end.saturating_since(begin).as_nanos() as i64),
            ..Self::default()
        }
    }

    /// Create the event of a handover's announcement.
    pub fn announced(announcement: &Announcement) -> Self {
        Self {
            t_ns: announcement.announced.as_nanos() as i64,
            kind: EventKind::Announcement,
            outage_ns: announcement.outage.as_nanos() as i64,
            at_ns: Some(announcement.at.as_nanos() as i64),
            ..Self::default()
        }
    }
}

/// Result of one probe packet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeRow {
    /// Id of the probe's flow.
    pub probe: i32,
    /// Sequence number of the packet.
    pub seq: i64,
    /// Time at which the packet was sent, since the run began.
    pub t_ns: i64,
    /// Round-trip time; `None` if the packet was lost.
    pub rtt_ns: Option<i64>,
    /// Round-trip time that the links scheduled (queueing and propagation delay); `None` if not known.
    pub scheduled_rtt_ns: Option<i64>,
}

impl ProbeRow {
    /// Create the row of a probe's packet; `scheduled` is the round-trip time that the links scheduled.
    pub fn new(flow: u32, packet: &Transaction, scheduled: Option<Duration>) -> Self {
        Self {
            probe: flow as i32,
            seq: packet.number as i64,
            t_ns: packet.due.as_nanos() as i64,
            rtt_ns: maybe_ns(packet.took),
            scheduled_rtt_ns: maybe_ns(scheduled),
        }
    }
}

fn maybe_ns(time: Option<Duration>) -> Option<i64> {
    time.map(|time| time.as_nanos() as i64)
}

/// Transaction of an application, from its due time until its completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppRow {
    /// Id of the flow.
    pub flow: i32,
    /// Number of the flow's connection, counted from 0.
    pub connection: i32,
    /// Number of the transaction within the flow, counted from 0.
    pub seq: i64,
    /// Time at which the transaction was due, since the run began.
    pub t_ns: i64,
    /// Bytes that the client sent for the transaction.
    pub sent_bytes: i64,
    /// Bytes that the server sent for the transaction.
    pub answered_bytes: i64,
    /// Time to open the transaction's connection; `None` if it used an open connection.
    pub connect_ns: Option<i64>,
    /// Time from `t_ns` until the first byte of the answer.
    pub first_byte_ns: Option<i64>,
    /// Time from `t_ns` until the client had read the whole answer; `None` if the transaction failed.
    pub latency_ns: Option<i64>,
    /// Fields that are specific to the table of this kind of application.
    #[serde(default)]
    pub detail: AppDetail,
}

impl AppRow {
    /// Create the row of a transaction of a flow whose client is at this end.
    pub fn new((flow, client): (u32, End), transaction: &Transaction) -> Self {
        Self {
            flow: flow as i32,
            detail: AppDetail::new(client, &transaction.detail),
            connection: transaction.connection as i32,
            seq: transaction.number as i64,
            t_ns: transaction.due.as_nanos() as i64,
            sent_bytes: transaction.sent.as_u64() as i64,
            answered_bytes: transaction.answered.as_u64() as i64,
            connect_ns: maybe_ns(transaction.connect),
            first_byte_ns: maybe_ns(transaction.first_byte),
            latency_ns: maybe_ns(transaction.took),
        }
    }
}

/// Version of the results' format; it increases when the meaning of run.json, summary.json or a table's
/// column changes. Directories of version 0 do not state their version.
pub const SCHEMA_VERSION: u32 = 1;

/// Content of summary.json. Field names are stable, because users' scripts read them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the format, [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Name of the engine: sim or live.
    pub engine: String,
    /// Seed of the run's random draws.
    pub seed: u64,
    /// Seconds of the scenario's time that passed.
    pub virtual_s: f64,
    /// Wall-clock duration of the run in seconds.
    pub wall_s: f64,
    /// TCP data packets sent by all flows, retransmissions included.
    pub data_packets: u64,
    /// Summaries of the TCP flows, one per flow.
    pub flows: Vec<FlowSummary>,
    /// Summaries of the probes, one per probe.
    pub probes: Vec<ProbeSummary>,
    /// Summaries of applications, one per flow whose application has a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apps: Vec<AppSummary>,
    /// Summary of the path's link: of its forward direction, with the drops of both directions.
    pub link: LinkSummary,
    /// Summaries of the other links, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkSummary>,
    /// Number of handovers of the path by kind.
    pub handovers: BTreeMap<PathEventKind, u64>,
    /// Estimate of the handover grid from all of the run's traffic, if the run uses blind estimation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind: Option<GridSummary>,
    /// Time by which packets left the links later than scheduled (live only).
    pub lateness_us: Option<Quantiles>,
    /// Measured RTT of probes minus the RTT that the links scheduled (live only).
    pub rtt_excess_us: Option<Quantiles>,
    /// Warnings that readers of the results need to know.
    pub warnings: Vec<String>,
}

/// Handover grid as estimated from traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GridSummary {
    /// Whether a grid was found.
    pub grid: bool,
    /// Time of one handover, in seconds since 1970 UTC modulo the period.
    pub offset_s: Option<f64>,
    /// Time between handovers of the grid, in seconds.
    pub period_s: Option<f64>,
    /// Share of the grid's times at which the traffic shows the evidence, minus the share expected
    /// by chance; 0 to 1.
    pub confidence: f64,
    /// Number of arrivals examined.
    pub samples: usize,
    /// Kind of evidence for the grid in the traffic: spacing or level shifts.
    pub evidence: String,
}

/// Summary of one TCP flow over its lifetime.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Id of the flow: its position in the scenario, counted from 0.
    pub id: u32,
    /// Congestion control of the sender.
    pub cc: String,
    /// Addresses of a program's connection, such as "from:40312 -> to:5201".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Whether the sender of a program's connection is not one of the run's ends, so that its window and
    /// retransmissions are unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sender_unseen: bool,
    /// Start of the flow in seconds.
    pub start_s: f64,
    /// End of the flow in seconds.
    pub stop_s: f64,
    /// Payload received in order, divided by the flow's lifetime.
    pub goodput_bps: u64,
    /// Mean of the srtt samples.
    pub srtt_mean_us: Option<u64>,
    /// 95th percentile of the srtt samples.
    pub rtt_p95_us: Option<u64>,
    /// Mean RTT of the path without queueing, over the flow's lifetime.
    pub base_rtt_mean_us: u64,
    /// Mean of the cwnd samples.
    pub cwnd_mean_packets: f64,
    /// Number of segments retransmitted.
    pub retransmits: u64,
    /// Packets of the flow that links marked (ECN); `None` if links do not report the flow of a marked packet.
    pub marks: Option<u64>,
    /// Number of data segments sent, retransmissions included.
    pub sent_packets: u64,
    /// Time from start until the last byte had arrived, for finite transfers.
    pub completion_s: Option<f64>,
}

/// Summary of one probe over its lifetime.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSummary {
    /// Id of the probe's flow.
    pub id: u32,
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets without an answer.
    pub lost: u64,
    /// Median of the round-trip time.
    pub rtt_p50_us: Option<u64>,
    /// 95th percentile of the round-trip time.
    pub rtt_p95_us: Option<u64>,
    /// 99th percentile of the round-trip time.
    pub rtt_p99_us: Option<u64>,
}

/// Summary of one flow's application over its lifetime.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppSummary {
    /// Id of the flow.
    pub id: u32,
    /// Kind of the application, as in scenarios.
    pub kind: String,
    /// Number of completed transactions.
    pub completed: u64,
    /// Number of failed transactions; those still open at the run's end count neither as completed nor as
    /// failed.
    pub failed: u64,
    /// Median latency of completed transactions.
    pub latency_p50_us: Option<u64>,
    /// 95th percentile of the latency of completed transactions.
    pub latency_p95_us: Option<u64>,
    /// 99th percentile of the latency of completed transactions.
    pub latency_p99_us: Option<u64>,
    /// Summary of a call: opinion scores, and shares of late and lost frames.
    #[serde(flatten)]
    pub call: Option<CallSummary>,
    /// Summary of a film's session, as its viewer experienced it.
    #[serde(flatten)]
    pub video: Option<VideoSummary>,
}

/// Summary of a link over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Bytes on the wire that left the queue, and those of the background load, divided by the bytes that the link's rate
    /// allowed.
    pub utilisation: f64,
    /// Utilisation of the other direction; 0 in runs written before this field existed.
    #[serde(default)]
    pub utilisation_back: f64,
    /// Mean of the backlog samples.
    pub backlog_mean_bytes: u64,
    /// Lost packets by reason, both directions.
    pub drops: Drops,
    /// Packets that the queues marked (ECN), both directions.
    pub marks: u64,
    /// Size of the queue; empty in runs written before this field existed.
    #[serde(default)]
    pub queue: QueueSize,
    /// Size of the other direction's queue.
    #[serde(default)]
    pub queue_back: QueueSize,
}

/// Quantiles of a distribution, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median of the distribution.
    pub p50: f64,
    /// 99th percentile of the distribution.
    pub p99: f64,
    /// Largest value of the distribution.
    pub max: f64,
}
