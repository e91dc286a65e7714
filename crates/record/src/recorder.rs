//! Recorder: turns an engine's counters and events into rows, run.json and summary.json.

use std::collections::BTreeMap;
use std::mem;

use serde::Serialize;
use skyhop_app::{App, AppKind as _, Dash, Detail, Transaction};
use skyhop_experiment::{Experiment, FlowPlan, LinkPlan, NetworkLink, NetworkPlan, QueueSize};
use skyhop_link::{LinkSchedule, LinkStats};
use skyhop_model::{AppTable, Counts, Direction, End, without_numbers};
use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;
use skyhop_wire::CapturedPacket;

use crate::app_detail::{AppDetail, CallAccount, VideoSummary};
use crate::counters::{AckRtts, ConnectionEnd, FlowEnd, FlowState, RunConclusion};
use crate::planned::{grid_summary, handovers, planned_rows};
use crate::tally::Tally;
use crate::{
    AppRow, AppSummary, EventRow, FileError, FlowSample, FlowSummary, LinkSample, LinkSummary,
    Piece, ProbeRow, ProbeSummary, RouteRow, RunHeader, SCHEMA_VERSION, Sink, Summary,
};

/// Longest delay between an event and its report. Rows are written only after that time, so that events
/// reported later can be sorted before them. For example, a congestion control reports a drain when the
/// drain has ended.
const LONGEST_REPORT_DELAY: Duration = Duration::from_secs(30);

/// Largest number of event rows that wait to be written. In a run with more losses than that, rows of
/// late reports come after rows with later times.
const MOST_WAITING: usize = 500_000;

/// Producer of a run's rows, run.json and summary.json.
///
/// The counters that engines pass are cumulative; a row contains the difference from the last sample.
pub struct Recorder<'r> {
    experiment: &'r Experiment,
    engine: &'static str,
    sink: &'r mut dyn Sink,
    /// Time of the last sample.
    sampled: Instant,
    flows: BTreeMap<u32, FlowAccount>,
    /// Running totals: link 0 forward, link 0 back, link 1 forward, and so on.
    links: Vec<LinkAccount>,
    probes: BTreeMap<u32, ProbeAccount>,
    /// Events that the experiment schedules, in reverse order of time: the next one is at the end.
    planned: Vec<EventRow>,
    /// Events that engines have reported and that are not written yet, by time and then by order of report.
    measured: BTreeMap<(i64, u64), EventRow>,
    /// Number of events reported so far.
    reported: u64,
    /// Whether links report which flow's packets they mark.
    counts_marks: bool,
    probe_rows: Vec<ProbeRow>,
    /// Accounts of applications, by flow.
    apps: BTreeMap<u32, AppAccount>,
    app_rows: BTreeMap<AppTable, Vec<AppRow>>,
    ended: Vec<FlowSummary>,
    /// Plan, end and mean base RTT of the flow that ended last.
    last_base_rtt: Option<(&'r FlowPlan, Instant, Duration)>,
    warnings: Vec<String>,
}

/// Running totals of a flow.
#[derive(Debug, Default)]
struct FlowAccount {
    /// Time of the flow's last sample.
    sampled: Option<Instant>,
    received: Bytes,
    retransmits: u64,
    ack_rtts: AckRtts,
    /// ECN-marked packets of the flow: in total (`marks`), and since the flow's last row (`new_marks`).
    marks: u64,
    new_marks: u64,
    samples: u64,
    cwnd_sum: i64,
    srtt_us: Tally,
}

/// Running totals of one direction of a link.
#[derive(Debug, Default)]
struct LinkAccount {
    last: LinkStats,
    samples: u64,
    backlog_sum: u64,
    /// Bytes of the background that the link has carried.
    background_bytes: u64,
}

/// Running totals of a flow's application.
#[derive(Debug)]
struct AppAccount {
    table: AppTable,
    kind: &'static str,
    /// End of the path at which the client is.
    client: End,
    completed: u64,
    failed: u64,
    latency_us: Tally,
    call: CallAccount,
    /// Keys of a video player, and the chunks played so far; `None` for other applications.
    video: Option<(Dash, Vec<ChunkRow>)>,
}

/// Running totals of a probe.
#[derive(Debug, Default)]
struct ProbeAccount {
    sent: u64,
    lost: u64,
    rtt_us: Tally,
}

impl<'r> Recorder<'r> {
    /// Start the record of a run of `experiment` by the engine called `engine`.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn begin(
        experiment: &'r Experiment,
        engine: &'static str,
        sink: &'r mut dyn Sink,
    ) -> Result<Self, FileError> {
        let links = experiment.link_names();
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
            counts_marks: true,
            probe_rows: Vec::new(),
            apps: app_accounts(&experiment.flows).collect(),
            app_rows: BTreeMap::new(),
            ended: Vec::new(),
            last_base_rtt: None,
            warnings: Vec::new(),
            sink,
        };
        let engine = engine.to_owned();
        let sites = experiment.network.iter().flat_map(|network| &network.request.sites);
        let sites = sites.map(|site| site.name.clone()).collect();
        let header = RunHeader { schema: SCHEMA_VERSION, engine, links, sites };
        recorder.sink.write(Piece::Begin(header))?;
        Ok(recorder)
    }

    /// Record a sample: the states of the flows, ordered by id, and the counters of all links, for
    /// each link forward before back.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn sample(
        &mut self,
        at: Instant,
        flows: impl IntoIterator<Item = FlowState>,
        links: impl IntoIterator<Item = LinkStats>,
    ) -> Result<(), FileError> {
        let rows = flows.into_iter().filter_map(|flow| {
            let row = self.flows.entry(flow.id).or_default().sample(at, self.sampled, &flow)?;
            Some(FlowSample { marks: row.marks.filter(|_| self.counts_marks), ..row })
        });
        let flow_rows: Vec<FlowSample> = rows.collect();
        let directions = self.links.iter_mut().zip(links).enumerate();
        let rows = directions.map(|(index, (link, stats))| link.sample(at, index, stats));
        // A network has thousands of links, of which few carry anything.
        let is_network = self.experiment.network.is_some();
        let link_rows: Vec<LinkSample> =
            rows.filter(|row| !is_network || row.has_content()).collect();
        self.sampled = at;
        self.write_rows(Piece::Flows, flow_rows)?;
        self.write_rows(Piece::Link, link_rows)?;
        let probes = mem::take(&mut self.probe_rows);
        self.write_rows(Piece::Probes, probes)?;
        self.write_app_rows()?;
        let settled =
            Instant::from_nanos(at.as_nanos().saturating_sub(LONGEST_REPORT_DELAY.as_nanos()));
        self.write_events_until(settled)?;
        self.write_surplus_events()
    }

    /// Record routes of a network, ordered by time.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn routes(&mut self, rows: Vec<RouteRow>) -> Result<(), FileError> {
        self.write_rows(Piece::Routes, rows)
    }

    /// Record events between two samples, for runs with so many events that they must not wait for
    /// the next sample.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn events(&mut self, rows: impl IntoIterator<Item = EventRow>) -> Result<(), FileError> {
        rows.into_iter().for_each(|row| self.event(row));
        self.write_surplus_events()
    }

    /// Hand captured packets to the sink, in the order of time.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn packets(&mut self, packets: Vec<CapturedPacket>) -> Result<(), FileError> {
        self.write_rows(Piece::Packets, packets)
    }

    /// Record an event that the experiment did not schedule.
    pub fn event(&mut self, row: EventRow) {
        self.measured.insert((row.t_ns, self.reported), row);
        self.reported += 1;
    }

    /// Disable the counts of ECN marks per flow, for engines whose links do not report the flow of
    /// a marked packet.
    pub fn disable_mark_counts(&mut self) {
        self.counts_marks = false;
    }

    /// Count a packet of a TCP flow that a link marked (ECN).
    pub fn count_mark(&mut self, flow: u32) {
        let account = self.flows.entry(flow).or_default();
        account.marks += 1;
        account.new_marks += 1;
    }

    /// Record a completed or failed transaction of a flow's application. `scheduled` is the time that its
    /// packets spent in the links alone, in both directions, if known.
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

    /// Record the counters of a TCP flow at its end, or at the run's end. Calls must be in the
    /// order of the flows' ids.
    pub fn flow_ended(&mut self, end: &FlowEnd) {
        let flows = &self.experiment.flows;
        let Ok(place) = flows.binary_search_by_key(&end.id, |plan| plan.id) else { return };
        let plan = &flows[place];
        let mut account = self.flows.remove(&end.id).unwrap_or_default();
        let base_rtt = end.base_rtt.unwrap_or_else(|| self.base_rtt(plan, end.at));
        let cc = skyhop_model::cc_label(plan.cc().unwrap_or_default()).to_owned();
        self.ended.push(account.summary(cc, plan.start, base_rtt, end));
    }

    /// Mean base RTT of a flow over its lifetime. The last result is cached, because many flows have the
    /// same lifetime and route, and a long path takes time to scan.
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

    /// Record the counters of one direction of a program's connection at its end, or at the run's end. Calls
    /// must be in the order of the ids, which must differ from those of the experiment's flows.
    pub fn connection_ended(&mut self, connection: ConnectionEnd) {
        let ConnectionEnd { end, start, cc, name, sender_observed } = connection;
        let mut account = self.flows.remove(&end.id).unwrap_or_default();
        let base_rtt = self.experiment.path().mean_base_rtt(start, end.at);
        let summary = account.summary(cc, start, base_rtt, &end);
        let connection = Some(name);
        self.ended.push(FlowSummary { connection, sender_unseen: !sender_observed, ..summary });
    }

    /// Add a warning that readers of the results need to know.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(without_numbers(&warning));
    }

    /// Finish the record and return the summary.
    ///
    /// # Errors
    /// The sink cannot write.
    pub fn finish<Own: Serialize>(
        mut self,
        conclusion: RunConclusion<'_, Own>,
    ) -> Result<Summary, FileError> {
        self.planned.retain(|row| row.t_ns < conclusion.at.as_nanos() as i64);
        self.write_events_until(Instant::NEVER)?;
        let probes = mem::take(&mut self.probe_rows);
        self.write_rows(Piece::Probes, probes)?;
        self.write_app_rows()?;
        let summary = self.summary(&conclusion);
        self.sink.write(Piece::Run(self.run_json(&conclusion)))?;
        self.sink.write(Piece::Summary(Box::new(summary.clone())))?;
        Ok(summary)
    }

    fn write_rows<R>(&mut self, piece: fn(Vec<R>) -> Piece, rows: Vec<R>) -> Result<(), FileError> {
        if rows.is_empty() { Ok(()) } else { self.sink.write(piece(rows)) }
    }

    fn write_app_rows(&mut self) -> Result<(), FileError> {
        let tables = mem::take(&mut self.app_rows).into_iter();
        let mut pieces = tables.map(|(table, rows)| Piece::App(table, rows));
        pieces.try_for_each(|piece| self.sink.write(piece))
    }

    /// Write the events before `until`. Of events at the same time, scheduled ones come first.
    fn write_events_until(&mut self, until: Instant) -> Result<(), FileError> {
        let until_ns = i64::try_from(until.as_nanos()).unwrap_or(i64::MAX);
        let later = self.planned.partition_point(|row| row.t_ns >= until_ns);
        let mut rows: Vec<EventRow> = self.planned.split_off(later);
        rows.reverse();
        if self.measured.first_key_value().is_some_and(|((t_ns, _), _)| *t_ns < until_ns) {
            let waiting = self.measured.split_off(&(until_ns, 0));
            rows.extend(mem::replace(&mut self.measured, waiting).into_values());
            rows.sort_by_key(|row| row.t_ns);
        }
        self.write_rows(Piece::Events, rows)
    }

    /// Write the earlier half of the waiting events, if there are too many.
    fn write_surplus_events(&mut self) -> Result<(), FileError> {
        if self.measured.len() <= MOST_WAITING {
            return Ok(());
        }
        let middle = self.measured.keys().nth(MOST_WAITING / 2).map_or(0, |(t_ns, _)| *t_ns);
        self.write_events_until(Instant::from_nanos(middle.unsigned_abs()))
    }

    fn summary<Own>(&mut self, conclusion: &RunConclusion<'_, Own>) -> Summary {
        let mut flows = mem::take(&mut self.ended);
        if !self.counts_marks {
            flows.iter_mut().for_each(|flow| flow.marks = None);
        }
        Summary {
            schema: SCHEMA_VERSION,
            engine: self.engine.to_owned(),
            seed: self.experiment.seed,
            virtual_s: conclusion.at.saturating_since(Instant::START).as_secs_f64(),
            wall_s: conclusion.wall_s,
            data_packets: flows.iter().map(|flow| flow.sent_packets).sum(),
            flows,
            probes: self.probes.iter_mut().map(|(id, probe)| probe.summary(*id)).collect(),
            apps: self.apps.iter_mut().map(|(id, app)| app.summary(*id)).collect(),
            link: self.path_summary(conclusion.at),
            links: self.other_summaries(conclusion.at),
            handovers: handovers(self.experiment.path(), conclusion.at),
            blind: conclusion.grid.map(grid_summary),
            lateness_us: conclusion.lateness_us,
            rtt_excess_us: conclusion.rtt_excess_us,
            warnings: mem::take(&mut self.warnings),
        }
    }

    /// Summary of the path's link; without numbers in a network.
    fn path_summary(&self, end: Instant) -> LinkSummary {
        let path_link = usize::from(self.experiment.path_link());
        self.experiment.links.get(path_link).map_or_else(LinkSummary::default, |plan| {
            let schedules = [&plan.forward.schedule, &plan.back.schedule];
            self.link_summary(path_link as u16, (schedules, &plan.queues), end)
        })
    }

    /// Summaries of the other links, by name; in a network, of those that have carried something.
    fn other_summaries(&self, end: Instant) -> BTreeMap<String, LinkSummary> {
        if let Some(network) = &self.experiment.network {
            let links = (0..).zip(network.links()).zip(network.link_names());
            let summary = |((number, link), name): ((u16, NetworkLink), String)| {
                let queues = [0, 1].map(|_| network.hop(link).queue.clone());
                let schedules = [network.schedule(link); 2];
                (name, self.link_summary(number, (schedules, &queues), end))
            };
            let carried = links.filter(|((number, _), _)| self.has_carried(*number));
            return carried.map(summary).collect();
        }
        let path_link = self.experiment.path_link();
        let others = (0..).zip(&self.experiment.links).filter(|(number, _)| *number != path_link);
        let summary = |(number, link): (u16, &LinkPlan)| {
            let schedules = [&link.forward.schedule, &link.back.schedule];
            (link.name.clone(), self.link_summary(number, (schedules, &link.queues), end))
        };
        others.map(summary).collect()
    }

    /// Whether a packet or a background has entered a link.
    fn has_carried(&self, link: u16) -> bool {
        let both = &self.links[2 * usize::from(link)..][..2];
        both.iter().any(|account| {
            account.last.enqueued_packets > 0
                || account.last.drops.total() > 0
                || account.background_bytes > 0
        })
    }

    /// Summary of a link: utilisation and backlog, with the drops and marks of both directions.
    fn link_summary(
        &self,
        link: u16,
        (schedules, queues): ([&LinkSchedule; 2], &[QueueSize; 2]),
        end: Instant,
    ) -> LinkSummary {
        let [forward, back] = [0, 1].map(|way| &self.links[2 * usize::from(link) + way]);
        let used = |account: &LinkAccount, schedule: &LinkSchedule| {
            let allowed_bytes = schedule.bytes_until(end);
            let used_bytes = account.last.transmitted_bytes.as_u64() + account.background_bytes;
            let share = used_bytes as f64 / allowed_bytes;
            if allowed_bytes > 0.0 { share } else { 0.0 }
        };
        let [queue, queue_back] = queues.clone();
        LinkSummary {
            queue,
            queue_back,
            utilisation: used(forward, schedules[0]),
            utilisation_back: used(back, schedules[1]),
            backlog_mean_bytes: forward.backlog_sum.checked_div(forward.samples).unwrap_or(0),
            drops: forward.last.drops.plus(back.last.drops),
            marks: forward.last.marks + back.last.marks,
        }
    }

    /// Content of run.json: all data needed to repeat the run, and the engine's own entries.
    fn run_json<Own: Serialize>(&self, conclusion: &RunConclusion<'_, Own>) -> serde_json::Value {
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
            /// SHA-256 by absolute file name.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            cc_files: &'i BTreeMap<String, String>,
            /// Sizes of the queues, forward and back, by link; in a network, by kind of link.
            queues: BTreeMap<&'i str, [QueueSize; 2]>,
            scenario: &'i serde_json::Value,
        }
        let Experiment { links, network, .. } = self.experiment;
        let of_links = links.iter().map(|link| (&link.name[..], link.queues.clone()));
        let kinds = network.iter().flat_map(NetworkPlan::kinds);
        let of_kinds = kinds.map(|(name, hop)| (name, [hop.queue.clone(), hop.queue.clone()]));
        let info = RunInfo {
            schema: SCHEMA_VERSION,
            engine: self.engine,
            version: env!("CARGO_PKG_VERSION"),
            kernel: conclusion.kernel.as_deref(),
            seed: self.experiment.seed,
            wall_s: conclusion.wall_s,
            interrupted: conclusion.interrupted,
            own: &conclusion.own,
            cc_files: &self.experiment.cc_files,
            queues: of_links.chain(of_kinds).collect(),
            scenario: &self.experiment.scenario,
        };
        serde_json::to_value(info).expect("entries of engines have text keys")
    }
}

/// Create an account for each flow whose application has a table.
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
    /// Row of a flow's sample; `before` is the time of the run's previous sample.
    fn sample(&mut self, at: Instant, before: Instant, flow: &FlowState) -> Option<FlowSample> {
        let since = self.sampled.unwrap_or(before.max(flow.since));
        let interval = flow.until.saturating_since(since);
        if interval == Duration::ZERO {
            return None;
        }
        // The counters of a connection that was lost and opened again start at 0.
        let received = flow.received.as_u64().saturating_sub(self.received.as_u64());
        let row = FlowSample {
            t_ns: at.as_nanos() as i64,
            flow: flow.id as i32,
            goodput_bps: (received as f64 * 8.0 / interval.as_secs_f64()).round() as i64,
            cwnd_packets: flow.cwnd_packets.into(),
            ssthresh_packets: flow.ssthresh_packets.map(i64::from),
            srtt_us: flow.srtt_us.map(|us| us as i64),
            ack_rtt_us: flow.ack_rtts.and_then(|total| total.mean_us_since(self.ack_rtts)),
            inflight_packets: flow.inflight_packets.into(),
            retransmits: flow.retransmits.saturating_sub(self.retransmits) as i64,
            marks: Some(mem::take(&mut self.new_marks) as i64),
            pacing_rate_bps: flow.pacing_rate_bps.map(|bps| bps as i64),
            state: flow.state,
        };
        (self.sampled, self.received, self.retransmits) =
            (Some(at), flow.received, flow.retransmits);
        self.ack_rtts = flow.ack_rtts.unwrap_or_default();
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
    /// Count the background that the link has carried since the last sample. A link knows what it has lost when the next
    /// packet arrives, so that the loss of one interval may be found in the next.
    fn carry_background(&mut self, now: LinkStats) -> i64 {
        let [came, missing] =
            [now.background_bytes, now.background_missing_bytes].map(Bytes::as_u64);
        let carried = came.saturating_sub(missing).max(self.background_bytes);
        let before = mem::replace(&mut self.background_bytes, carried);
        (carried - before) as i64
    }

    /// Row of a sample of the direction with this index.
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
            background_bytes: self.carry_background(now),
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
