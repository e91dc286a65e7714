//! A fixed grid in UTC as the source: Starlink's terminals are assigned their satellites anew at seconds 12, 27, 42
//! and 57 of every minute, whatever happens to a path (SatPipe, section III).

use skyhop_model::HandoverKind;
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::Handover;

/// The moments of UTC at which something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The time from one to the next; not zero.
    pub period: Duration,
    /// Where in a period they lie, counted from 1970-01-01T00:00:00Z: from the full minute, where the period
    /// divides it.
    pub offset: Duration,
}

impl Grid {
    /// The grid's moments of a run that begins at `start`, before `until`. How long the path is down, if at all,
    /// the grid does not say.
    pub fn handovers(
        &self,
        start: UtcInstant,
        until: Instant,
    ) -> impl Iterator<Item = Handover> + use<> {
        let period_ns = self.period.as_nanos().max(1);
        let first = Instant::from_nanos(self.wait_ns(start, period_ns));
        let period = Duration::from_nanos(period_ns);
        let next = move |at: &Instant| Some(*at + period);
        std::iter::successors(Some(first), next).take_while(move |at| *at < until).map(|at| {
            Handover {
                at,
                outage: Duration::ZERO,
                error: Duration::ZERO,
                kind: HandoverKind::Unknown,
            }
        })
    }

    /// From `start` to the first moment not before it.
    fn wait_ns(&self, start: UtcInstant, period_ns: u64) -> u64 {
        let since_grid = i128::from(start.unix_nanos()) - i128::from(self.offset.as_nanos());
        (-since_grid).rem_euclid(i128::from(period_ns)) as u64
    }
}
