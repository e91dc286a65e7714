//! A scenario with everything resolved and built: what an engine runs.

use std::collections::BTreeMap;

use skyhop_link::LinkConfig;
use skyhop_path::PathTrace;
use skyhop_units::{Bytes, Duration, Instant};

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
    /// The flows, ids ascending; a `[[flow]]` with `count = n` stands here n times.
    pub flows: Vec<FlowPlan>,
    /// Moments of the scenario's `[[change]]` entries with the outage that each begins.
    pub changes: Vec<(Instant, Duration)>,
    /// How long the run lasts.
    pub duration: Duration,
    /// The time between samples.
    pub sample: Duration,
    /// The run's seed.
    pub seed: u64,
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
    /// What it sends.
    pub traffic: Traffic,
}

/// An end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Node -1.
    From,
    /// Node -2.
    To,
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
