//! The time-varying path between two places: the only thing that passes from geometry to packets.

use serde::{Deserialize, Serialize};
use skyhop_model::PathEventKind;
use skyhop_units::{Duration, Instant, Rate, UtcInstant};
use thiserror::Error;

/// The version of the path file's layout.
pub const SCHEMA_VERSION: u32 = 1;

/// The node id of the end named `from`.
pub const NODE_FROM: i32 = -1;
/// The node id of the end named `to`.
pub const NODE_TO: i32 = -2;

/// A path as it changes over time.
///
/// Frames are ordered by time and the first is at [`Instant::START`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathTrace {
    /// How the trace was made.
    pub header: PathHeader,
    /// The path at each step.
    pub frames: Vec<Frame>,
}

/// How a trace was made; kept as JSON in the path file's metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathHeader {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// What computed or measured the trace: "skyhop path", "import leoem", …
    pub source: String,
    /// The end that node -1 stands for.
    pub from: Endpoint,
    /// The end that node -2 stands for.
    pub to: Endpoint,
    /// The constellation's name, where there is one.
    pub constellation: Option<String>,
    /// How many satellites there are: nodes at or above this number are gateways.
    pub satellites: u32,
    /// isl, bent-pipe, …
    pub relay: Option<String>,
    /// The handover policy's name.
    pub handover: Option<String>,
    /// The outage model's name.
    pub outage: Option<String>,
    /// The compatibility mode's name.
    pub compat: Option<String>,
    /// When the trace begins.
    pub start: Option<UtcInstant>,
    /// The time that the trace covers; the last frame holds until then.
    pub duration_ns: u64,
    /// The time between computed frames.
    pub step_ns: u64,
    /// How the delay goes from one frame to the next while the nodes stay the same.
    pub between_frames: BetweenFrames,
    /// The seed of whatever was drawn at random.
    pub seed: u64,
    /// Where the satellites come from, so that they can be looked at again; `None` in files of before it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The gateways and points of presence that it goes over at any time, by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<NodeSite>,
}

/// Where a computed path's satellites come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The scenario's `[path]` as resolved; files by their whole names.
    pub path: serde_json::Value,
    /// The file that holds the constellation, where one that does not come with skyhop does.
    pub file: Option<String>,
    /// SHA-256 of that file, in hexadecimal digits.
    pub sha256: Option<String>,
}

/// A node on the ground that is not an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSite {
    /// Its number in frames.
    pub node: i32,
    /// What its list calls it.
    pub name: String,
    /// Geodetic latitude.
    pub latitude_deg: f64,
    /// Longitude, east positive.
    pub longitude_deg: f64,
    /// Above the ellipsoid.
    pub altitude_m: f64,
}

impl PathHeader {
    /// Of a path that no constellation made: each value holds until the next, it begins at no time of day, and
    /// nothing in it is random.
    pub fn plain(
        source: impl Into<String>,
        [from, to]: [Endpoint; 2],
        duration: Duration,
        step: Duration,
    ) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            source: source.into(),
            from,
            to,
            constellation: None,
            satellites: 0,
            relay: None,
            handover: None,
            outage: None,
            compat: None,
            start: None,
            duration_ns: duration.as_nanos(),
            step_ns: step.as_nanos(),
            between_frames: BetweenFrames::Step,
            seed: 0,
            origin: None,
            sites: Vec::new(),
        }
    }
}

/// One end of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// What the user called it.
    pub name: String,
    /// Geodetic latitude, where known.
    pub latitude_deg: Option<f64>,
    /// Longitude, east positive, where known.
    pub longitude_deg: Option<f64>,
}

impl Endpoint {
    /// An end of which only the name is known.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), latitude_deg: None, longitude_deg: None }
    }
}

/// What happens to the delay between two frames with the same nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BetweenFrames {
    /// It changes linearly.
    Linear,
    /// It stays until the next frame.
    Step,
}

/// The path at one moment; by default there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// When this frame begins.
    pub at: Instant,
    /// From -1 over satellites (0..N) and gateways (N + row) to -2; empty without a path.
    pub nodes: Vec<i32>,
    /// One-way delay of each hop, one fewer than `nodes`; empty where hops are not known.
    pub hop_delays: Vec<Duration>,
    /// One-way delay from `from` to `to`; `None` without a path.
    pub delay: Option<Duration>,
    /// One-way delay from `to` to `from`; `None` without a path.
    pub delay_back: Option<Duration>,
    /// The path's rate, where it was measured.
    pub rate: Option<Rate>,
    /// The path's loss ratio, where it was measured.
    pub loss: Option<f64>,
    /// What happens as this frame begins, or until the next.
    pub events: Vec<PathEvent>,
}

/// A change of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEvent {
    /// When it happens.
    pub at: Instant,
    /// What happens.
    pub kind: PathEventKind,
    /// The hop concerned, counted in the new frame's nodes from 0; `None` for the whole path.
    pub hop: Option<u16>,
    /// How long the path is down from `at` on.
    pub outage: Duration,
}

/// Why a trace cannot be a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TraceError {
    /// There is not a single frame.
    #[error("the path has no frames")]
    Empty,
    /// The first frame is not at time zero, or a frame is not later than the one before.
    #[error("frame {frame} is at {at}, but frames begin at 0 s and each is later than the last")]
    Order { frame: usize, at: Instant },
    /// Nodes, hops and delays of a frame do not fit each other.
    #[error("frame {frame} is inconsistent: {what}")]
    Frame { frame: usize, what: &'static str },
    /// No frame has a path.
    #[error("there is never a path between {from} and {to}")]
    NeverConnected { from: String, to: String },
}

impl PathTrace {
    /// Checks what every user of a trace relies on.
    ///
    /// # Errors
    /// The first thing that is wrong, with its frame.
    pub fn validate(&self) -> Result<(), TraceError> {
        let first = self.frames.first().ok_or(TraceError::Empty)?;
        if first.at != Instant::START {
            return Err(TraceError::Order { frame: 0, at: first.at });
        }
        for (frame, pair) in self.frames.windows(2).enumerate() {
            if pair[1].at <= pair[0].at {
                return Err(TraceError::Order { frame: frame + 1, at: pair[1].at });
            }
        }
        for (frame, checked) in self.frames.iter().enumerate() {
            if let Some(what) = checked.inconsistency() {
                return Err(TraceError::Frame { frame, what });
            }
        }
        if self.frames.iter().all(|frame| frame.delay.is_none()) {
            let (from, to) = (self.header.from.name.clone(), self.header.to.name.clone());
            return Err(TraceError::NeverConnected { from, to });
        }
        Ok(())
    }

    /// One hop whose round trip never changes.
    pub fn fixed(ends: [Endpoint; 2], rtt: Duration, duration: Duration) -> Self {
        Self::varying(ends, &[(Instant::START, rtt)], [duration; 2])
    }

    /// One hop whose round trip is another from each of these moments on, the first of which is the path's start.
    pub fn varying(
        ends: [Endpoint; 2],
        rtts: &[(Instant, Duration)],
        [duration, step]: [Duration; 2],
    ) -> Self {
        let frames = rtts.iter().map(|&(at, rtt)| {
            let there = rtt / 2;
            Frame {
                at,
                nodes: vec![NODE_FROM, NODE_TO],
                hop_delays: vec![there],
                delay: Some(there),
                delay_back: Some(rtt - there),
                ..Frame::default()
            }
        });
        Self { frames: frames.collect(), header: PathHeader::plain("fixed", ends, duration, step) }
    }

    /// The same, and again from its end on, until `until`. What it was between its last frame and its end is as it was.
    #[must_use]
    pub fn repeated(mut self, until: Duration) -> Self {
        let period = Duration::from_nanos(self.header.duration_ns);
        if period == Duration::ZERO || period >= until {
            return self;
        }
        let once = self.frames.iter().position(|frame| frame.at >= Instant::START + period);
        self.frames.truncate(once.unwrap_or(self.frames.len()));
        let once = self.frames.clone();
        let mut later = period;
        while later < until {
            let end = Instant::START + until;
            let again = once.iter().map(|frame| frame.later_by(later));
            self.frames.extend(again.take_while(|frame| frame.at < end));
            later += period;
        }
        self.header.duration_ns = until.as_nanos();
        self
    }

    /// Mean RTT without queueing from `from` until `until`, over the time in which there is a path;
    /// zero where there is none.
    pub fn mean_base_rtt(&self, from: Instant, until: Instant) -> Duration {
        let (mut rtt_ns, mut connected_ns) = (0_u128, 0_u128);
        for (index, frame) in self.frames.iter().enumerate() {
            let end = self.frames.get(index + 1).map_or(until, |next| next.at.min(until));
            let held = u128::from(end.saturating_since(frame.at.max(from)).as_nanos());
            if let (Some(there), Some(back)) = (frame.delay, frame.delay_back) {
                rtt_ns += u128::from((there + back).as_nanos()) * held;
                connected_ns += held;
            }
        }
        Duration::from_nanos(rtt_ns.checked_div(connected_ns).unwrap_or(0) as u64)
    }

    /// All events, in order.
    pub fn events(&self) -> impl Iterator<Item = &PathEvent> {
        self.frames.iter().flat_map(|frame| &frame.events)
    }
}

impl Frame {
    /// Bytes that it takes in memory, its lists included.
    pub fn size_in_memory(&self) -> u64 {
        let lists = [
            size_of_val(self.nodes.as_slice()),
            size_of_val(self.hop_delays.as_slice()),
            size_of_val(self.events.as_slice()),
        ];
        (size_of::<Self>() + lists.iter().sum::<usize>()) as u64
    }

    fn later_by(&self, time: Duration) -> Self {
        let events = self.events.iter().map(|event| PathEvent { at: event.at + time, ..*event });
        Self { at: self.at + time, events: events.collect(), ..self.clone() }
    }

    fn inconsistency(&self) -> Option<&'static str> {
        if self.delay.is_some() != self.delay_back.is_some() {
            return Some("only one direction has a delay");
        }
        if self.delay.is_none() && !(self.nodes.is_empty() && self.hop_delays.is_empty()) {
            return Some("it has nodes or hops but no delay");
        }
        if !self.nodes.is_empty() {
            if self.nodes.first() != Some(&NODE_FROM) || self.nodes.last() != Some(&NODE_TO) {
                return Some("its nodes do not go from -1 to -2");
            }
            if self.hop_delays.len() + 1 != self.nodes.len() {
                return Some("the number of hop delays is not one fewer than of nodes");
            }
        }
        if !self.hop_delays.is_empty() && self.delay != Some(self.hop_delays.iter().copied().sum())
        {
            return Some("the hop delays do not add up to the delay");
        }
        None
    }
}
