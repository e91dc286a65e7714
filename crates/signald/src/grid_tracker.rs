//! Handover grid that the service estimates from traffic while it runs.

use skyhop_signal::Agenda;
use skyhop_signal::schedule::HandoverGrid;
use skyhop_units::{Duration, Instant};
use tracing::debug;

use crate::ServiceSource;
use crate::watcher::{Observation, Watcher};
use skyhop_host::ServiceControl;
use skyhop_host::error::HostError;

/// Tracker that passes a watcher's estimates to the agenda; a no-op for sources without a watcher.
pub(crate) struct GridTracker {
    watcher: Option<Watcher>,
    /// Latest estimate of the grid, and the error of its times.
    known: Option<(HandoverGrid, Duration)>,
}

impl GridTracker {
    pub(crate) fn start(source: &ServiceSource) -> Result<Self, HostError> {
        let watcher = match source {
            ServiceSource::Watched { interface, period } => {
                Some(Watcher::start(interface, *period)?)
            }
            _ => None,
        };
        Ok(Self { watcher, known: None })
    }

    /// Adapt to a step of UTC by `step_ns`: the handovers themselves do not move, so that the
    /// grid's offset in UTC changes.
    pub(crate) fn clock_set(&mut self, agenda: &mut Agenda, now: Instant, step_ns: i64) {
        let Some(watcher) = &self.watcher else { return };
        watcher.reset();
        self.known = self.known.map(|grid| shifted(grid, step_ns));
        agenda.set_grid(now, self.known);
    }

    /// Pass the latest estimate to the agenda, if there is a new one; return a message to the user, if any.
    pub(crate) fn update(
        &mut self,
        agenda: &mut Agenda,
        now: Instant,
        control: &mut dyn ServiceControl,
    ) -> Result<(), HostError> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let Some(observed) = watcher.latest()? else { return Ok(()) };
        let Observation { conversation, estimate } = &observed;
        debug!(conversation, grid = ?estimate.grid, samples = estimate.samples, "grid estimated");
        if let Some(note) = note(&observed, self.known.is_some()) {
            control.note(&note);
        }
        self.known = observed.estimate.grid.map(|grid| (grid, observed.estimate.evidence.error()));
        agenda.set_grid(now, self.known);
        Ok(())
    }
}

fn shifted((grid, error): (HandoverGrid, Duration), step_ns: i64) -> (HandoverGrid, Duration) {
    let period_ns = i128::from(grid.period.as_nanos().max(1));
    let offset_ns = i128::from(grid.offset.as_nanos()) + i128::from(step_ns);
    let offset = Duration::from_nanos(offset_ns.rem_euclid(period_ns) as u64);
    (HandoverGrid { offset, ..grid }, error)
}

/// Message to the user if a grid has been found, or is no longer detected.
fn note(observed: &Observation, was_known: bool) -> Option<String> {
    let Observation { conversation, estimate } = observed;
    match estimate.grid {
        Some(grid) if !was_known => Some(format!(
            "found a handover every {}, at {:.3} s, in {} packets of {conversation}",
            grid.period,
            grid.offset.as_secs_f64(),
            estimate.samples
        )),
        None if was_known => {
            Some("the grid is no longer seen: announcements are withheld".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_was_seen_moves_with_the_clock() {
        let grid =
            HandoverGrid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
        let offset_s = |step_s: i64| {
            shifted((grid, Duration::ZERO), step_s * 1_000_000_000).0.offset.as_secs_f64()
        };
        assert_eq!([0, 4, -13, 30].map(offset_s), [12.0, 1.0, 14.0, 12.0]);
    }
}
