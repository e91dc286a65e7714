//! Blind estimation of the handover grid from traffic alone (SatPipe, section IV-E and Algorithm 1).
//!
//! Two kinds of evidence are folded modulo the period and searched for the phase at which they agree:
//!
//! - *spacing*: handovers freeze the link, so that the largest gaps between arrivals lie over them. Each of
//!   the largest gaps counts once in every millisecond that it covers; the handover is where the count
//!   peaks. Needs arrivals that are dense against an outage of 30 to 100 ms.
//! - *level shifts*: the delay steps from one level to another at a handover. At each possible moment
//!   the spread around one level is compared with that around two; the handover is where two levels explain
//!   the most. Sparse samples (10 per second, with gaps) do.
//!
//! A phase counts as a grid only if its evidence could not come about by chance, however many phases and
//! periods were tried.

mod chance;
mod levels;
mod period;
mod source;
mod spacing;
mod traffic;

use skyhop_units::{Duration, UtcInstant};

use crate::schedule::Grid;

pub use source::{BlindPlan, ESTIMATE_EVERY, Learner, WINDOW};
pub use traffic::Traffic;

/// One arrival, and how long it took, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it arrived, on any clock that counts nanoseconds: the offset is on the same.
    pub at: UtcInstant,
    /// Its round trip, or its delay one way: only steps of it count.
    pub delay: Option<Duration>,
}

/// The time from one handover to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// It is known.
    Known(Duration),
    /// It is looked for: every tenth of a second from 5 to 60 s is tried.
    Searched,
}

/// What the samples say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The grid; `None` where there is none to be seen.
    pub grid: Option<Grid>,
    /// What it was found by, or looked for in vain.
    pub evidence: Evidence,
    /// The share of the grid's moments at which the evidence is seen, less what chance would show there: 1
    /// at all of them, 0 at no more than anywhere.
    pub confidence: f64,
    /// How many samples were looked at.
    pub samples: usize,
}

/// Kinds of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Gaps between arrivals.
    Spacing,
    /// Steps of the delay.
    LevelShifts,
}

impl Evidence {
    /// How wrong an offset that was found by it may be: gaps tell the start of an outage to some
    /// milliseconds (SatPipe, Figure 13), levels not within the transient.
    pub fn error(self) -> Duration {
        match self {
            Self::Spacing => Duration::from_millis(10),
            Self::LevelShifts => Duration::from_millis(100),
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spacing => "spacing",
            Self::LevelShifts => "level shifts",
        }
    }
}

impl Estimate {
    /// Puts the estimate that shows a grid more clearly last.
    pub fn by_clarity(a: &Self, b: &Self) -> std::cmp::Ordering {
        let is_grid = a.grid.is_some().cmp(&b.grid.is_some());
        is_grid.then(a.confidence.total_cmp(&b.confidence))
    }
}

/// Looks for handovers. The samples may be in any order.
///
/// At least [`FEWEST_MOMENTS`] periods have to be covered: with fewer chance agrees too easily.
pub fn estimate(samples: &[Sample], period: Period) -> Estimate {
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|sample| sample.at);
    let mut traffic = Traffic::default();
    sorted.iter().for_each(|sample| traffic.push(*sample));
    traffic.estimate(period)
}

/// Of how many of the grid's moments something must be known.
pub const FEWEST_MOMENTS: usize = 6;

/// A phase at which handovers may happen.
#[derive(Debug, Clone, Copy)]
struct Found {
    phase_ns: i64,
    confidence: f64,
    is_certain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Period = Period::Known(Duration::from_secs(15));

    #[test]
    fn nothing_is_found_in_nothing() {
        for period in [PERIOD, Period::Searched] {
            let none = estimate(&[], period);
            assert_eq!((none.grid, none.samples, none.confidence), (None, 0, 0.0));
            let at = UtcInstant::from_unix_nanos(5);
            let one = Sample { at, delay: Some(Duration::from_millis(30)) };
            assert_eq!(estimate(&[one; 3], period).grid, None);
        }
    }
}
