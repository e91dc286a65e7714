//! Announcements on their way to the congestion controls, and what those say they do about them.

use skyhop_cc::{Handover, Phase};
use skyhop_model::EventKind;
use skyhop_record::{EventRow, GridSummary};
use skyhop_scenario::blind::grid_summary;
use skyhop_scenario::{Experiment, announcement_row};
use skyhop_signal::Announcement;
use skyhop_signal::blind::{BlindSource, Said};
use skyhop_units::{Duration, Instant};

use crate::flow::{Flow, Kind};

/// The announcements that are still to be made.
#[derive(Debug)]
pub(crate) struct Signal {
    /// Those that are known beforehand, the next one last.
    planned: Vec<Announcement>,
    /// Who finds out about the others.
    blind: Option<BlindSource>,
    end: Instant,
}

impl Signal {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        Self {
            planned: experiment.announcements.iter().rev().copied().collect(),
            blind: experiment.blind.map(BlindSource::new),
            end: Instant::START + experiment.duration,
        }
    }

    /// Something has come out of the path at its end `from`, after `delay` one way.
    pub(crate) fn arrived(&mut self, at: Instant, delay: Duration) {
        if let Some(blind) = &mut self.blind {
            blind.arrived(at, delay);
        }
    }

    /// When there is something to announce or to find out next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let next = match &self.blind {
            Some(blind) => blind.next().unwrap_or(Instant::NEVER).min(blind.next_estimate()),
            None => self.planned.last()?.announced,
        };
        Some(next).filter(|next| *next < self.end)
    }

    /// The next announcement that is due, as a congestion control reads it, and its row where the
    /// experiment did not plan it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Handover, Option<EventRow>)> {
        let Some(blind) = &mut self.blind else {
            self.planned.last().filter(|next| next.announced <= now)?;
            return self.planned.pop().map(|due| (handover(&due), None));
        };
        if now >= blind.next_estimate() {
            let estimate = blind.estimate();
            blind.learn(now, &estimate);
        }
        Some(match blind.poll(now)? {
            Said::Announced(due) => (handover(&due), Some(announcement_row(&due))),
            Said::Withdrawn => (Handover::default(), None),
        })
    }

    /// What has been found out by the end of the run.
    pub(crate) fn found(&self) -> Option<GridSummary> {
        self.blind.as_ref().map(|blind| grid_summary(&blind.estimate()))
    }
}

fn handover(due: &Announcement) -> Handover {
    Handover {
        at_ns: due.at.as_nanos(),
        outage_ns: due.outage.as_nanos(),
        error_ns: due.error.as_nanos(),
        kind: due.kind as u32,
        valid: 1,
    }
}

/// The rows of what a flow's congestion control has done since it was last asked.
pub(crate) fn phase_rows(flow: &mut Flow) -> impl Iterator<Item = EventRow> + use<> {
    let phases = match &mut flow.kind {
        Kind::Tcp(connection) => connection.sender.congestion_control().take_phases(),
        Kind::Probe(_) => Vec::new(),
    };
    let id = flow.plan.id as i32;
    phases.into_iter().map(move |phase| phase_row(&phase, id))
}

fn phase_row(phase: &Phase, flow: i32) -> EventRow {
    EventRow {
        t_ns: phase.begin_ns as i64,
        kind: EventKind::Phase(phase.kind),
        flow: Some(flow),
        length_ns: Some(phase.end_ns.saturating_sub(phase.begin_ns) as i64),
        ..EventRow::default()
    }
}
