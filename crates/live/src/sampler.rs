//! Rows of flows.parquet and link.parquet, one per flow and direction every `sample`.

use skyhop_model::{Counts, Direction, Drops, LossReason};
use std::sync::Arc;

use skyhop_record::{FlowSample, LinkSample};
use skyhop_units::{Duration, Instant};

use crate::device::Device;
use crate::error::LiveError;
use crate::kernel_cc;
use crate::pump::PumpView;
use crate::traffic::bulk::{BulkPlan, BulkSample, BulkView, RunningBulk};

/// Samples flows and links.
pub(crate) struct Sampler {
    every: Duration,
    next: Instant,
    flows: Vec<FlowTrack>,
    links: [LinkTrack; 2],
    /// The rows so far.
    pub(crate) flow_rows: Vec<FlowSample>,
    /// The rows so far.
    pub(crate) link_rows: Vec<LinkSample>,
}

impl Sampler {
    pub(crate) fn new(every: Duration, flows: &[RunningBulk], links: [LinkTrack; 2]) -> Self {
        let flows = flows.iter().map(|flow| FlowTrack::new(&flow.plan, &flow.view)).collect();
        let next = Instant::START + every;
        Self { every, next, flows, links, flow_rows: Vec::new(), link_rows: Vec::new() }
    }

    /// When the next sample is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Takes a sample if it is due.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), LiveError> {
        if now < self.next {
            return Ok(());
        }
        // A late sample replaces those that it missed.
        while self.next <= now {
            self.next += self.every;
        }
        self.sample(now)
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, now: Instant) -> Result<(), LiveError> {
        for flow in &mut self.flows {
            self.flow_rows.extend(flow.sample(now)?);
        }
        for (link, direction) in self.links.iter_mut().zip(Direction::ALL) {
            self.link_rows.push(link.sample(now, *direction)?);
        }
        Ok(())
    }

    /// What had been lost at the last sample, in each direction.
    pub(crate) fn lost(&self) -> [Lost; 2] {
        self.links.each_ref().map(|link| link.lost)
    }
}

/// A flow, and what its last row said.
struct FlowTrack {
    view: Arc<BulkView>,
    id: i32,
    paces: bool,
    last_at: Instant,
    last: BulkSample,
    ended: bool,
}

impl FlowTrack {
    fn new(plan: &BulkPlan, view: &Arc<BulkView>) -> Self {
        Self {
            view: Arc::clone(view),
            id: plan.id as i32,
            // The others have a pacing rate too, which only sizes their segments.
            paces: kernel_cc::paces(&plan.cc),
            last_at: plan.start,
            last: BulkSample::default(),
            ended: false,
        }
    }

    /// The flow's row, while it runs and once after its end.
    fn sample(&mut self, now: Instant) -> Result<Option<FlowSample>, LiveError> {
        if self.ended || now <= self.last_at {
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
        let interval = until.saturating_since(self.last_at);
        if interval == Duration::ZERO {
            return Ok(None);
        }
        let row = self.row(now, sample, interval);
        (self.last_at, self.last) = (now, sample);
        Ok(Some(row))
    }

    fn row(&self, now: Instant, sample: BulkSample, interval: Duration) -> FlowSample {
        let BulkSample { sender, received_bytes } = sample;
        // A connection that was lost and made again counts from 0.
        let bytes = received_bytes.saturating_sub(self.last.received_bytes);
        FlowSample {
            t_ns: now.as_nanos() as i64,
            flow: self.id,
            goodput_bps: (bytes as f64 * 8.0 / interval.as_secs_f64()).round() as i64,
            cwnd_packets: i64::from(sender.cwnd_packets),
            ssthresh_packets: sender.ssthresh_packets.map(i64::from),
            srtt_us: sender.srtt_us.map(i64::from),
            inflight_packets: i64::from(sender.inflight_packets),
            retransmits: i64::from(sender.retransmits.saturating_sub(self.last.sender.retransmits)),
            pacing_rate_bps: sender.pacing_rate_bps.filter(|_| self.paces).map(|bps| bps as i64),
            state: sender.state,
        }
    }
}

/// One direction, and what its last row said.
pub(crate) struct LinkTrack {
    view: Arc<PumpView>,
    /// The device in front of it.
    device: Arc<Device>,
    last_delivered_bytes: u64,
    lost: Lost,
}

/// What one direction has lost since the run began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lost {
    pub(crate) drops: Drops,
    /// How many of these its link's thread has noted, each in a row: all but what the device in
    /// front of it dropped.
    pub(crate) noted: u64,
}

impl LinkTrack {
    pub(crate) fn new(view: &Arc<PumpView>, device: &Arc<Device>) -> Self {
        Self {
            view: Arc::clone(view),
            device: Arc::clone(device),
            last_delivered_bytes: 0,
            lost: Lost::default(),
        }
    }

    fn sample(&mut self, now: Instant, direction: Direction) -> Result<LinkSample, LiveError> {
        let state = self.view.state();
        let mut drops = state.stats.drops;
        drops[LossReason::Device] = self.device.count()?.send_drops + state.refused;
        let delivered_bytes = state.stats.delivered_bytes.as_u64();
        let row = LinkSample {
            link: 0,
            t_ns: now.as_nanos() as i64,
            direction,
            backlog_bytes: state.stats.backlog_bytes.as_u64() as i64,
            backlog_packets: state.stats.backlog_packets as i64,
            delivered_bytes: (delivered_bytes - self.last_delivered_bytes) as i64,
            drops: drops.since(self.lost.drops),
        };
        self.last_delivered_bytes = delivered_bytes;
        self.lost = Lost { drops, noted: state.stats.drops.total() + state.refused };
        Ok(row)
    }
}
