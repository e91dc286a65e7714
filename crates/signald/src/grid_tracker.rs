//! What the service knows of a grid that it learns as it goes.

use skyhop_signal::Agenda;
use skyhop_signal::schedule::Grid;
use skyhop_units::{Duration, Instant};

use crate::ServiceSource;
use crate::watcher::{Observation, Watcher};
use skyhop_host::ServiceControl;
use skyhop_host::error::HostError;

/// Passes on what a watcher hears; does nothing where the source needs none.
pub(crate) struct GridTracker {
    watcher: Option<Watcher>,
    /// The grid and its error.
    known: Option<(Grid, Duration)>,
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

    /// UTC was set by `step_ns`: the grid that was seen stays where it was, which the clock now calls
    /// otherwise.
    pub(crate) fn clock_set(&mut self, agenda: &mut Agenda, now: Instant, step_ns: i64) {
        let Some(watcher) = &self.watcher else { return };
        watcher.begin_anew();
        self.known = self.known.map(|grid| moved(grid, step_ns));
        agenda.learn(now, self.known);
    }

    /// Takes over what was observed since.
    pub(crate) fn look(
        &mut self,
        agenda: &mut Agenda,
        now: Instant,
        control: &mut dyn ServiceControl,
    ) -> Result<(), HostError> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let Some(observed) = watcher.observed()? else { return Ok(()) };
        if let Some(note) = note(&observed, self.known.is_some()) {
            control.note(&note);
        }
        self.known = observed.estimate.grid.map(|grid| (grid, observed.estimate.evidence.error()));
        agenda.learn(now, self.known);
        Ok(())
    }
}

fn moved((grid, error): (Grid, Duration), step_ns: i64) -> (Grid, Duration) {
    let period_ns = i128::from(grid.period.as_nanos().max(1));
    let offset_ns = i128::from(grid.offset.as_nanos()) + i128::from(step_ns);
    let offset = Duration::from_nanos(offset_ns.rem_euclid(period_ns) as u64);
    (Grid { offset, ..grid }, error)
}

/// What a user should know of it: that there is a grid, or that it is no longer seen.
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
        let grid = Grid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
        let offset_s = |step_s: i64| {
            moved((grid, Duration::ZERO), step_s * 1_000_000_000).0.offset.as_secs_f64()
        };
        assert_eq!([0, 4, -13, 30].map(offset_s), [12.0, 1.0, 14.0, 12.0]);
    }
}
