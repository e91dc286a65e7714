//! Periodic samples of flows and links, one per `sample` interval of the scenario.

use std::sync::Arc;

use skyhop_link::LinkStats;
use skyhop_model::LossReason;
use skyhop_record::{FlowState, Recorder};
use skyhop_units::{Duration, Instant};

use crate::connections::Connections;
use crate::datapath::Topology;
use crate::kernel_cc;
use crate::pump::PumpView;
use crate::traffic::tcp::{RunningTcp, TcpPlan, TcpView};
use skyhop_host::device::DeviceCount;
use skyhop_host::error::{Context, HostError};

/// Periodic sampler of flow states and link counters.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    flows: Vec<FlowSampler>,
    /// Connections of the run's programs; `None` without a program.
    connections: Option<Connections>,
    links: [LinkSampler; 2],
    topology: Topology,
}

impl Sampler {
    pub(crate) fn new(
        every: Duration,
        flows: &[RunningTcp],
        connections: Option<Connections>,
        topology: Topology,
        views: [&Arc<PumpView>; 2],
    ) -> Self {
        let links = views.map(LinkSampler::new);
        let flows = flows.iter().map(|flow| FlowSampler::new(flow.plan(), flow.view())).collect();
        Self { every, next: Instant::START + every, flows, connections, links, topology }
    }

    /// Time at which the next sample is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Take a sample if it is due.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), HostError> {
        if now < self.next {
            return Ok(());
        }
        // A late sample replaces the samples whose times have passed.
        while self.next <= now {
            self.next += self.every;
        }
        self.sample(now, recorder)
    }

    /// Take a sample now. The link counters and the recorded losses are about the same packets.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), HostError> {
        let mut flows = Vec::with_capacity(self.flows.len());
        for flow in &mut self.flows {
            flows.extend(flow.sample(now)?);
        }
        if let Some(connections) = &mut self.connections {
            flows.extend(connections.sample(now)?);
        }
        self.record_results(recorder);
        self.topology.refresh()?;
        let ([forward, back], [from, to]) = (&mut self.links, self.topology.counts()?);
        let (forward, back) = (forward.sample(from, recorder), back.sample(to, recorder));
        let links = forward.into_iter().zip(back).flat_map(|(there, back)| [there, back]);
        recorder.sample(now, flows, links).context("cannot record a sample")
    }

    /// Record the transactions that the flows' applications have completed since the last call.
    pub(crate) fn record_results(&self, recorder: &mut Recorder<'_>) {
        for flow in &self.flows {
            let results = flow.view.take_results();
            results.iter().for_each(|one| recorder.transaction(flow.id, one, None));
        }
    }

    /// Return the tracker of the program's connections, after sampling has ended.
    pub(crate) fn into_connections(self) -> Option<Connections> {
        self.connections
    }

    /// Number of losses that the links had counted at the last sample, per direction.
    pub(crate) fn counted_losses(&self) -> [u64; 2] {
        self.links.each_ref().map(|link| link.counted_losses)
    }
}

/// Sampling state of one TCP flow.
struct FlowSampler {
    view: Arc<TcpView>,
    id: u32,
    start: Instant,
    paces: bool,
    ended: bool,
}

impl FlowSampler {
    fn new(plan: &TcpPlan, view: &Arc<TcpView>) -> Self {
        Self {
            view: Arc::clone(view),
            id: plan.id,
            start: plan.start,
            // The kernel reports a pacing rate for other congestion controls too, but uses it only
            // to size segments.
            paces: kernel_cc::paces(&plan.cc),
            ended: false,
        }
    }

    /// Flow state while the flow runs, and once more after its end; `None` before its first socket.
    fn sample(&mut self, now: Instant) -> Result<Option<FlowState>, HostError> {
        if self.ended || now <= self.start {
            return Ok(None);
        }
        let (sample, until) = match self.view.end() {
            Some(end) => {
                self.ended = true;
                (end.last, end.at)
            }
            None => match self.view.sample()? {
                Some(sample) => (sample, now),
                None => return Ok(None),
            },
        };
        let sender = sample.sender;
        Ok(Some(FlowState {
            id: self.id,
            since: self.start,
            until,
            received: sample.received,
            cwnd_packets: sender.cwnd_packets,
            ssthresh_packets: sender.ssthresh_packets,
            srtt_us: sender.srtt_us.map(u64::from),
            ack_rtts: None,
            inflight_packets: sender.inflight_packets,
            retransmits: sample.retransmits,
            pacing_rate_bps: sender.pacing_rate_bps.filter(|_| self.paces),
            state: sender.state,
        }))
    }
}

/// Sampling state of all links of one direction.
struct LinkSampler {
    view: Arc<PumpView>,
    /// Losses counted by the link's thread: all losses except drops at the device in front of the link.
    counted_losses: u64,
}

impl LinkSampler {
    fn new(view: &Arc<PumpView>) -> Self {
        Self { view: Arc::clone(view), counted_losses: 0 }
    }

    /// Record the direction's losses and marks; return the counters of its links. `device` are the counters of the
    /// sending end's device.
    fn sample(&mut self, device: DeviceCount, recorder: &mut Recorder<'_>) -> Vec<LinkStats> {
        let (state, verdicts) = self.view.take_verdicts();
        verdicts.losses.into_iter().for_each(|row| recorder.event(row));
        verdicts.marked.into_iter().for_each(|flow| recorder.count_mark(flow));
        self.counted_losses = state.lost() + state.refused;
        let mut stats = state.stats;
        // A device does not belong to any link; its drops are attributed to the first link.
        if let Some(first) = stats.first_mut() {
            first.drops[LossReason::Device] = device.send_drops + state.refused;
        }
        stats
    }
}
