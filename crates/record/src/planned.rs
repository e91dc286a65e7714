//! Rows of events.parquet for the events that an experiment schedules; they are the same for every engine.

use std::collections::BTreeMap;

use skyhop_experiment::Experiment;
use skyhop_model::{EventKind, PathEventKind};
use skyhop_path::PathTrace;
use skyhop_signal::blind::Estimate;
use skyhop_units::Instant;

use crate::{EventRow, GridSummary, NO_LINK};

/// Rows of all scheduled events in order of time: events of paths, changes of the scenario, announcements.
pub(crate) fn planned_rows(experiment: &Experiment) -> Vec<EventRow> {
    let links = (0..).zip(&experiment.links);
    let mut rows: Vec<EventRow> = links
        .flat_map(|(number, link)| {
            link.trace.events().map(move |event| EventRow::of_path(event, number))
        })
        .collect();
    rows.extend(experiment.changes.iter().map(|change| EventRow {
        t_ns: change.at.as_nanos() as i64,
        kind: EventKind::Change,
        outage_ns: change.outage.as_nanos() as i64,
        link: change.link,
        flow: change.flow.map(|id| id as i32),
        ..EventRow::default()
    }));
    // In a network they are those of a schedule, and concern all links.
    let is_network = experiment.network.is_some();
    let announced = experiment.announcements.iter().map(EventRow::announced);
    rows.extend(
        announced.map(|row| EventRow { link: if is_network { NO_LINK } else { row.link }, ..row }),
    );
    rows.sort_by_key(|row| row.t_ns);
    rows
}

/// Numbers of handovers of a path before `until`, by kind.
pub(crate) fn handovers(trace: &PathTrace, until: Instant) -> BTreeMap<PathEventKind, u64> {
    let mut counts: BTreeMap<_, _> = PathEventKind::handovers().map(|kind| (kind, 0)).collect();
    for event in trace.events().filter(|event| event.at < until) {
        counts.entry(event.kind).and_modify(|count| *count += 1);
    }
    counts
}

/// Convert an estimate of the handover grid into its form in summary.json.
pub fn grid_summary(estimate: &Estimate) -> GridSummary {
    GridSummary {
        grid: estimate.grid.is_some(),
        offset_s: estimate.grid.map(|grid| grid.offset.as_secs_f64()),
        period_s: estimate.grid.map(|grid| grid.period.as_secs_f64()),
        confidence: estimate.confidence,
        samples: estimate.samples,
        evidence: estimate.evidence.name().to_owned(),
    }
}
