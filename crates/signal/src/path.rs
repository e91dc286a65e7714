//! The path itself as the source of handovers, whose times are therefore exact.

use skyhop_model::HandoverKind;
use skyhop_model::PathEventKind;
use skyhop_path::{Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant};

use crate::Handover;

/// Return the path's handovers in order of time.
///
/// Events at the same time are one handover, with the most severe kind and the longest outage. `changes` are the
/// times at which the scenario changes the path, each with the outage that begins at that time. Loss and restoration
/// of the path count as handovers, because packets in flight are lost and the RTT is different afterwards.
pub fn handovers(trace: &PathTrace, changes: &[(Instant, Duration)]) -> Vec<Handover> {
    let changed = changes.iter().map(|&(at, outage)| Handover {
        at,
        outage,
        error: Duration::ZERO,
        kind: HandoverKind::Unknown,
    });
    merged(trace.events().map(of_event).chain(changed))
}

/// Return the handovers of a path's events, which may be in any order, in order of time. Events at the same time are
/// one handover, as in [`handovers`].
pub fn of_events<'e>(events: impl IntoIterator<Item = &'e PathEvent>) -> Vec<Handover> {
    merged(events.into_iter().map(of_event))
}

/// Sort handovers by time, and merge those at the same time.
fn merged(handovers: impl Iterator<Item = Handover>) -> Vec<Handover> {
    let mut all: Vec<Handover> = handovers.collect();
    all.sort_by_key(|handover| handover.at);
    all.dedup_by(|next, first| {
        let same = next.at == first.at;
        if same {
            *first = most_severe(*first, *next);
        }
        same
    });
    all
}

/// Merge the events of a frame into one handover; `None` if it has no events.
pub(crate) fn of_frame(frame: &Frame) -> Option<Handover> {
    frame.events.iter().map(of_event).reduce(most_severe)
}

/// Merge two handovers at the same time: the more severe kind, the longer outage, the larger error.
fn most_severe(first: Handover, next: Handover) -> Handover {
    Handover {
        outage: first.outage.max(next.outage),
        error: first.error.max(next.error),
        kind: first.kind.min(next.kind),
        ..first
    }
}

fn of_event(event: &PathEvent) -> Handover {
    let kind = match event.kind {
        PathEventKind::End => HandoverKind::End,
        PathEventKind::Intermediate | PathEventKind::Reroute => HandoverKind::Intermediate,
        PathEventKind::Lost | PathEventKind::Restored => HandoverKind::Unknown,
    };
    Handover { at: event.at, outage: event.outage, error: Duration::ZERO, kind }
}
