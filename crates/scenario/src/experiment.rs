//! A scenario with everything resolved and built: what an engine runs.

use std::collections::BTreeMap;

use skyhop_link::LinkConfig;
use skyhop_model::End;
use skyhop_path::PathTrace;
use skyhop_signal::Announcement;
use skyhop_signal::blind::BlindPlan;
use skyhop_units::{Bytes, Duration, Instant};

use crate::types::LiveDevice;

/// What an engine runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The scenario as resolved, for run.json.
    pub scenario: serde_json::Value,
    /// The path, from which the links' schedules were made.
    pub trace: PathTrace,
    /// The direction from -> to.
    pub forward: LinkConfig,
    /// The direction to -> from.
    pub back: LinkConfig,
    /// The links of `[links]`, by name: link 1, link 2 … of the flows' ways.
    pub more_links: Vec<NamedLink>,
    /// The flows, ids ascending; a `[[flow]]` with `count = n` stands here n times.
    pub flows: Vec<FlowPlan>,
    /// The scenario's `[[change]]` entries, by time.
    pub changes: Vec<PlannedChange>,
    /// The announcements of `[signal]`, about the path of `[path]`, by when they are made.
    pub announcements: Vec<Announcement>,
    /// What the run is to find out by itself, and to announce then.
    pub blind: Option<BlindPlan>,
    /// How long the run lasts.
    pub duration: Duration,
    /// The time between samples.
    pub sample: Duration,
    /// The run's seed.
    pub seed: u64,
    /// What carries packets in a live run.
    pub device: LiveDevice,
}

/// A link of `[links]`.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedLink {
    /// Its name.
    pub name: String,
    /// Its path, from which the schedules were made.
    pub trace: PathTrace,
    /// The direction from -> to.
    pub forward: LinkConfig,
    /// The direction to -> from.
    pub back: LinkConfig,
}

/// A moment at which the scenario changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedChange {
    /// When.
    pub at: Instant,
    /// The link concerned; 0 for that of `[path]`.
    pub link: u16,
    /// The outage that begins.
    pub outage: Duration,
    /// The flow that takes another way, where that is what changes.
    pub flow: Option<u32>,
}

/// The links that a flow crosses from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// From when.
    pub from: Instant,
    /// Numbers of links, in the order from the end `from` to the end `to`; 0 is that of `[path]`.
    pub links: Vec<u16>,
}

/// One flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowPlan {
    /// Its place in the scenario, counted from 0.
    pub id: u32,
    /// Which end sends.
    pub from: End,
    /// When it begins.
    pub start: Instant,
    /// When it stops sending.
    pub stop: Instant,
    /// Its ways, by time; the first holds from the run's start.
    pub ways: Vec<Way>,
    /// Round trip of its own beside that of the links.
    pub extra_rtt: Duration,
    /// What it sends.
    pub traffic: Traffic,
}

impl Experiment {
    /// The path of a link by its number.
    pub fn trace_of(&self, link: u16) -> &PathTrace {
        match usize::from(link).checked_sub(1) {
            None => &self.trace,
            Some(index) => &self.more_links[index].trace,
        }
    }

    /// The mean round trip of a flow without queueing, from `start` to `stop`.
    pub fn mean_base_rtt(&self, flow: &FlowPlan, start: Instant, stop: Instant) -> Duration {
        flow.mean_base_rtt(|link| self.trace_of(link), start, stop)
    }

    /// Whether flows meet nothing but the link of `[path]` and `[link]`.
    pub fn is_one_link(&self) -> bool {
        let plain = |flow: &FlowPlan| {
            flow.extra_rtt == Duration::ZERO && flow.ways.len() == 1 && flow.ways[0].links == [0]
        };
        self.more_links.is_empty() && self.flows.iter().all(plain)
    }
}

impl FlowPlan {
    pub(crate) fn mean_base_rtt<'t>(
        &self,
        trace_of: impl Fn(u16) -> &'t PathTrace,
        start: Instant,
        stop: Instant,
    ) -> Duration {
        let (mut sum_ns, mut total_ns) = (0_u128, 0_u128);
        for (index, way) in self.ways.iter().enumerate() {
            let until = self.ways.get(index + 1).map_or(stop, |next| next.from.min(stop));
            let from = way.from.max(start);
            let held_ns = u128::from(until.saturating_since(from).as_nanos());
            let links = way.links.iter().map(|link| trace_of(*link));
            let rtt: Duration = links.map(|trace| trace.mean_base_rtt(from, until)).sum();
            sum_ns += held_ns * u128::from((rtt + self.extra_rtt).as_nanos());
            total_ns += held_ns;
        }
        Duration::from_nanos(sum_ns.checked_div(total_ns).unwrap_or(0) as u64)
    }
}

/// What a flow sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// A bulk TCP transfer.
    Tcp {
        /// The congestion control's name.
        cc: String,
        /// How much to send; `None`: until the flow stops.
        bytes: Option<Bytes>,
        /// Parameters of the congestion control, by its name.
        parameters: BTreeMap<String, serde_json::Value>,
    },
    /// UDP packets that the other end echoes.
    Probe {
        /// The time between packets.
        interval: Duration,
        /// The UDP payload of a packet.
        size: Bytes,
    },
}

/// The parameters in the table named after the congestion control, as text.
pub fn cc_parameters(
    cc: &str,
    tables: &BTreeMap<String, serde_json::Value>,
) -> Vec<(String, String)> {
    let own = tables.get(skyhop_model::plain_cc_name(cc)).and_then(serde_json::Value::as_object);
    own.into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        })
        .collect()
}
