//! The path itself as the source: whoever computed it knows its handovers.

use skyhop_path::{EventKind, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant};

use crate::{Handover, HandoverKind};

/// The path's handovers, in order. What happens at one moment is one handover: the gravest kind, the longest
/// outage. `changes` are moments at which somebody else changes the path, each with the outage it begins.
///
/// A path that is lost or restored counts: what is in flight then goes astray, and the RTT is another after it.
pub fn handovers(trace: &PathTrace, changes: &[(Instant, Duration)]) -> Vec<Handover> {
    let changed =
        changes.iter().map(|&(at, outage)| Handover { at, outage, kind: HandoverKind::Unknown });
    let mut all: Vec<Handover> = trace.events().map(of_event).chain(changed).collect();
    all.sort_by_key(|handover| handover.at);
    all.dedup_by(|next, first| {
        let same = next.at == first.at;
        if same {
            first.outage = first.outage.max(next.outage);
            first.kind = first.kind.min(next.kind);
        }
        same
    });
    all
}

fn of_event(event: &PathEvent) -> Handover {
    let kind = match event.kind {
        EventKind::End => HandoverKind::End,
        EventKind::Intermediate | EventKind::Reroute => HandoverKind::Intermediate,
        EventKind::Lost | EventKind::Restored => HandoverKind::Unknown,
    };
    Handover { at: event.at, outage: event.outage, kind }
}
