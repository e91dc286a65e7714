//! What is measured on the way, and at the end.

use std::cell::Cell;

use skyhop_app::Transaction;
use skyhop_experiment::Experiment;
use skyhop_link::Drop;
use skyhop_model::{Direction, ETHERNET_HEADER};
use skyhop_record::{EventRow, FileError, FlowEnd, FlowState, Recorder};
use skyhop_units::{Bytes, Duration, Instant};

use crate::conversation::Conversation;
use crate::flow::{Flow, InFlight, Kind};
use crate::network::Network;

/// Takes samples at even times.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    end: Instant,
    /// When the last one was taken.
    last: Instant,
    /// The network's flows in the order of their ids.
    by_id: Vec<usize>,
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
            last: Instant::START,
        }
    }

    /// When the next sample is due; the run's end is one.
    pub(crate) fn next(&self) -> Instant {
        self.next.min(self.end)
    }

    /// Whether the run's last sample has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.last >= self.end
    }

    /// Takes the sample that is due, of a network that has settled.
    pub(crate) fn sample(
        &mut self,
        network: &mut Network,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), FileError> {
        let now = self.next();
        network.events.drain(..).for_each(|row| recorder.event(row));
        network.marked.drain(..).for_each(|flow| recorder.marked(flow));
        for index in &self.by_id {
            let flow = &mut network.flows[*index];
            let results = match &mut flow.kind {
                Kind::Tcp(conversation) => conversation.take_results(now),
                Kind::Udp(datagrams) => datagrams.take_results(now),
            };
            note_results(recorder, flow.plan.id, &results);
        }
        let flows = self.by_id.iter().map(|index| &network.flows[*index]);
        let states = flows.filter_map(|flow| flow_state(flow, self.last, now));
        recorder.sample(now, states, network.links.iter().map(|link| link.stats()))?;
        self.last = now;
        self.next += self.every;
        Ok(())
    }

    /// Says how flows and probes ended; the run did so at its last sample.
    pub(crate) fn conclude(&self, network: &mut Network, recorder: &mut Recorder<'_>) -> Instant {
        for index in &self.by_id {
            let flow = &mut network.flows[*index];
            match &mut flow.kind {
                Kind::Tcp(conversation) if conversation.started => {
                    recorder.flow_ended(&flow_end(flow.plan.id, conversation, self.last));
                    let whose = format!("flow {}", flow.plan.id);
                    let warning = conversation.counted().outputs.warning(&whose);
                    warning.into_iter().for_each(|warning| recorder.warn(warning));
                }
                Kind::Tcp(_) => {}
                Kind::Udp(datagrams) => {
                    note_results(recorder, flow.plan.id, &datagrams.conclude(self.last));
                }
            }
        }
        self.last
    }
}

/// There is no machine in between: what was scheduled is what came.
fn note_results(recorder: &mut Recorder<'_>, flow: u32, results: &[Transaction]) {
    results.iter().for_each(|one| recorder.transaction(flow, one, one.took));
}

/// A flow that has begun and has neither stopped nor completed before this interval.
fn flow_state(flow: &Flow, last: Instant, now: Instant) -> Option<FlowState> {
    let Kind::Tcp(conversation) = &flow.kind else { return None };
    let over = conversation.completed().map(|(_, at)| at).or(conversation.stopped);
    if !conversation.started || over.is_some_and(|at| at <= last) {
        return None;
    }
    let (info, counted) = (conversation.info()?, conversation.counted());
    Some(FlowState {
        id: flow.plan.id,
        since: Instant::START,
        until: now,
        received: counted.received,
        cwnd_packets: info.cwnd,
        ssthresh_packets: info.ssthresh,
        srtt_us: info.srtt.map(|srtt| srtt.as_micros()),
        inflight_packets: info.inflight,
        retransmits: counted.retransmits,
        pacing_rate_bps: info.pacing_rate.map(|bytes_per_s| 8 * bytes_per_s),
        state: info.ca_state,
    })
}

fn flow_end(id: u32, conversation: &Conversation, end: Instant) -> FlowEnd {
    let (counted, completed) = (conversation.counted(), conversation.completed());
    let (received, at) = match (completed, conversation.stopped) {
        (Some((bytes, at)), _) => (bytes, at),
        (None, stopped) => (counted.received, stopped.unwrap_or(end)),
    };
    FlowEnd {
        id,
        at,
        received,
        retransmits: counted.retransmits,
        sent_packets: counted.sent,
        completed: completed.map(|(_, at)| at),
    }
}

/// The row of a lost packet.
pub(crate) fn loss_row(drop: &Drop<Cell<InFlight>>, component: usize, flow: u32) -> EventRow {
    let place = ((component / 2) as u16, Direction::ALL[component % 2]);
    EventRow::lost(drop.at, drop.reason, place, Some(flow))
}

/// Bytes of an IP packet on the wire.
pub(crate) fn on_the_wire(ip_size: Bytes) -> Bytes {
    ip_size + ETHERNET_HEADER
}
