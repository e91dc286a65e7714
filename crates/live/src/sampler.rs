//! Flows and the link at a moment, every `sample`.

use std::sync::Arc;

use skyhop_link::LinkStats;
use skyhop_model::LossReason;
use skyhop_record::{FlowState, Recorder};
use skyhop_units::{Duration, Instant};

use crate::carrier::Between;
use crate::connections::Connections;
use crate::kernel_cc;
use crate::pump::PumpView;
use crate::traffic::tcp::{RunningTcp, TcpPlan, TcpView};
use skyhop_host::device::DeviceCount;
use skyhop_host::error::{Context, HostError};

/// Samples flows and links.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    flows: Vec<FlowTrack>,
    /// Those of a program.
    connections: Option<Connections>,
    links: [LinkTrack; 2],
    between: Between,
}

impl Sampler {
    pub(crate) fn new(
        every: Duration,
        flows: &[RunningTcp],
        connections: Option<Connections>,
        between: Between,
        views: [&Arc<PumpView>; 2],
    ) -> Self {
        let links = views.map(LinkTrack::new);
        let flows = flows.iter().map(|flow| FlowTrack::new(flow.plan(), flow.view())).collect();
        Self { every, next: Instant::START + every, flows, connections, links, between }
    }

    /// When the next sample is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Takes a sample if it is due.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), HostError> {
        if now < self.next {
            return Ok(());
        }
        // A late sample replaces those that it missed.
        while self.next <= now {
            self.next += self.every;
        }
        self.sample(now, recorder)
    }

    /// Takes a sample: its counts and the rows of losses are about the same packets.
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
        self.note_results(recorder);
        self.between.refresh()?;
        let ([forward, back], [from, to]) = (&mut self.links, self.between.counts()?);
        let (forward, back) = (forward.sample(from, recorder), back.sample(to, recorder));
        let links = forward.into_iter().zip(back).flat_map(|(there, back)| [there, back]);
        recorder.sample(now, flows, links).context("cannot record a sample")
    }

    /// Records what the flows' applications have found since the last time.
    pub(crate) fn note_results(&self, recorder: &mut Recorder<'_>) {
        for flow in &self.flows {
            let results = flow.view.take_results();
            results.iter().for_each(|one| recorder.transaction(flow.id, one, None));
        }
    }

    /// The program's connections, when there is nothing more to sample.
    pub(crate) fn into_connections(self) -> Option<Connections> {
        self.connections
    }

    /// How many losses the links' threads had noted at the last sample, in each direction.
    pub(crate) fn noted(&self) -> [u64; 2] {
        self.links.each_ref().map(|link| link.noted)
    }
}

/// A flow that is sampled.
struct FlowTrack {
    view: Arc<TcpView>,
    id: u32,
    start: Instant,
    paces: bool,
    ended: bool,
}

impl FlowTrack {
    fn new(plan: &TcpPlan, view: &Arc<TcpView>) -> Self {
        Self {
            view: Arc::clone(view),
            id: plan.id,
            start: plan.start,
            // The others have a pacing rate too, which only sizes their segments.
            paces: kernel_cc::paces(&plan.cc),
            ended: false,
        }
    }

    /// The flow's state, while it runs and once after its end.
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
            inflight_packets: sender.inflight_packets,
            retransmits: sample.retransmits,
            pacing_rate_bps: sender.pacing_rate_bps.filter(|_| self.paces),
            state: sender.state,
        }))
    }
}

/// One direction, with all of its links, that is sampled.
struct LinkTrack {
    view: Arc<PumpView>,
    /// Losses of which the link's thread knows: all but what the device in front of it dropped.
    noted: u64,
}

impl LinkTrack {
    fn new(view: &Arc<PumpView>) -> Self {
        Self { view: Arc::clone(view), noted: 0 }
    }

    /// Of all links in this direction, behind a device that has counted this.
    fn sample(&mut self, device: DeviceCount, recorder: &mut Recorder<'_>) -> Vec<LinkStats> {
        let (state, verdicts) = self.view.take_verdicts();
        verdicts.losses.into_iter().for_each(|row| recorder.event(row));
        verdicts.marked.into_iter().for_each(|flow| recorder.marked(flow));
        self.noted = state.lost() + state.refused;
        let mut stats = state.stats;
        // The devices belong to no link; what they drop counts towards the first.
        if let Some(first) = stats.first_mut() {
            first.drops[LossReason::Device] = device.send_drops + state.refused;
        }
        stats
    }
}
