//! What is measured on the way, and the run's results at the end.

use skyhop_link::Drop;
use skyhop_model::{Counts, Direction, Drops, ETHERNET_HEADER, EventKind};
use skyhop_record::{
    EventRow, FlowSample, FlowTotals, LinkSample, LinkSummary, ProbeRow, RunData, Summary,
    flow_summary, link_summary, probe_summary,
};
use skyhop_scenario::Experiment;
use skyhop_units::{Bytes, Duration, Instant};

use crate::flow::{Connection, Flow, InFlight, Kind, ProbeFlow};
use crate::network::Network;

/// Takes samples at even times.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    end: Instant,
    flow_rows: Vec<FlowSample>,
    link_rows: Vec<LinkSample>,
    /// The network's flows in the order of their ids.
    by_id: Vec<usize>,
    /// Of each flow at its last sample: bytes received and segments retransmitted.
    last_flows: Vec<(u64, u64)>,
    /// Of each direction of each link at its last sample.
    last_links: Vec<(u64, Drops)>,
}

impl Sampler {
    pub(crate) fn new(experiment: &Experiment, network: &Network) -> Self {
        let mut by_id: Vec<usize> = (0..network.flows.len()).collect();
        by_id.sort_by_key(|index| network.flows[*index].plan.id);
        Self {
            by_id,
            every: experiment.sample,
            next: Instant::START + experiment.sample,
            end: Instant::START + experiment.duration,
            flow_rows: Vec::new(),
            link_rows: Vec::new(),
            last_flows: vec![(0, 0); experiment.flows.len()],
            last_links: vec![Default::default(); network.links.len()],
        }
    }

    /// When the next sample is due; the run's end is one.
    pub(crate) fn next(&self) -> Instant {
        self.next.min(self.end)
    }

    /// Takes the sample that is due, of a network that has settled.
    pub(crate) fn sample(&mut self, network: &Network) {
        let now = self.next();
        let interval = self.every.saturating_sub(self.next.saturating_since(now));
        for (index, last) in self.by_id.iter().zip(&mut self.last_flows) {
            let flow = &network.flows[*index];
            if let Kind::Tcp(connection) = &flow.kind {
                self.flow_rows.extend(flow_row(flow, connection, now, interval, last));
            }
        }
        for (index, last) in self.last_links.iter_mut().enumerate() {
            self.link_rows.push(link_row(network, index, now, last));
        }
        self.next += self.every;
    }

    /// Whether the run's last sample has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.next >= self.end + self.every
    }

    /// The results of the whole run.
    pub(crate) fn conclude(self, experiment: &Experiment, network: Network) -> RunData {
        let (mut flows, mut probes, mut probe_rows) = (Vec::new(), Vec::new(), Vec::new());
        for flow in self.by_id.iter().map(|index| &network.flows[*index]) {
            match &flow.kind {
                Kind::Tcp(connection) if connection.started => {
                    let totals = totals(flow, connection, experiment, self.end);
                    flows.push(flow_summary(totals, &self.flow_rows));
                }
                Kind::Tcp(_) => {}
                Kind::Probe(probe) => {
                    let rows = probe_rows_of(flow, probe, self.end);
                    probes.push(probe_summary(flow.plan.id, &rows));
                    probe_rows.extend(rows);
                }
            }
        }
        let links = |link: u16| self.link_summary(link, experiment, &network);
        let names = experiment.more_links.iter().map(|link| link.name.clone());
        let more_links: Vec<String> = names.collect();
        let summary = Summary {
            engine: "sim".to_owned(),
            seed: experiment.seed,
            virtual_s: experiment.duration.as_secs_f64(),
            data_packets: flows.iter().map(|flow| flow.sent_packets).sum(),
            flows,
            probes,
            link: links(0),
            links: (1..).zip(&more_links).map(|(n, name)| (name.clone(), links(n))).collect(),
            handovers: experiment.handovers(experiment.duration),
            blind: network.signal.found(),
            ..Summary::default()
        };
        RunData {
            more_links,
            flows: self.flow_rows,
            link: self.link_rows,
            events: experiment.event_rows(network.events, experiment.duration),
            probes: probe_rows,
            summary,
        }
    }

    fn link_summary(&self, link: u16, experiment: &Experiment, network: &Network) -> LinkSummary {
        let config = match usize::from(link).checked_sub(1) {
            None => &experiment.forward,
            Some(index) => &experiment.more_links[index].forward,
        };
        let forward = 2 * usize::from(link);
        let transmitted = network.links[forward].stats().transmitted_bytes;
        let allowed_bytes = config.schedule.bytes_until(self.end);
        let drops = [self.last_links[forward].1, self.last_links[forward + 1].1];
        link_summary(link, transmitted, allowed_bytes, &self.link_rows, drops)
    }
}

/// The row of a flow that has begun and has not stopped before this interval.
fn flow_row(
    flow: &Flow,
    connection: &Connection,
    now: Instant,
    interval: Duration,
    last: &mut (u64, u64),
) -> Option<FlowSample> {
    let over = connection.stopped.is_some_and(|at| at + interval <= now);
    if !connection.started || over || interval == Duration::ZERO {
        return None;
    }
    let info = connection.sender.info();
    let received = connection.receiver.stats().bytes_in_order.as_u64();
    let (last_received, last_retransmits) = std::mem::replace(last, (received, info.retransmits));
    let bits = (received - last_received) as f64 * 8.0;
    Some(FlowSample {
        t_ns: now.as_nanos() as i64,
        flow: flow.plan.id as i32,
        goodput_bps: (bits / interval.as_secs_f64()).round() as i64,
        cwnd_packets: info.cwnd.into(),
        ssthresh_packets: info.ssthresh.map(i64::from),
        srtt_us: info.srtt.map(|srtt| srtt.as_micros() as i64),
        inflight_packets: info.inflight.into(),
        retransmits: (info.retransmits - last_retransmits) as i64,
        pacing_rate_bps: info.pacing_rate.map(|bytes_per_s| 8 * bytes_per_s as i64),
        state: info.ca_state,
    })
}

fn link_row(network: &Network, index: usize, now: Instant, last: &mut (u64, Drops)) -> LinkSample {
    let stats = network.links[index].stats();
    let (delivered, drops) = (stats.delivered_bytes.as_u64(), stats.drops);
    let (last_delivered, last_drops) = std::mem::replace(last, (delivered, drops));
    LinkSample {
        t_ns: now.as_nanos() as i64,
        link: link_number(index),
        direction: Direction::ALL[index % 2],
        backlog_bytes: stats.backlog_bytes.as_u64() as i64,
        backlog_packets: stats.backlog_packets as i64,
        delivered_bytes: (delivered - last_delivered) as i64,
        drops: drops.since(last_drops),
    }
}

fn link_number(component: usize) -> u16 {
    (component / 2) as u16
}

/// The row of a lost packet.
pub(crate) fn loss_row(drop: &Drop<InFlight>, component: usize, flow: u32) -> EventRow {
    EventRow {
        t_ns: drop.at.as_nanos() as i64,
        kind: EventKind::Loss,
        reason: Some(drop.reason),
        link: link_number(component),
        direction: Some(Direction::ALL[component % 2]),
        flow: Some(flow as i32),
        ..EventRow::default()
    }
}

fn totals(
    flow: &Flow,
    connection: &Connection,
    experiment: &Experiment,
    end: Instant,
) -> FlowTotals {
    let (info, stats) = (connection.sender.info(), connection.receiver.stats());
    let (start, completed) = (flow.plan.start, stats.completed);
    let stop = completed.or(connection.stopped).unwrap_or(end);
    FlowTotals {
        id: flow.plan.id,
        cc: connection.cc.clone(),
        start,
        stop,
        received: connection.bytes.filter(|_| completed.is_some()).unwrap_or(stats.bytes_in_order),
        base_rtt: experiment.mean_base_rtt(&flow.plan, start, stop),
        retransmits: info.retransmits,
        sent_packets: info.sent,
        completed,
    }
}

/// Rows of the probes whose answer was due before the end: the others are neither back nor lost.
fn probe_rows_of(flow: &Flow, probe: &ProbeFlow, end: Instant) -> Vec<ProbeRow> {
    let settled = |packet: &&(Instant, Option<Instant>)| {
        packet.1.is_some() || packet.0 + probe.longest_rtt < end
    };
    (0..)
        .zip(probe.sent.iter().filter(settled))
        .map(|(seq, (sent, back))| {
            let rtt_ns = back.map(|back| back.saturating_since(*sent).as_nanos() as i64);
            ProbeRow {
                probe: flow.plan.id as i32,
                seq,
                t_ns: sent.as_nanos() as i64,
                rtt_ns,
                // There is no machine in between: what was scheduled is what came.
                scheduled_rtt_ns: rtt_ns,
            }
        })
        .collect()
}

/// Bytes of an IP packet on the wire.
pub(crate) fn on_the_wire(ip_size: Bytes) -> Bytes {
    ip_size + ETHERNET_HEADER
}
