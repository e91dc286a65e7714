//! Samples of flows and links during a run, and results at its end.

use skyhop_app::Transaction;
use skyhop_experiment::Experiment;
use skyhop_link::LinkStats;
use skyhop_model::ETHERNET_HEADER;
use skyhop_record::{EventRow, FileError, FlowEnd, FlowState, Recorder};
use skyhop_units::{Bytes, Duration, Instant};

use crate::flow::{Flow, Kind};
use crate::tcp_flow::TcpFlow;

/// Takes samples at regular times and passes them to the recorder.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    end: Instant,
    /// Time of the last sample.
    last: Instant,
    /// Indices of the flows in the order of their ids.
    by_id: Vec<usize>,
}

impl Sampler {
    pub(crate) fn new(experiment: &Experiment, flows: &[Flow]) -> Self {
        let mut by_id: Vec<usize> = (0..flows.len()).collect();
        by_id.sort_by_key(|index| flows[*index].plan.id);
        Self {
            by_id,
            every: experiment.sample,
            next: Instant::START + experiment.sample,
            end: Instant::START + experiment.duration,
            last: Instant::START,
        }
    }

    /// Time of the next sample; the last sample is at the end of the run.
    pub(crate) fn next(&self) -> Instant {
        self.next.min(self.end)
    }

    /// Whether the last sample of the run has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.last >= self.end
    }

    /// Take the sample that is due, after all events up to its time: of the flows, the events and the ids of marked
    /// packets' flows since the last sample, and the counters of the links, forward before back.
    pub(crate) fn sample(
        &mut self,
        flows: &mut [Flow],
        (events, marked): (&mut Vec<EventRow>, Vec<u32>),
        links: impl IntoIterator<Item = LinkStats>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), FileError> {
        let now = self.next();
        events.drain(..).for_each(|row| recorder.event(row));
        marked.into_iter().for_each(|flow| recorder.count_mark(flow));
        for index in &self.by_id {
            let flow = &mut flows[*index];
            let results = match &mut flow.kind {
                Kind::Tcp(tcp) => tcp.take_results(now),
                Kind::Udp(datagrams) => datagrams.take_results(now),
            };
            record_results(recorder, flow.plan.id, &results);
        }
        let flows = self.by_id.iter().map(|index| &flows[*index]);
        let states = flows.filter_map(|flow| flow_state(flow, self.last, now));
        recorder.sample(now, states, links)?;
        self.last = now;
        self.next += self.every;
        Ok(())
    }

    /// Record how flows and probes ended, as of the last sample, and return its time. `base_rtt` returns the mean RTT
    /// without queueing of the flow with an index, if the flow's plan does not say it.
    pub(crate) fn conclude(
        &self,
        flows: &mut [Flow],
        base_rtt: impl Fn(usize) -> Option<Duration>,
        recorder: &mut Recorder<'_>,
    ) -> Instant {
        for index in &self.by_id {
            let flow = &mut flows[*index];
            match &mut flow.kind {
                Kind::Tcp(tcp) if tcp.started => {
                    let end = flow_end(flow.plan.id, tcp, self.last);
                    recorder.flow_ended(&FlowEnd { base_rtt: base_rtt(*index), ..end });
                    let name = format!("flow {}", flow.plan.id);
                    let warning = tcp.counters().outputs.warning(&name);
                    warning.into_iter().for_each(|warning| recorder.warn(warning));
                }
                Kind::Tcp(_) => {}
                Kind::Udp(datagrams) => {
                    record_results(recorder, flow.plan.id, &datagrams.conclude(self.last));
                }
            }
        }
        self.last
    }
}

/// Record the transactions of a flow's application. In virtual time the measured duration of each is exact.
fn record_results(recorder: &mut Recorder<'_>, flow: u32, results: &[Transaction]) {
    results.iter().for_each(|one| recorder.transaction(flow, one, one.took));
}

/// State of a flow at the sample `now`; `None` if the flow has not begun, or had stopped or completed by the
/// previous sample (`last`).
fn flow_state(flow: &Flow, last: Instant, now: Instant) -> Option<FlowState> {
    let Kind::Tcp(tcp) = &flow.kind else { return None };
    let over = tcp.completed().map(|(_, at)| at).or(tcp.stopped);
    if !tcp.started || over.is_some_and(|at| at <= last) {
        return None;
    }
    let (info, counters) = (tcp.info()?, tcp.counters());
    Some(FlowState {
        id: flow.plan.id,
        since: Instant::START,
        until: now,
        received: counters.received,
        cwnd_packets: info.cwnd,
        ssthresh_packets: info.ssthresh,
        srtt_us: info.srtt.map(|srtt| srtt.as_micros()),
        inflight_packets: info.inflight,
        ack_rtts: Some(counters.ack_rtts),
        retransmits: counters.retransmits,
        pacing_rate_bps: info.pacing_rate.map(|bytes_per_s| 8 * bytes_per_s),
        state: info.ca_state,
    })
}

fn flow_end(id: u32, tcp: &TcpFlow, end: Instant) -> FlowEnd {
    let (counters, completed) = (tcp.counters(), tcp.completed());
    let (received, at) = match (completed, tcp.stopped) {
        (Some((bytes, at)), _) => (bytes, at),
        (None, stopped) => (counters.received, stopped.unwrap_or(end)),
    };
    FlowEnd {
        id,
        at,
        received,
        retransmits: counters.retransmits,
        sent_packets: counters.sent,
        completed: completed.map(|(_, at)| at),
        base_rtt: None,
    }
}

/// Size of an IP packet on the wire.
pub(crate) fn on_the_wire(ip_size: Bytes) -> Bytes {
    ip_size + ETHERNET_HEADER
}
