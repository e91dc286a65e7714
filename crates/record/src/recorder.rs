//! From counters and events to rows, run.json and summary.json.

use std::collections::BTreeMap;
use std::mem;

use serde::Serialize;
use skyhop_app::{App, Dash, Detail, Kind as _, Transaction};
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::{LinkSchedule, LinkStats};
use skyhop_model::{AppTable, Counts, Direction, End};
use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;

use crate::app_detail::{AppDetail, CallAccount, VideoSummary};
use crate::counters::{ConnectionEnd, Ending, FlowEnd, FlowState};
use crate::planned::{grid_summary, handovers, planned_rows};
use crate::tally::Tally;
use crate::{
    AppRow, AppSummary, Begin, EventRow, FileError, FlowSample, FlowSummary, LinkSample,
    LinkSummary, Piece, ProbeRow, ProbeSummary, SCHEMA_VERSION, Sink, Summary,
};

/// How long after it happened an event may be reported: until then rows wait for what belongs
/// before them. A congestion control reports a drain when it has ended.
const LATEST: Duration = Duration::from_secs(30);

/// So many of those may wait. Of a run that loses more in that time, what is reported late stands behind later rows.
const MOST_WAITING: usize = 500_000;

/// Makes the rows, run.json and summary.json of a run.
///
/// Counters that engines hand over are cumulative; rows hold what has come since the last sample.
pub struct Recorder<'r> {
    experiment: &'r Experiment,
    engine: &'static str,
    sink: &'r mut dyn Sink,
    /// When the last sample was taken.
    sampled: Instant,
    flows: BTreeMap<u32, FlowAccount>,
    /// Forward and back of link 0, then of link 1 …
    links: Vec<LinkAccount>,
    probes: BTreeMap<u32, ProbeAccount>,
    /// What the experiment makes happen, the next one last.
    planned: Vec<EventRow>,
    /// What was measured, by its time and then as it was reported.
    measured: BTreeMap<(i64, u64), EventRow>,
    /// How many events were reported.
    reported: u64,
    /// Whether links say whose packets they mark.
    hears_of_marks: bool,
    probe_rows: Vec<ProbeRow>,
    /// By flow.
    apps: BTreeMap<u32, AppAccount>,
    app_rows: BTreeMap<AppTable, Vec<AppRow>>,
    ended: Vec<FlowSummary>,
    /// That of the flow that ended last, and until when.
    last_base_rtt: Option<(&'r FlowPlan, Instant, Duration)>,
    warnings: Vec<String>,
}

/// What is kept of a flow.
#[derive(Debug, Default)]
struct FlowAccount {
    /// Its last sample.
    sampled: Option<Instant>,
    received: Bytes,
    retransmits: u64,
    /// Its packets that were marked, and of them those that are in no row yet.
    marks: u64,
    new_marks: u64,
    samples: u64,
    cwnd_sum: i64,
    srtt_us: Tally,
}

/// What is kept of one direction of a link.
#[derive(Debug, Default)]
struct LinkAccount {
    last: LinkStats,
    samples: u64,
    backlog_sum: u64,
}

/// What is kept of a flow's application.
#[derive(Debug)]
struct AppAccount {
    table: AppTable,
    kind: &'static str,
    /// Where its client is.
    client: End,
    completed: u64,
    failed: u64,
    latency_us: Tally,
    call: CallAccount,
    /// Of a player: the film's chunks.
    video: Option<(Dash, Vec<ChunkRow>)>,
}

/// What is kept of a probe.
#[derive(Debug, Default)]
struct ProbeAccount {
    sent: u64,
    lost: u64,
    rtt_us: Tally,
}

impl<'r> Recorder<'r> {
    /// Begins to record a run of `experiment` by the engine called `engine`.
    ///
    /// # Errors
    /// The sink refuses.
    pub fn begin(
        experiment: &'r Experiment,
        engine: &'static str,
        sink: &'r mut dyn Sink,
    ) -> Result<Self, FileError> {
        let links: Vec<String> = experiment.links.iter().map(|link| link.name.clone()).collect();
        let mut planned = planned_rows(experiment);
        planned.reverse();
        let recorder = Self {
            experiment,
            engine,
            sampled: Instant::START,
            flows: BTreeMap::new(),
            links: links.iter().flat_map(|_| [(), ()]).map(|()| LinkAccount::default()).collect(),
            probes: probe_ids(&experiment.flows).map(|id| (id, ProbeAccount::default())).collect(),
            planned,
            measured: BTreeMap::new(),
            reported: 0,
            hears_of_marks: true,
            probe_rows: Vec::new(),
            apps: app_accounts(&experiment.flows).collect(),
            app_rows: BTreeMap::new(),
            ended: Vec::new(),
            last_base_rtt: None,
            warnings: Vec::new(),
            sink,
        };
        let engine = engine.to_owned();
        recorder.sink.take(Piece::Begin(Begin { schema: SCHEMA_VERSION, engine, links }))?;
        Ok(recorder)
    }

    /// Takes a sample: the flows that are sampled, by id, and both directions of all links, forward
    /// first.
    ///
    /// # Errors
    /// The sink refuses.
    pub fn sample(
        &mut self,
        at: Instant,
        flows: impl IntoIterator<Item = FlowState>,
        links: impl IntoIterator<Item = LinkStats>,
    ) -> Result<(), FileError> {
        let rows = flows.into_iter().filter_map(|flow| {
            let row = self.flows.entry(flow.id).or_default().sample(at, self.sampled, &flow)?;
            Some(FlowSample { marks: row.marks.filter(|_| self.hears_of_marks), ..row })
        });
        let flow_rows: Vec<FlowSample> = rows.collect();
        let directions = self.links.iter_mut().zip(links).enumerate();
        let link_rows: Vec<LinkSample> =
            directions.map(|(index, (link, stats))| link.sample(at, index, stats)).collect();
        self.sampled = at;
        self.pass_on(Piece::Flows, flow_rows)?;
        self.pass_on(Piece::Link, link_rows)?;
        let probes = mem::take(&mut self.probe_rows);
        self.pass_on(Piece::Probes, probes)?;
        self.pass_on_app_rows()?;
        let settled = Instant::from_nanos(at.as_nanos().saturating_sub(LATEST.as_nanos()));
        self.pass_events_until(settled)?;
        self.pass_surplus_events()
    }

    /// Takes what happened since the last sample of a run in which so much happens that it must not wait for the next
    /// one.
    ///
    /// # Errors
    /// The sink refuses.
    pub fn events(&mut self, rows: impl IntoIterator<Item = EventRow>) -> Result<(), FileError> {
        rows.into_iter().for_each(|row| self.event(row));
        self.pass_surplus_events()
    }

    /// Something happened that the experiment did not plan.
    pub fn event(&mut self, row: EventRow) {
        self.measured.insert((row.t_ns, self.reported), row);
        self.reported += 1;
    }

    /// Links do not say whose packets they mark.
    pub fn does_not_hear_of_marks(&mut self) {
        self.hears_of_marks = false;
    }

    /// A link marked a packet of a TCP flow.
    pub fn marked(&mut self, flow: u32) {
        let account = self.flows.entry(flow).or_default();
        account.marks += 1;
        account.new_marks += 1;
    }

    /// A flow's application has done something, or failed to; `scheduled`: how long the links alone took for
    /// it, there and back, where that is known.
    pub fn transaction(
        &mut self,
        flow: u32,
        transaction: &Transaction,
        scheduled: Option<Duration>,
    ) {
        if let Some(account) = self.apps.get_mut(&flow) {
            let row = AppRow::new((flow, account.client), transaction);
            let table = transaction.detail.table().unwrap_or(account.table);
            if table == account.table {
                account.add(transaction, &row);
            }
            self.app_rows.entry(table).or_default().push(row);
        } else if let Some(account) = self.probes.get_mut(&flow) {
            account.add(transaction);
            self.probe_rows.push(ProbeRow::new(flow, transaction, scheduled));
        }
    }

    /// A TCP flow has ended, or the run has; in the order of the flows' ids.
    pub fn flow_ended(&mut self, end: &FlowEnd) {
        let flows = &self.experiment.flows;
        let Ok(place) = flows.binary_search_by_key(&end.id, |plan| plan.id) else { return };
        let plan = &flows[place];
        let mut account = self.flows.remove(&end.id).unwrap_or_default();
        let base_rtt = self.base_rtt(plan, end.at);
        let cc = skyhop_model::cc_label(plan.cc().unwrap_or_default()).to_owned();
        self.ended.push(account.summary(cc, plan.start, base_rtt, end));
    }

    /// A flow's mean round trip without queueing, which many flows share: a long path takes a while to look through.
    fn base_rtt(&mut self, plan: &'r FlowPlan, end: Instant) -> Duration {
        let same = |(known, until, _): &(&FlowPlan, Instant, Duration)| {
            *until == end
                && known.start == plan.start
                && known.extra_rtt == plan.extra_rtt
                && known.routes == plan.routes
        };
        if let Some((_, _, rtt)) = self.last_base_rtt.filter(same) {
            return rtt;
        }
        let rtt = self.experiment.mean_base_rtt(plan, plan.start, end);
        self.last_base_rtt = Some((plan, end, rtt));
        rtt
    }

    /// One direction of a program's connection has ended, or the run has; in the order of their ids, which are none
    /// of the plan's flows.
    pub fn connection_ended(&mut self, connection: ConnectionEnd) {
        let ConnectionEnd { end, start, cc, name, sender_seen } = connection;
        let mut account = self.flows.remove(&end.id).unwrap_or_default();
        let base_rtt = self.experiment.path().mean_base_rtt(start, end.at);
        let summary = account.summary(cc, start, base_rtt, &end);
        let connection = Some(name);
        self.ended.push(FlowSummary { connection, sender_unseen: !sender_seen, ..summary });
    }

    /// Something that a reader must know before believing the numbers.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Ends the recording and returns the summary.
    ///
    /// # Errors
    /// The sink refuses.
    pub fn finish<Own: Serialize>(mut self, ending: Ending<'_, Own>) -> Result<Summary, FileError> {
        self.planned.retain(|row| row.t_ns < ending.at.as_nanos() as i64);
        self.pass_events_until(Instant::NEVER)?;
        let probes = mem::take(&mut self.probe_rows);
        self.pass_on(Piece::Probes, probes)?;
        self.pass_on_app_rows()?;
        let summary = self.summary(&ending);
        self.sink.take(Piece::Run(self.run_json(&ending)))?;
        self.sink.take(Piece::Summary(Box::new(summary.clone())))?;
        Ok(summary)
    }

    fn pass_on<R>(&mut self, piece: fn(Vec<R>) -> Piece, rows: Vec<R>) -> Result<(), FileError> {
        if rows.is_empty() { Ok(()) } else { self.sink.take(piece(rows)) }
    }

    fn pass_on_app_rows(&mut self) -> Result<(), FileError> {
        let tables = mem::take(&mut self.app_rows).into_iter();
        let mut pieces = tables.map(|(table, rows)| Piece::App(table, rows));
        pieces.try_for_each(|piece| self.sink.take(piece))
    }

    /// Passes on the events before `until`; of those at the same time the planned ones come first.
    fn pass_events_until(&mut self, until: Instant) -> Result<(), FileError> {
        let until_ns = i64::try_from(until.as_nanos()).unwrap_or(i64::MAX);
        let later = self.planned.partition_point(|row| row.t_ns >= until_ns);
        let mut rows: Vec<EventRow> = self.planned.split_off(later);
        rows.reverse();
        if self.measured.first_key_value().is_some_and(|((t_ns, _), _)| *t_ns < until_ns) {
            let waiting = self.measured.split_off(&(until_ns, 0));
            rows.extend(mem::replace(&mut self.measured, waiting).into_values());
            rows.sort_by_key(|row| row.t_ns);
        }
        self.pass_on(Piece::Events, rows)
    }

    /// Passes on the earlier half of the events where too many wait.
    fn pass_surplus_events(&mut self) -> Result<(), FileError> {
        if self.measured.len() <= MOST_WAITING {
            return Ok(());
        }
        let middle = self.measured.keys().nth(MOST_WAITING / 2).map_or(0, |(t_ns, _)| *t_ns);
        self.pass_events_until(Instant::from_nanos(middle.unsigned_abs()))
    }

    fn summary<Own>(&mut self, ending: &Ending<'_, Own>) -> Summary {
        let mut flows = mem::take(&mut self.ended);
        if !self.hears_of_marks {
            flows.iter_mut().for_each(|flow| flow.marks = None);
        }
        let path_link = self.experiment.path_link();
        let others = (0..).zip(&self.experiment.links).filter(|(number, _)| *number != path_link);
        Summary {
            schema: SCHEMA_VERSION,
            engine: self.engine.to_owned(),
            seed: self.experiment.seed,
            virtual_s: ending.at.saturating_since(Instant::START).as_secs_f64(),
            wall_s: ending.wall_s,
            data_packets: flows.iter().map(|flow| flow.sent_packets).sum(),
            flows,
            probes: self.probes.iter_mut().map(|(id, probe)| probe.summary(*id)).collect(),
            apps: self.apps.iter_mut().map(|(id, app)| app.summary(*id)).collect(),
            link: self.link_summary(path_link, ending.at),
            links: others
                .map(|(number, link)| (link.name.clone(), self.link_summary(number, ending.at)))
                .collect(),
            handovers: handovers(self.experiment.path(), ending.at),
            blind: ending.grid.map(grid_summary),
            lateness_us: ending.lateness_us,
            rtt_excess_us: ending.rtt_excess_us,
            warnings: mem::take(&mut self.warnings),
        }
    }

    /// The forward direction of a link, with the drops of both.
    fn link_summary(&self, link: u16, end: Instant) -> LinkSummary {
        let plan = &self.experiment.links[usize::from(link)];
        let [forward, back] = [0, 1].map(|way| &self.links[2 * usize::from(link) + way]);
        let used = |account: &LinkAccount, schedule: &LinkSchedule| {
            let allowed_bytes = schedule.bytes_until(end);
            let share = account.last.transmitted_bytes.as_u64() as f64 / allowed_bytes;
            if allowed_bytes > 0.0 { share } else { 0.0 }
        };
        LinkSummary {
            utilisation: used(forward, &plan.forward.schedule),
            utilisation_back: used(back, &plan.back.schedule),
            backlog_mean_bytes: forward.backlog_sum.checked_div(forward.samples).unwrap_or(0),
            drops: forward.last.drops.plus(back.last.drops),
            marks: forward.last.marks + back.last.marks,
        }
    }

    /// run.json: what is needed to run it again, and what the engine says of itself.
    fn run_json<Own: Serialize>(&self, ending: &Ending<'_, Own>) -> serde_json::Value {
        #[derive(Serialize)]
        struct RunInfo<'i, Own> {
            schema: u32,
            engine: &'static str,
            version: &'static str,
            kernel: Option<&'i str>,
            seed: u64,
            wall_s: f64,
            interrupted: bool,
            #[serde(flatten)]
            own: &'i Own,
            /// SHA-256 by whole name.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            cc_files: &'i BTreeMap<String, String>,
            scenario: &'i serde_json::Value,
        }
        let info = RunInfo {
            schema: SCHEMA_VERSION,
            engine: self.engine,
            version: env!("CARGO_PKG_VERSION"),
            kernel: ending.kernel.as_deref(),
            seed: self.experiment.seed,
            wall_s: ending.wall_s,
            interrupted: ending.interrupted,
            own: &ending.own,
            cc_files: &self.experiment.cc_files,
            scenario: &self.experiment.scenario,
        };
        serde_json::to_value(info).expect("what engines say of themselves has text keys")
    }
}

/// An account for each flow whose application keeps a table.
fn app_accounts(flows: &[FlowPlan]) -> impl Iterator<Item = (u32, AppAccount)> {
    flows.iter().filter_map(|plan| {
        let app = plan.traffic.app();
        let (kind, latency_us) = (app.name(), Tally::default());
        let (table, client, call) = (app.table()?, plan.from, CallAccount::default());
        let video = if let App::Dash(dash) = app { Some((dash.clone(), Vec::new())) } else { None };
        let (completed, failed) = (0, 0);
        Some((
            plan.id,
            AppAccount { table, kind, client, completed, failed, latency_us, call, video },
        ))
    })
}

fn probe_ids(flows: &[FlowPlan]) -> impl Iterator<Item = u32> {
    flows.iter().filter(|plan| matches!(plan.traffic.app(), App::Probe(_))).map(|plan| plan.id)
}

impl FlowAccount {
    /// The row of a sample; `before` is when the run was sampled last.
    fn sample(&mut self, at: Instant, before: Instant, flow: &FlowState) -> Option<FlowSample> {
        let since = self.sampled.unwrap_or(before.max(flow.since));
        let interval = flow.until.saturating_since(since);
        if interval == Duration::ZERO {
            return None;
        }
        // A connection that was lost and made again counts from 0.
        let received = flow.received.as_u64().saturating_sub(self.received.as_u64());
        let row = FlowSample {
            t_ns: at.as_nanos() as i64,
            flow: flow.id as i32,
            goodput_bps: (received as f64 * 8.0 / interval.as_secs_f64()).round() as i64,
            cwnd_packets: flow.cwnd_packets.into(),
            ssthresh_packets: flow.ssthresh_packets.map(i64::from),
            srtt_us: flow.srtt_us.map(|us| us as i64),
            inflight_packets: flow.inflight_packets.into(),
            retransmits: flow.retransmits.saturating_sub(self.retransmits) as i64,
            marks: Some(mem::take(&mut self.new_marks) as i64),
            pacing_rate_bps: flow.pacing_rate_bps.map(|bps| bps as i64),
            state: flow.state,
        };
        (self.sampled, self.received, self.retransmits) =
            (Some(at), flow.received, flow.retransmits);
        self.samples += 1;
        self.cwnd_sum += row.cwnd_packets;
        flow.srtt_us.into_iter().for_each(|us| self.srtt_us.add(us));
        Some(row)
    }

    fn summary(
        &mut self,
        cc: String,
        start: Instant,
        base_rtt: Duration,
        end: &FlowEnd,
    ) -> FlowSummary {
        let lived = end.at.saturating_since(start);
        let cwnd_mean = self.cwnd_sum as f64 / self.samples as f64;
        FlowSummary {
            id: end.id,
            cc,
            connection: None,
            sender_unseen: false,
            start_s: start.as_secs_f64(),
            stop_s: end.at.as_secs_f64(),
            goodput_bps: per_second(end.received, lived),
            srtt_mean_us: self.srtt_us.mean(),
            rtt_p95_us: self.srtt_us.percentile(95),
            base_rtt_mean_us: base_rtt.as_micros(),
            cwnd_mean_packets: if self.samples == 0 { 0.0 } else { cwnd_mean },
            retransmits: end.retransmits,
            marks: Some(self.marks),
            sent_packets: end.sent_packets,
            completion_s: end.completed.map(|at| at.saturating_since(start).as_secs_f64()),
        }
    }
}

fn per_second(bytes: Bytes, time: Duration) -> u64 {
    if time == Duration::ZERO {
        0
    } else {
        (bytes.as_u64() as f64 * 8.0 / time.as_secs_f64()).round() as u64
    }
}

impl LinkAccount {
    /// The row of a sample of the direction with this index.
    fn sample(&mut self, at: Instant, index: usize, now: LinkStats) -> LinkSample {
        let before = mem::replace(&mut self.last, now);
        self.samples += 1;
        self.backlog_sum += now.backlog_bytes.as_u64();
        LinkSample {
            t_ns: at.as_nanos() as i64,
            link: (index / 2) as u16,
            direction: Direction::ALL[index % 2],
            backlog_bytes: now.backlog_bytes.as_u64() as i64,
            backlog_packets: now.backlog_packets as i64,
            delivered_bytes: (now.delivered_bytes - before.delivered_bytes).as_u64() as i64,
            drops: now.drops.since(before.drops),
            marks: (now.marks - before.marks) as i64,
        }
    }
}

impl AppAccount {
    fn add(&mut self, transaction: &Transaction, row: &AppRow) {
        if let AppDetail::Call(window) = &row.detail {
            self.call.add(window);
        }
        match transaction.took {
            Some(took) => {
                self.completed += 1;
                self.latency_us.add(took.as_micros());
            }
            None => self.failed += 1,
        }
        if let (Some((_, chunks)), Detail::Chunk(row)) = (&mut self.video, &transaction.detail) {
            chunks.push(*row);
        }
    }

    fn summary(&mut self, id: u32) -> AppSummary {
        AppSummary {
            id,
            kind: self.kind.to_owned(),
            completed: self.completed,
            failed: self.failed,
            latency_p50_us: self.latency_us.percentile(50),
            latency_p95_us: self.latency_us.percentile(95),
            latency_p99_us: self.latency_us.percentile(99),
            call: self.call.summary(),
            video: self.video.as_ref().map(|(dash, chunks)| VideoSummary::of(dash, chunks)),
        }
    }
}

impl ProbeAccount {
    fn add(&mut self, packet: &Transaction) {
        self.sent += 1;
        match packet.took {
            Some(rtt) => self.rtt_us.add(rtt.as_micros()),
            None => self.lost += 1,
        }
    }

    fn summary(&mut self, id: u32) -> ProbeSummary {
        ProbeSummary {
            id,
            sent: self.sent,
            lost: self.lost,
            rtt_p50_us: self.rtt_us.percentile(50),
            rtt_p95_us: self.rtt_us.percentile(95),
            rtt_p99_us: self.rtt_us.percentile(99),
        }
    }
}
