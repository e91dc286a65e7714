//! What an experiment makes happen, as rows of events.parquet: the same for every engine.

use std::collections::BTreeMap;

use skyhop_model::{EventKind, PathEventKind};
use skyhop_path::{PathEvent, PathTrace};
use skyhop_record::EventRow;
use skyhop_signal::Announcement;
use skyhop_units::{Duration, Instant};

use crate::Experiment;

impl Experiment {
    /// All events of the run's first `elapsed`, in order: the path's, the scenario's changes, the
    /// announcements, and what was `measured`.
    pub fn event_rows(&self, measured: Vec<EventRow>, elapsed: Duration) -> Vec<EventRow> {
        let until = Instant::START + elapsed;
        let links = 0..=self.more_links.len() as u16;
        let mut rows: Vec<EventRow> = links
            .flat_map(|link| {
                events_until(self.trace_of(link), until).map(move |e| path_row(e, link))
            })
            .collect();
        let changes = self.changes.iter().filter(|change| change.at < until);
        rows.extend(changes.map(|change| EventRow {
            t_ns: change.at.as_nanos() as i64,
            kind: EventKind::Change,
            outage_ns: change.outage.as_nanos() as i64,
            link: change.link,
            flow: change.flow.map(|id| id as i32),
            ..EventRow::default()
        }));
        let said = self.announcements.iter().filter(|said| said.announced < until);
        rows.extend(said.map(announcement_row));
        rows.extend(measured);
        rows.sort_by_key(|row| row.t_ns);
        rows
    }

    /// Handovers of the path by kind in the run's first `elapsed`.
    pub fn handovers(&self, elapsed: Duration) -> BTreeMap<PathEventKind, u64> {
        let until = Instant::START + elapsed;
        let mut counts: BTreeMap<_, _> = PathEventKind::handovers().map(|kind| (kind, 0)).collect();
        for event in events_until(&self.trace, until) {
            counts.entry(event.kind).and_modify(|count| *count += 1);
        }
        counts
    }
}

/// The row of an announcement.
pub fn announcement_row(announcement: &Announcement) -> EventRow {
    EventRow {
        t_ns: announcement.announced.as_nanos() as i64,
        kind: EventKind::Announcement,
        outage_ns: announcement.outage.as_nanos() as i64,
        at_ns: Some(announcement.at.as_nanos() as i64),
        ..EventRow::default()
    }
}

fn events_until(trace: &PathTrace, until: Instant) -> impl Iterator<Item = &PathEvent> {
    trace.events().filter(move |event| event.at < until)
}

fn path_row(event: &PathEvent, link: u16) -> EventRow {
    EventRow {
        t_ns: event.at.as_nanos() as i64,
        kind: EventKind::Path(event.kind),
        hop: event.hop.map(i32::from),
        outage_ns: event.outage.as_nanos() as i64,
        link,
        ..EventRow::default()
    }
}
