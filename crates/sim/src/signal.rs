//! Announcements on their way to the congestion controls, and what those say they do about them.

use skyhop_cc::{Handover, Phase, PhaseKind};
use skyhop_record::{EventRow, RowKind};
use skyhop_signal::Announcement;
use skyhop_units::Instant;

use crate::flow::{Flow, Kind};

/// The announcements that are still to be made, the next one last.
#[derive(Debug)]
pub(crate) struct Signal(Vec<Announcement>);

impl Signal {
    pub(crate) fn new(announcements: &[Announcement]) -> Self {
        Self(announcements.iter().rev().copied().collect())
    }

    /// When the next announcement is made.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.last().map(|next| next.announced)
    }

    /// The next announcement that is due, as a congestion control reads it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Handover> {
        self.next().filter(|next| *next <= now)?;
        let due = self.0.pop()?;
        Some(Handover {
            at_ns: due.at.as_nanos(),
            outage_ns: due.outage.as_nanos(),
            error_ns: due.error.as_nanos(),
            kind: due.kind as u32,
            valid: 1,
        })
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
        kind: match phase.kind {
            PhaseKind::Hold => RowKind::Hold,
            PhaseKind::Drain => RowKind::Drain,
            PhaseKind::ProbeRtt => RowKind::ProbeRtt,
        },
        flow: Some(flow),
        length_ns: Some(phase.end_ns.saturating_sub(phase.begin_ns) as i64),
        ..EventRow::default()
    }
}
