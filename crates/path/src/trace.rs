//! Time-varying path between two places: the only data that the packet simulation takes from the
//! computation of orbits.

use serde::{Deserialize, Serialize};
use skyhop_model::{End, PathEventKind};
use skyhop_units::{Duration, Instant, Rate, UtcInstant};
use thiserror::Error;

/// Version of the path file's layout.
pub const SCHEMA_VERSION: u32 = 1;

/// Node id of the end `from`.
pub const NODE_FROM: i32 = -1;
/// Node id of the end `to`.
pub const NODE_TO: i32 = -2;

/// Path as a sequence of frames, which are ordered by time and begin at [`Instant::START`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathTrace {
    /// Metadata: the ends and the origin of the trace.
    pub header: PathHeader,
    /// State of the path at each step.
    pub frames: Vec<Frame>,
}

/// Metadata of a trace, in particular how it was computed or imported; stored as JSON in the path
/// file's metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathHeader {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// Program that computed or imported the trace: "skyhop path", "import leoem", …
    pub source: String,
    /// End with the node id -1.
    pub from: Endpoint,
    /// End with the node id -2.
    pub to: Endpoint,
    /// Name of the constellation; `None` for a path without one.
    pub constellation: Option<String>,
    /// Number of satellites. Node ids from this number on are gateways and points of presence.
    pub satellites: u32,
    /// Name of the relay: isl, bent-pipe, …
    pub relay: Option<String>,
    /// Name of the handover policy.
    pub handover: Option<String>,
    /// Name of the outage model.
    pub outage: Option<String>,
    /// Name of the compatibility mode.
    pub compat: Option<String>,
    /// Start of the trace in UTC, if known.
    pub start: Option<UtcInstant>,
    /// Duration of the trace, ns; the last frame holds until then.
    pub duration_ns: u64,
    /// Time after which a repeated path begins again, ns; `None` if the path is not repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Time between computed frames, ns.
    pub step_ns: u64,
    /// Interpolation of the delay between two frames with the same nodes.
    pub between_frames: BetweenFrames,
    /// Seed of all random draws.
    pub seed: u64,
    /// Name of the access profile from which the path was drawn; `None` for other paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// End of the path at which the user's terminal is; `None` if it is not known or both ends have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dish: Option<End>,
    /// Whether packets never overtake each other, on new routes neither.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_order: bool,
    /// Whether each direction has only its own rate, so that a frame's `rate` without a `rate_back` says nothing about
    /// the direction back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directed: bool,
    /// Origin of the satellites, from which their positions can be computed again; `None` in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Gateways and points of presence that at least one frame uses, in ascending order of node ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<NodeSite>,
}

/// Origin of a computed path's satellites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Table `[path]` of the resolved scenario, with absolute file names.
    pub path: serde_json::Value,
    /// File of the constellation; `None` if it comes with skyhop.
    pub file: Option<String>,
    /// SHA-256 of that file, in hexadecimal digits.
    pub sha256: Option<String>,
}

/// Node on the ground that is not an end of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSite {
    /// Node id in the frames.
    pub node: i32,
    /// Name in the list of gateways or points of presence.
    pub name: String,
    /// Geodetic latitude in degrees, north positive.
    pub latitude_deg: f64,
    /// Longitude in degrees, east positive.
    pub longitude_deg: f64,
    /// Altitude above the ellipsoid, in metres.
    pub altitude_m: f64,
}

impl PathHeader {
    /// Header of a path without a constellation: each frame's values hold until the next frame, the start in UTC is
    /// unknown, and nothing is random.
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
            period_ns: None,
            step_ns: step.as_nanos(),
            between_frames: BetweenFrames::Step,
            seed: 0,
            access: None,
            dish: None,
            in_order: false,
            directed: false,
            origin: None,
            sites: Vec::new(),
        }
    }
}

/// One end of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Name given by the user.
    pub name: String,
    /// Geodetic latitude in degrees, north positive, if known.
    pub latitude_deg: Option<f64>,
    /// Longitude in degrees, east positive, if known.
    pub longitude_deg: Option<f64>,
}

impl Endpoint {
    /// Create an end at an unknown place.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), latitude_deg: None, longitude_deg: None }
    }
}

/// Interpolation of the delay between two frames with the same nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BetweenFrames {
    /// The delay changes linearly.
    Linear,
    /// The delay stays constant until the next frame.
    Step,
}

/// State of the path from the time `at` on, until the next frame; the default frame has no path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Beginning of the frame.
    pub at: Instant,
    /// Nodes of the route: -1, satellites (0..N) and gateways (N + row), -2; empty without a path or for unknown nodes.
    pub nodes: Vec<i32>,
    /// One-way delay of each hop, one fewer than `nodes`; empty if the hops are unknown.
    pub hop_delays: Vec<Duration>,
    /// One-way delay from `from` to `to`; `None` without a path.
    pub delay: Option<Duration>,
    /// One-way delay from `to` to `from`; `None` without a path.
    pub delay_back: Option<Duration>,
    /// Rate of the path, if it was measured or drawn; that from `from` to `to` if `rate_back` is given or the path is
    /// directed.
    pub rate: Option<Rate>,
    /// Rate from `to` to `from`, where it differs from `rate`.
    pub rate_back: Option<Rate>,
    /// Loss ratio from `from` to `to`, 0 to 1, if it was measured or drawn.
    pub loss: Option<f64>,
    /// Loss ratio from `to` to `from`, 0 to 1, if it was measured or drawn.
    pub loss_back: Option<f64>,
    /// Events from the beginning of the frame on, before that of the next frame.
    pub events: Vec<PathEvent>,
}

/// Change of the path at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEvent {
    /// Time of the change.
    pub at: Instant,
    /// Kind of the change.
    pub kind: PathEventKind,
    /// Hop that changes, counted from 0 in the new frame's nodes; `None` for the whole path.
    pub hop: Option<u16>,
    /// Duration for which the path is down from `at` on.
    pub outage: Duration,
}

/// Reason for which a trace is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TraceError {
    /// The trace has no frames.
    #[error("the path has no frames")]
    Empty,
    /// The first frame is not at time zero, or a frame is not later than the one before.
    #[error("frame {frame} is at {at}, but frames begin at 0 s and each is later than the last")]
    Order { frame: usize, at: Instant },
    /// Nodes, hops and delays of a frame contradict each other.
    #[error("frame {frame} is inconsistent: {what}")]
    Frame { frame: usize, what: &'static str },
    /// No frame has a path.
    #[error("there is never a path between {from} and {to}")]
    NeverConnected { from: String, to: String },
}

impl PathTrace {
    /// Check the invariants on which all code that reads a trace relies.
    ///
    /// # Errors
    /// The first violation, with its frame.
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

    /// Create a path of one hop with a constant round trip.
    pub fn fixed(ends: [Endpoint; 2], rtt: Duration, duration: Duration) -> Self {
        let there = rtt / 2;
        let frame = Frame {
            nodes: vec![NODE_FROM, NODE_TO],
            hop_delays: vec![there],
            delay: Some(there),
            delay_back: Some(rtt - there),
            ..Frame::default()
        };
        let header = PathHeader::plain("fixed", ends, duration, duration);
        Self { header, frames: vec![frame] }
    }

    /// Repeat the path after its end, up to the time `until`. The last frame of each repetition holds until the
    /// path's duration.
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
        self.header.period_ns = Some(period.as_nanos());
        self
    }

    /// Let the path begin at the time `offset` of this one, in the state that it has there. An outage that has begun
    /// before and still lasts begins with the path.
    #[must_use]
    pub fn starting_at(mut self, offset: Duration) -> Self {
        let begin = Instant::START + offset;
        let before = self.frames.partition_point(|frame| frame.at <= begin).saturating_sub(1);
        let earlier: Vec<PathEvent> = self.frames.drain(..before).flat_map(|f| f.events).collect();
        if let Some(first) = self.frames.first_mut() {
            first.events.splice(..0, earlier);
        }
        for frame in &mut self.frames {
            frame.events.retain(|event| event.at >= begin || event.at + event.outage > begin);
            for event in &mut frame.events {
                event.outage = event.outage - begin.saturating_since(event.at);
                event.at = Instant::START + event.at.saturating_since(begin);
            }
            frame.at = Instant::START + frame.at.saturating_since(begin);
        }
        self.header.duration_ns = self.header.duration_ns.saturating_sub(offset.as_nanos());
        self.header.start = self.header.start.map(|start| start.after(offset));
        self
    }

    /// Mean RTT without queueing over the whole path, or over one repetition of a repeated path. It does not depend on
    /// the duration of the run, unless the path was made for that duration.
    pub fn whole_mean_base_rtt(&self) -> Duration {
        self.mean_base_rtt(Instant::START, self.whole_end())
    }

    /// End of the whole path, or of one repetition of a repeated path.
    pub fn whole_end(&self) -> Instant {
        let PathHeader { duration_ns, period_ns, .. } = self.header;
        let last_ns = self.frames.last().map_or(0, |frame| frame.at.as_nanos());
        // The last frame of a path without a duration counts too.
        Instant::from_nanos(period_ns.unwrap_or(if duration_ns == 0 {
            last_ns + 1
        } else {
            duration_ns
        }))
    }

    /// Mean RTT without queueing from `from` until `until`, over the time in which there is a path; zero if there is
    /// none.
    pub fn mean_base_rtt(&self, from: Instant, until: Instant) -> Duration {
        let (mut rtt_ns, mut connected_ns) = (0_u128, 0_u128);
        for (index, frame) in self.frames.iter().enumerate() {
            let end = self.frames.get(index + 1).map_or(until, |next| next.at.min(until));
            let valid_ns = u128::from(end.saturating_since(frame.at.max(from)).as_nanos());
            if let (Some(there), Some(back)) = (frame.delay, frame.delay_back) {
                rtt_ns += u128::from((there + back).as_nanos()) * valid_ns;
                connected_ns += valid_ns;
            }
        }
        Duration::from_nanos(rtt_ns.checked_div(connected_ns).unwrap_or(0) as u64)
    }

    /// Events of all frames in order of time.
    pub fn events(&self) -> impl Iterator<Item = &PathEvent> {
        self.frames.iter().flat_map(|frame| &frame.events)
    }
}

impl Frame {
    /// Whether the frame has a rate or a loss of its own in the direction back.
    pub fn differs_back(&self) -> bool {
        self.rate_back.is_some() || self.loss_back.is_some()
    }

    /// Size in memory including the lists, in bytes.
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
