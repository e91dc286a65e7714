//! Schedules of links: the delay, rate, loss and outages of each direction over time, derived from a path.

use skyhop_link::{DelayPiece, Dismantled, LinkSchedule, Loss, Outage, Piece};
use skyhop_model::{Direction, DuringOutage, End, PathEventKind};
use skyhop_path::{BetweenFrames, Frame, PathEvent, PathTrace};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::plan::change::takes_effect;
use crate::types::{Change, LinkKeys};

/// Settings of one direction of a link, in addition to its path.
pub(crate) struct DirectionSettings<'a> {
    pub direction: Direction,
    /// Keys of the direction; a given rate or loss takes precedence over the path's.
    pub given: &'a LinkKeys,
    /// Whether `[[change]]` entries change the rate of this direction.
    pub rate_changes: bool,
    pub during_outage: DuringOutage,
}

/// Build the schedule of one direction. `trace` already includes the RTT changes of `[[change]]` entries.
pub(crate) fn link_schedule(
    trace: &PathTrace,
    changes: &[Change],
    settings: &DirectionSettings<'_>,
) -> LinkSchedule {
    LinkSchedule {
        delay: delay_pieces(trace, changes, settings),
        rate: rate_pieces(trace, changes, settings),
        loss: loss_pieces(trace, changes, settings),
        outages: outages(trace, changes),
        dismantled: dismantled(trace, settings.direction),
        during_outage: settings.during_outage,
        burst: settings.given.values().burst.unwrap_or(Bytes::ZERO),
        dama: settings.given.values().dama,
        background: None,
    }
}

fn delay_of(frame: &Frame, direction: Direction) -> Option<Duration> {
    match direction {
        Direction::Forward => frame.delay,
        Direction::Back => frame.delay_back,
    }
}

/// Delay pieces, one per frame with a path; times without a path are outages, so their delay is not used.
fn delay_pieces(
    trace: &PathTrace,
    changes: &[Change],
    settings: &DirectionSettings<'_>,
) -> Vec<DelayPiece> {
    let (direction, reorder) = (settings.direction, settings.given.values().reorder == Some(true));
    // A change of the RTT is a step, even if the path interpolates between its frames.
    let steps: Vec<Instant> =
        changes.iter().filter(|c| c.rtt.is_some()).map(takes_effect).collect();
    let mut pieces: Vec<DelayPiece> = Vec::with_capacity(trace.frames.len());
    let mut route: Option<&[i32]> = None;
    for (index, frame) in trace.frames.iter().enumerate() {
        let Some(delay) = delay_of(frame, direction) else { continue };
        let from = if pieces.is_empty() { Instant::START } else { frame.at };
        let falls = reorder && pieces.last().is_some_and(|last| delay < last.delay_at_end);
        let changes_route = route.is_some_and(|nodes| nodes != frame.nodes);
        let new_route = falls || (changes_route && !trace.header.in_order);
        route = Some(&frame.nodes);
        let delay_at_end = match trace.frames.get(index + 1) {
            Some(next)
                if trace.header.between_frames == BetweenFrames::Linear
                    && next.nodes == frame.nodes
                    && !steps.contains(&next.at) =>
            {
                delay_of(next, direction).unwrap_or(delay)
            }
            _ => delay,
        };
        let continues = pieces.last().is_some_and(|last| {
            !new_route && last.delay == delay && last.delay_at_end == delay && delay_at_end == delay
        });
        if !continues {
            pieces.push(DelayPiece { from, delay, delay_at_end, new_route });
        }
    }
    pieces
}

/// Build the value of one property over time. Until the first change it is `constant` or comes from
/// the path's frames; from then on it comes from the changes.
fn pieces<T: Copy + PartialEq>(
    constant: T,
    frames: impl Iterator<Item = (Instant, Option<T>)>,
    changes: impl Iterator<Item = (Instant, T)>,
) -> Vec<Piece<T>> {
    let mut changes: Vec<(Instant, T)> = changes.collect();
    changes.sort_by_key(|(at, _)| *at);
    let first_change = changes.first().map_or(Instant::NEVER, |(at, _)| *at);
    let from_path = frames
        .filter_map(|(at, value)| Some((at, value?)))
        .take_while(|(at, _)| *at < first_change);
    let mut pieces = vec![Piece { from: Instant::START, value: constant }];
    for (from, value) in from_path.chain(changes.iter().copied()) {
        match pieces.last_mut() {
            Some(last) if last.from == from => last.value = value,
            Some(last) if last.value == value => {}
            _ => pieces.push(Piece { from, value }),
        }
    }
    pieces
}

/// Rate that a frame of `trace` has in a direction.
pub(crate) fn rate_of(trace: &PathTrace, frame: &Frame, direction: Direction) -> Option<Rate> {
    match direction {
        Direction::Forward => frame.rate,
        Direction::Back => frame.rate_back.or(frame.rate.filter(|_| !trace.header.directed)),
    }
}

fn rate_pieces(
    trace: &PathTrace,
    changes: &[Change],
    settings: &DirectionSettings<'_>,
) -> Vec<Piece<Rate>> {
    let of = |frame: &Frame| (frame.at, rate_of(trace, frame, settings.direction));
    let frames = trace.frames.iter().filter(|_| settings.given.rate.is_none()).map(of);
    let changes = changes.iter().filter(|_| settings.rate_changes);
    pieces(
        settings.given.values().rate,
        frames,
        changes.filter_map(|c| Some((takes_effect(c), c.rate?))),
    )
}

fn loss_pieces(
    trace: &PathTrace,
    changes: &[Change],
    settings: &DirectionSettings<'_>,
) -> Vec<Piece<Loss>> {
    // The scenario's changes apply only to the direction from -> to.
    let forward = settings.direction == Direction::Forward;
    let of = |frame: &Frame| if forward { frame.loss } else { frame.loss_back };
    let frames = trace.frames.iter().filter(|_| settings.given.loss.is_none());
    let frames = frames.map(|frame| (frame.at, of(frame).and_then(Ratio::new).map(Loss::from)));
    let changes = changes.iter().filter(|_| forward);
    pieces(
        settings.given.values().loss,
        frames,
        changes.filter_map(|c| Some((takes_effect(c), c.loss?))),
    )
}

/// Outages of events and changes, and times without a path; overlapping ones are merged.
fn outages(trace: &PathTrace, changes: &[Change]) -> Vec<Outage> {
    let mut outages: Vec<Outage> = changes
        .iter()
        .filter_map(|change| Some((Instant::START + change.at, change.outage?)))
        .chain(trace.events().map(|event| (event.at, event.outage)))
        .filter(|(_, lasts)| *lasts > Duration::ZERO)
        .map(|(from, lasts)| Outage { from, until: from + lasts })
        .chain(without_path(trace))
        .collect();
    outages.sort_by_key(|outage| (outage.from, outage.until));
    let mut merged: Vec<Outage> = Vec::with_capacity(outages.len());
    for outage in outages {
        match merged.last_mut() {
            Some(last) if outage.from <= last.until => last.until = last.until.max(outage.until),
            _ => merged.push(outage),
        }
    }
    merged
}

fn without_path(trace: &PathTrace) -> impl Iterator<Item = Outage> {
    trace.frames.iter().enumerate().filter(|(_, frame)| frame.delay.is_none()).map(|(i, frame)| {
        let until = trace.frames.get(i + 1).map_or(Instant::NEVER, |next| next.at);
        Outage { from: frame.at, until }
    })
}

/// Hops that events dismantle, each as its section of the delay line of one direction.
fn dismantled(trace: &PathTrace, direction: Direction) -> Vec<Dismantled> {
    let mut result = Vec::new();
    let mut last_connected: Option<&Frame> = None;
    for frame in &trace.frames {
        if let Some(old) = last_connected {
            for event in &frame.events {
                for hop in dismantled_hops(old, frame, event, trace.header.dish) {
                    result.push(window(old, hop, event.at, direction));
                }
            }
        }
        if frame.delay.is_some() {
            last_connected = Some(frame);
        }
    }
    result.sort_by_key(|d: &Dismantled| (d.at, d.near));
    result.dedup();
    result
}

/// Indexes of the hops of the old path that an event dismantles.
///
/// An event names a hop of the new path. If the first node of that hop is on the old path too, the old
/// hop that leaves that node ceases to exist; if the second node is, the old hop that enters it.
pub(crate) fn dismantled_hops(
    old: &Frame,
    new: &Frame,
    event: &PathEvent,
    dish: Option<End>,
) -> Vec<usize> {
    let hops = old.nodes.len().saturating_sub(1);
    match (event.kind, event.hop) {
        // When the path is lost, the hop between the user and the first satellite is down (models.md, LeoEM).
        (PathEventKind::Lost, _) if hops > 0 => vec![match dish.unwrap_or_default() {
            End::From => 0,
            End::To => hops - 1,
        }],
        (PathEventKind::End | PathEventKind::Intermediate, Some(hop)) => {
            let place = |offset: usize| {
                let node = new.nodes.get(usize::from(hop) + offset)?;
                old.nodes.iter().position(|n| n == node)
            };
            let leaving = place(0).filter(|at| *at < hops);
            let joining = place(1).and_then(|at| at.checked_sub(1));
            let mut found: Vec<usize> = leaving.into_iter().chain(joining).collect();
            found.dedup();
            found
        }
        _ => Vec::new(),
    }
}

fn window(frame: &Frame, hop: usize, at: Instant, direction: Direction) -> Dismantled {
    let before: Duration = frame.hop_delays[..hop].iter().copied().sum();
    let after: Duration = frame.hop_delays[hop + 1..].iter().copied().sum();
    let length = frame.hop_delays[hop];
    let (near, beyond) = match direction {
        Direction::Forward => (before, after),
        Direction::Back => (after, before),
    };
    // The last hop reaches to the very end, since the delay may have grown since the frame began.
    let far = if beyond == Duration::ZERO { Duration::MAX } else { near + length };
    Dismantled { at, near, far, queue: false }
}
