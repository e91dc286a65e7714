//! `link.queues = "per-hop"`: a path taken apart into its hops, each with a queue of its own.
//!
//! A hop is its place on the path, as a switch in LeoEM's chain is: where the path changes, what waits before hop 3 goes
//! over the new hop 3. What waits before a hop that ceases to exist is lost with it. On a path with fewer hops than the
//! longest has, packets pass through the others as through nothing.

use skyhop_link::{Dismantled, LinkSchedule, Piece};
use skyhop_model::PathEventKind;
use skyhop_path::{Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant, Rate};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::schedule::dismantled_hops;
use crate::types::Queues;

/// The rate of a hop that the path does not have: a packet passes in 12 ns.
const NO_HOP: Rate = Rate::from_bits_per_second(1_000_000_000_000);

/// What is at one place of the path over time.
#[derive(Debug)]
pub(crate) struct Hop {
    /// Its delays and outages. Its frames have the nodes at its ends alone.
    pub(crate) trace: PathTrace,
    /// What kind of hop is there, from when on.
    kinds: Vec<(Instant, Kind)>,
    /// When the hop that was there ceased to exist.
    gone: Vec<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The path's first or last.
    End,
    Inner,
    /// The path has fewer.
    None,
}

impl Hop {
    /// Gives a schedule that was made of its trace what only a hop has: rates of its own, of which the schedule has that
    /// of inner hops, and what is lost on it and before it.
    pub(crate) fn complete(&self, schedule: &mut LinkSchedule, end_rate: Option<Rate>) {
        let inner = schedule.rate[0].value;
        let rate = |kind| match kind {
            Kind::End => end_rate.unwrap_or(inner),
            Kind::Inner => inner,
            Kind::None => NO_HOP,
        };
        schedule.rate.clear();
        for &(from, kind) in &self.kinds {
            let value = rate(kind);
            if schedule.rate.last().is_none_or(|last| last.value != value) {
                schedule.rate.push(Piece { from, value });
            }
        }
        let (near, far) = (Duration::ZERO, Duration::MAX);
        let lost = self.gone.iter().map(|&at| Dismantled { at, near, far, queue: true });
        schedule.dismantled = lost.collect();
    }
}

impl NamedScenario {
    /// The hops of `[path]`; none where one queue stands for all of them.
    ///
    /// # Errors
    /// The path does not know its hops.
    pub(crate) fn hops(&self, trace: &PathTrace) -> Result<Vec<Hop>, ScenarioError> {
        if self.scenario.link.queues == Queues::Path {
            return Ok(Vec::new());
        }
        let mut connected = trace.frames.iter().filter(|frame| frame.delay.is_some());
        if connected.any(|frame| frame.hop_delays.is_empty() || frame.nodes.is_empty()) {
            return Err(self.wrong(
                "link.queues",
                "\"per-hop\" needs a path that knows its hops, as computed ones do",
            ));
        }
        let count = trace.frames.iter().map(|frame| frame.hop_delays.len()).max().unwrap_or(0);
        Ok((0..count).map(|place| hop(trace, place)).collect())
    }

    /// The numbers of the links that `hops` are, from the end `from` on; that of the path alone where there are none.
    pub(crate) fn path_links(&self, hops: &[Hop]) -> Vec<u16> {
        let others = self.scenario.links.len() as u16;
        (0..hops.len().max(1) as u16).map(|hop| if hop == 0 { 0 } else { others + hop }).collect()
    }
}

fn hop(trace: &PathTrace, place: usize) -> Hop {
    let mut frames = Vec::<Frame>::with_capacity(trace.frames.len());
    let (mut kinds, mut gone) = (Vec::<(Instant, Kind)>::new(), Vec::new());
    let mut last_connected: Option<&Frame> = None;
    for frame in &trace.frames {
        if let Some(old) = last_connected {
            let is_gone = |event: &&PathEvent| dismantled_hops(old, frame, event).contains(&place);
            gone.extend(frame.events.iter().filter(is_gone).map(|event| event.at));
        }
        if frame.delay.is_some() {
            last_connected = Some(frame);
            let kind = kind_at(frame, place);
            if kinds.last().is_none_or(|last| last.1 != kind) {
                kinds.push((frame.at, kind));
            }
        }
        frames.extend(frame_at(frame, place));
    }
    gone.dedup();
    // Whatever it is before there is a path for the first time.
    kinds[0].0 = Instant::START;
    frames[0].at = Instant::START;
    Hop { trace: PathTrace { header: trace.header.clone(), frames }, kinds, gone }
}

fn kind_at(frame: &Frame, place: usize) -> Kind {
    match frame.hop_delays.len().checked_sub(place + 1) {
        None => Kind::None,
        Some(0) => Kind::End,
        Some(_) if place == 0 => Kind::End,
        Some(_) => Kind::Inner,
    }
}

/// What one place of the path is like in a frame; behind the first, a time without a path leaves it as it is.
fn frame_at(frame: &Frame, place: usize) -> Option<Frame> {
    let events = outages_at(frame, place);
    let (Some(there), Some(back)) = (frame.delay, frame.delay_back) else {
        return (place == 0).then(|| Frame { at: frame.at, events, ..Frame::default() });
    };
    let Some(&delay) = frame.hop_delays.get(place) else {
        let (delay, delay_back) = (Some(Duration::ZERO), Some(Duration::ZERO));
        return Some(Frame { at: frame.at, delay, delay_back, events, ..Frame::default() });
    };
    let stretch = back.as_secs_f64() / there.as_secs_f64().max(1e-9);
    let delay_back = if back == there { delay } else { delay.mul_f64(stretch) };
    Some(Frame {
        at: frame.at,
        nodes: frame.nodes[place..place + 2].to_vec(),
        delay: Some(delay),
        delay_back: Some(delay_back),
        events,
        ..Frame::default()
    })
}

/// The outages of a frame that are this place's. Those of the whole path are its first hop's.
fn outages_at(frame: &Frame, place: usize) -> Vec<PathEvent> {
    let is_here = |event: &&PathEvent| {
        event.outage > Duration::ZERO && usize::from(event.hop.unwrap_or(0)) == place
    };
    let kind = PathEventKind::Reroute;
    frame.events.iter().filter(is_here).map(|event| PathEvent { kind, ..*event }).collect()
}
