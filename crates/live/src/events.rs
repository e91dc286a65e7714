//! Rows of events.parquet: what the path did, what the scenario changed, what was lost.

use skyhop_path::{EventKind, PathEvent};
use skyhop_record::{EventRow, Handovers, RowKind};
use skyhop_scenario::Experiment;
use skyhop_units::{Duration, Instant};

/// All events of the run's first `elapsed`, in order.
pub(crate) fn rows(
    experiment: &Experiment,
    losses: Vec<EventRow>,
    elapsed: Duration,
) -> Vec<EventRow> {
    let until = Instant::START + elapsed;
    let mut rows: Vec<EventRow> = within(experiment, until).map(path_row).collect();
    let changes = experiment.changes.iter().filter(|(at, _)| *at < until);
    rows.extend(changes.map(|(at, outage)| EventRow {
        t_ns: at.as_nanos() as i64,
        kind: RowKind::Change,
        outage_ns: outage.as_nanos() as i64,
        ..EventRow::default()
    }));
    rows.extend(losses);
    rows.sort_by_key(|row| row.t_ns);
    rows
}

/// Handovers by kind in the run's first `elapsed`.
pub(crate) fn handovers(experiment: &Experiment, elapsed: Duration) -> Handovers {
    use skyhop_path::EventKind::{End, Intermediate, Reroute};
    let until = Instant::START + elapsed;
    let count = |kind| within(experiment, until).filter(|event| event.kind == kind).count() as u64;
    Handovers { end: count(End), intermediate: count(Intermediate), reroute: count(Reroute) }
}

fn within(experiment: &Experiment, until: Instant) -> impl Iterator<Item = &PathEvent> {
    experiment.trace.events().filter(move |event| event.at < until)
}

fn row_kind(kind: EventKind) -> RowKind {
    match kind {
        EventKind::End => RowKind::End,
        EventKind::Intermediate => RowKind::Intermediate,
        EventKind::Reroute => RowKind::Reroute,
        EventKind::Lost => RowKind::Lost,
        EventKind::Restored => RowKind::Restored,
    }
}

fn path_row(event: &PathEvent) -> EventRow {
    EventRow {
        t_ns: event.at.as_nanos() as i64,
        kind: row_kind(event.kind),
        hop: event.hop.map(i32::from),
        outage_ns: event.outage.as_nanos() as i64,
        ..EventRow::default()
    }
}
