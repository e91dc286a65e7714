//! The path itself as the source: its handovers are known.

use skyhop_model::HandoverKind;
use skyhop_model::PathEventKind;
use skyhop_path::{Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant};

use crate::Handover;

/// The path's handovers, in order. What happens at one moment is one handover: the gravest kind, the longest
/// outage. `changes` are moments at which somebody else changes the path, each with the outage it begins.
///
/// A path that is lost or restored counts: what is in flight then goes astray, and the RTT is another after it.
pub fn handovers(trace: &PathTrace, changes: &[(Instant, Duration)]) -> Vec<Handover> {
    let changed = changes.iter().map(|&(at, outage)| Handover {
        at,
        outage,
        error: Duration::ZERO,
        kind: HandoverKind::Unknown,
    });
    let mut all: Vec<Handover> = trace.events().map(of_event).chain(changed).collect();
    all.sort_by_key(|handover| handover.at);
    all.dedup_by(|next, first| {
        let same = next.at == first.at;
        if same {
            *first = gravest(*first, *next);
        }
        same
    });
    all
}

/// What happens with a frame, taken as one handover; `None` where nothing does.
pub(crate) fn of_frame(frame: &Frame) -> Option<Handover> {
    frame.events.iter().map(of_event).reduce(gravest)
}

/// Two handovers of one moment.
fn gravest(first: Handover, next: Handover) -> Handover {
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
