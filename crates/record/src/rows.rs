//! The rows of a run directory's tables, and its summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skyhop_app::Transaction;
use skyhop_model::{
    CongestionState, Direction, Drops, End, EventKind, LossReason, PathEventKind, PhaseKind,
};
use skyhop_signal::Announcement;
use skyhop_units::{Duration, Instant};

use crate::app_detail::{AppDetail, CallSummary, VideoSummary};

/// One TCP flow over one sample interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// The end of the interval, since the run began.
    pub t_ns: i64,
    /// The flow's id.
    pub flow: i32,
    /// Payload that reached the receiver in order during the interval, over the interval.
    pub goodput_bps: i64,
    /// Congestion window at `t_ns`.
    pub cwnd_packets: i64,
    /// Slow-start threshold at `t_ns`; `None` while it is infinite.
    pub ssthresh_packets: Option<i64>,
    /// Smoothed RTT at `t_ns`; `None` before the first sample.
    pub srtt_us: Option<i64>,
    /// Packets sent and neither acknowledged nor known lost, at `t_ns`.
    pub inflight_packets: i64,
    /// Segments retransmitted during the interval.
    pub retransmits: i64,
    /// Packets of it that links marked (ECN) during the interval; `None` where they do not say whose they are.
    pub marks: Option<i64>,
    /// The rate at which the sender paces; `None` where it does not.
    pub pacing_rate_bps: Option<i64>,
    /// Linux's congestion state.
    pub state: CongestionState,
}

/// One direction of a link over one sample interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    /// The end of the interval, since the run began.
    pub t_ns: i64,
    /// Which link.
    pub link: u16,
    /// Which direction.
    pub direction: Direction,
    /// What waited in the queue at `t_ns`.
    pub backlog_bytes: i64,
    /// What waited in the queue at `t_ns`.
    pub backlog_packets: i64,
    /// What arrived at the far end during the interval.
    pub delivered_bytes: i64,
    /// The drops of the interval.
    pub drops: Drops,
    /// Packets that the queue marked (ECN) during the interval.
    pub marks: i64,
}

/// Something that happened at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// When.
    pub t_ns: i64,
    /// What.
    pub kind: EventKind,
    /// The path's hop, where one is concerned.
    pub hop: Option<i32>,
    /// How long the path is down from then on.
    pub outage_ns: i64,
    /// For losses.
    pub reason: Option<LossReason>,
    /// Which link it happened to.
    pub link: u16,
    /// For losses.
    pub direction: Option<Direction>,
    /// The flow concerned, where it is known.
    pub flow: Option<i32>,
    /// For announcements: when the handover is said to happen.
    pub at_ns: Option<i64>,
    /// For holds, drains and what follows them: how long they last.
    pub length_ns: Option<i64>,
}

impl EventRow {
    /// A packet was lost on a direction of a link.
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

    /// A congestion control does something about a handover, from `begin` to `end`.
    pub fn phase(kind: PhaseKind, (begin, end): (Instant, Instant), flow: Option<u32>) -> Self {
        Self {
            t_ns: begin.as_nanos() as i64,
            kind: EventKind::Phase(kind),
            flow: flow.map(|id| id as i32),
            length_ns: Some(end.saturating_since(begin).as_nanos() as i64),
            ..Self::default()
        }
    }

    /// A handover is announced.
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

/// One probe packet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeRow {
    /// The probe flow's id.
    pub probe: i32,
    /// The packet's sequence number.
    pub seq: i64,
    /// When it was sent, since the run began.
    pub t_ns: i64,
    /// Its round trip; `None` when it was lost.
    pub rtt_ns: Option<i64>,
    /// The round trip that the link scheduled (queueing and delay); `None` where not known.
    pub scheduled_rtt_ns: Option<i64>,
}

impl ProbeRow {
    /// The row of a probe's packet; `scheduled`: what the links took for it.
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

/// Something that an application did, from when it was due until it was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppRow {
    /// The flow's id.
    pub flow: i32,
    /// Which of the flow's connections, counted from 0.
    pub connection: i32,
    /// Which of the flow's transactions, counted from 0.
    pub seq: i64,
    /// When it was due.
    pub t_ns: i64,
    /// What the end that opens connections sent for it.
    pub sent_bytes: i64,
    /// What the other end sent for it.
    pub answered_bytes: i64,
    /// How long the connection took that was opened for it; `None` where there was one.
    pub connect_ns: Option<i64>,
    /// From when it was due until the first byte of the answer.
    pub first_byte_ns: Option<i64>,
    /// From when it was due until all of it had been read; `None` where it failed.
    pub latency_ns: Option<i64>,
    /// What its table has besides.
    #[serde(default)]
    pub detail: AppDetail,
}

impl AppRow {
    /// The row of a transaction of a flow whose client is at this end.
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

/// Counts up when the meaning of run.json, summary.json or a table's column changes. Directories of
/// version 0 say none.
pub const SCHEMA_VERSION: u32 = 1;

/// summary.json. Field names are stable: others script against them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// sim or live.
    pub engine: String,
    /// The seed of the run.
    pub seed: u64,
    /// How much of the scenario's time passed.
    pub virtual_s: f64,
    /// How long the run took.
    pub wall_s: f64,
    /// TCP data packets sent by all flows, retransmissions included.
    pub data_packets: u64,
    /// One entry per TCP flow.
    pub flows: Vec<FlowSummary>,
    /// One entry per probe.
    pub probes: Vec<ProbeSummary>,
    /// One entry per flow of which the application keeps a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apps: Vec<AppSummary>,
    /// The forward direction of the link; drops are those of both directions.
    pub link: LinkSummary,
    /// The links of `[links]`, likewise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkSummary>,
    /// Handovers of the path by kind.
    pub handovers: BTreeMap<PathEventKind, u64>,
    /// What the run found out of the handover grid, where it was to: with all of its traffic at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind: Option<GridSummary>,
    /// How late packets left the link (live only).
    pub lateness_us: Option<Quantiles>,
    /// A probe's RTT above what the link scheduled (live only).
    pub rtt_excess_us: Option<Quantiles>,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<String>,
}

/// The handover grid as traffic shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GridSummary {
    /// Whether there is one.
    pub grid: bool,
    /// A moment of it, counted from 1970 in UTC modulo the period.
    pub offset_s: Option<f64>,
    /// The time between its moments.
    pub period_s: Option<f64>,
    /// At which share of its moments the evidence is seen, less what chance shows; 0 to 1.
    pub confidence: f64,
    /// How many arrivals were looked at.
    pub samples: usize,
    /// What was looked at: spacing or level shifts.
    pub evidence: String,
}

/// One TCP flow over its whole life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// The flow's id: its place in the scenario, counted from 0.
    pub id: u32,
    /// The congestion control.
    pub cc: String,
    /// Of a program's connection: between whom it was, such as "from:40312 -> to:5201".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Of a program's connection: its sender is not one of the run's ends, so that nothing is known of its window and
    /// its retransmissions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sender_unseen: bool,
    /// When it began.
    pub start_s: f64,
    /// When it ended.
    pub stop_s: f64,
    /// Payload that reached the receiver in order, over the flow's own time.
    pub goodput_bps: u64,
    /// Mean of the srtt samples.
    pub srtt_mean_us: Option<u64>,
    /// 95th percentile of the srtt samples.
    pub rtt_p95_us: Option<u64>,
    /// Mean RTT of the path without queueing, over the flow's own time.
    pub base_rtt_mean_us: u64,
    /// Mean of the cwnd samples.
    pub cwnd_mean_packets: f64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Packets of it that links marked (ECN); `None` where they do not say whose they are.
    pub marks: Option<u64>,
    /// Data segments sent, retransmissions included.
    pub sent_packets: u64,
    /// For finite transfers: the time from start until the last byte had arrived.
    pub completion_s: Option<f64>,
}

/// One probe over its whole life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSummary {
    /// The flow's id.
    pub id: u32,
    /// Packets sent.
    pub sent: u64,
    /// Packets that never came back.
    pub lost: u64,
    /// Median RTT.
    pub rtt_p50_us: Option<u64>,
    /// 95th percentile.
    pub rtt_p95_us: Option<u64>,
    /// 99th percentile.
    pub rtt_p99_us: Option<u64>,
}

/// One flow's application over its whole life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppSummary {
    /// The flow's id.
    pub id: u32,
    /// The application.
    pub kind: String,
    /// What was completed.
    pub completed: u64,
    /// What failed. What was not over when the run ended counts as neither.
    pub failed: u64,
    /// Median latency of what was completed.
    pub latency_p50_us: Option<u64>,
    /// 95th percentile.
    pub latency_p95_us: Option<u64>,
    /// 99th percentile.
    pub latency_p99_us: Option<u64>,
    /// Of a call: what its listeners think, and what became of its frames.
    #[serde(flatten)]
    pub call: Option<CallSummary>,
    /// Of a film: what its viewer saw.
    #[serde(flatten)]
    pub video: Option<VideoSummary>,
}

/// The bottleneck over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Wire bytes that left the queue over what the rate would have allowed.
    pub utilisation: f64,
    /// The same of the other direction; 0 in runs of before it was written.
    #[serde(default)]
    pub utilisation_back: f64,
    /// Mean of the backlog samples.
    pub backlog_mean_bytes: u64,
    /// Lost packets by reason, both directions.
    pub drops: Drops,
    /// Packets that the queues marked (ECN), both directions.
    pub marks: u64,
}

/// Three quantiles of a distribution in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
}
