//! Fixed grid in UTC as the source of handovers: Starlink reassigns satellites to terminals at seconds 12, 27, 42
//! and 57 of every minute, whether or not the path changes (SatPipe, section III).

use skyhop_model::HandoverKind;
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::Handover;

/// Equally spaced times in UTC at which handovers may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverGrid {
    /// Time from one handover to the next; not zero.
    pub period: Duration,
    /// Offset of the handovers within a period. Periods are counted from 1970-01-01T00:00:00Z, so that a period that
    /// divides a minute begins at the full minute.
    pub offset: Duration,
}

impl HandoverGrid {
    /// Iterate over the grid's handovers from `start`, the UTC of time zero, up to `until`. Their outages are unknown.
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

    /// Time from `start` to the first handover at or after it, ns.
    fn wait_ns(&self, start: UtcInstant, period_ns: u64) -> u64 {
        let since_grid = i128::from(start.unix_nanos()) - i128::from(self.offset.as_nanos());
        (-since_grid).rem_euclid(i128::from(period_ns)) as u64
    }
}
