//! Split of a path into hops, each with its own queue, for `link.queues = "per-hop"`.
//!
//! Hops are numbered positions on the path, like the switches in LeoEM's chain: when the path changes,
//! packets in the queue of hop 3 go over the new hop 3. Packets in the queue of a hop that ceases to exist
//! are lost with it. There are as many positions as the path has hops at its longest; at times when the
//! path has fewer hops, packets pass through the unused positions without delay.

use skyhop_link::{Dismantled, LinkSchedule, Piece};
use skyhop_model::{End, PathEventKind};
use skyhop_path::{Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant, Rate};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::schedule::dismantled_hops;
use crate::types::Queues;

/// Rate of a position without a hop: a packet takes 12 ns.
const NO_HOP: Rate = Rate::from_bits_per_second(1_000_000_000_000);

/// One position on the path over time.
#[derive(Debug)]
pub(crate) struct Hop {
    /// Delays and outages of the position. Its frames have only the nodes at both ends of the hop.
    pub(crate) trace: PathTrace,
    /// Kinds of the hop at this position, each with the time from which on it holds.
    kinds: Vec<(Instant, HopKind)>,
    /// Times at which the hop at this position ceases to exist.
    dismantled: Vec<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HopKind {
    /// First or last hop of the path.
    End,
    Inner,
    /// No hop, because the path has fewer.
    None,
}

impl Hop {
    /// Add the properties of a hop to the `schedule` built from `trace`: the rate of each kind of hop (the
    /// schedule has the rate of inner hops throughout), and the loss of packets when the hop is dismantled.
    pub(crate) fn complete(&self, schedule: &mut LinkSchedule, end_rate: Option<Rate>) {
        let inner = schedule.rate[0].value;
        let rate = |kind| match kind {
            HopKind::End => end_rate.unwrap_or(inner),
            HopKind::Inner => inner,
            HopKind::None => NO_HOP,
        };
        schedule.rate.clear();
        for &(from, kind) in &self.kinds {
            let value = rate(kind);
            if schedule.rate.last().is_none_or(|last| last.value != value) {
                schedule.rate.push(Piece { from, value });
            }
        }
        let (near, far) = (Duration::ZERO, Duration::MAX);
        let lost = self.dismantled.iter().map(|&at| Dismantled { at, near, far, queue: true });
        schedule.dismantled = lost.collect();
    }
}

impl NamedScenario {
    /// Split `[path]` into hops; return none if one queue serves all hops together.
    ///
    /// # Errors
    /// The path's file does not contain its hops.
    pub(crate) fn hops(&self, trace: &PathTrace) -> Result<Vec<Hop>, ScenarioError> {
        if self.scenario.link.queues == Queues::Path {
            return Ok(Vec::new());
        }
        let mut connected = trace.frames.iter().filter(|frame| frame.delay.is_some());
        if connected.any(|frame| frame.hop_delays.is_empty() || frame.nodes.is_empty()) {
            return Err(self.key_error(
                "link.queues",
                "\"per-hop\" needs a path that knows its hops, as computed ones do",
            ));
        }
        let count = trace.frames.iter().map(|frame| frame.hop_delays.len()).max().unwrap_or(0);
        Ok((0..count).map(|position| hop(trace, position)).collect())
    }

    /// Link numbers of `hops`, from the end `from` on; without hops the number of the path's single link.
    pub(crate) fn path_links(&self, hops: &[Hop]) -> Vec<u16> {
        let others = self.scenario.links.len() as u16;
        (0..hops.len().max(1) as u16).map(|hop| if hop == 0 { 0 } else { others + hop }).collect()
    }
}

fn hop(trace: &PathTrace, position: usize) -> Hop {
    let mut frames = Vec::<Frame>::with_capacity(trace.frames.len());
    let (mut kinds, mut dismantled) = (Vec::<(Instant, HopKind)>::new(), Vec::new());
    let mut last_connected: Option<&Frame> = None;
    for frame in &trace.frames {
        if let Some(old) = last_connected {
            let is_gone = |event: &&PathEvent| {
                dismantled_hops(old, frame, event, trace.header.dish).contains(&position)
            };
            dismantled.extend(frame.events.iter().filter(is_gone).map(|event| event.at));
        }
        if frame.delay.is_some() {
            last_connected = Some(frame);
            let kind = kind_at(frame, position);
            if kinds.last().is_none_or(|last| last.1 != kind) {
                kinds.push((frame.at, kind));
            }
        }
        frames.extend(frame_at(frame, position, trace.header.dish));
    }
    dismantled.dedup();
    // The first kind and frame also hold before the path is connected for the first time.
    kinds[0].0 = Instant::START;
    frames[0].at = Instant::START;
    Hop { trace: PathTrace { header: trace.header.clone(), frames }, kinds, dismantled }
}

fn kind_at(frame: &Frame, position: usize) -> HopKind {
    match frame.hop_delays.len().checked_sub(position + 1) {
        None => HopKind::None,
        Some(0) => HopKind::End,
        Some(_) if position == 0 => HopKind::End,
        Some(_) => HopKind::Inner,
    }
}

/// Frame of one position. A time without a path appears only in the frames of the first position; for the
/// others there is no frame, so that their previous state persists.
fn frame_at(frame: &Frame, position: usize, dish: Option<End>) -> Option<Frame> {
    let events = outages_at(frame, position, dish);
    let (Some(there), Some(back)) = (frame.delay, frame.delay_back) else {
        return (position == 0).then(|| Frame { at: frame.at, events, ..Frame::default() });
    };
    let Some(&delay) = frame.hop_delays.get(position) else {
        let (delay, delay_back) = (Some(Duration::ZERO), Some(Duration::ZERO));
        return Some(Frame { at: frame.at, delay, delay_back, events, ..Frame::default() });
    };
    let stretch = back.as_secs_f64() / there.as_secs_f64().max(1e-9);
    let delay_back = if back == there { delay } else { delay.mul_f64(stretch) };
    Some(Frame {
        at: frame.at,
        nodes: frame.nodes[position..position + 2].to_vec(),
        delay: Some(delay),
        delay_back: Some(delay_back),
        events,
        ..Frame::default()
    })
}

/// Outages of a frame that belong to one position; outages of the whole path belong to the terminal's hop.
fn outages_at(frame: &Frame, position: usize, dish: Option<End>) -> Vec<PathEvent> {
    let terminal = match dish.unwrap_or_default() {
        End::From => 0,
        End::To => frame.hop_delays.len().saturating_sub(1),
    };
    let is_here = |event: &&PathEvent| {
        event.outage > Duration::ZERO && event.hop.map_or(terminal, usize::from) == position
    };
    let kind = PathEventKind::Reroute;
    frame.events.iter().filter(is_here).map(|event| PathEvent { kind, ..*event }).collect()
}
