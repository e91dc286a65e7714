//! Blind estimation of the handover grid from traffic alone (SatPipe, section IV-E and Algorithm 1).
//!
//! There are two kinds of evidence. Each is folded modulo the period, and the phase is searched for
//! at which it is strongest:
//!
//! - *spacing*: the link stops during handovers, so that the largest gaps between arrivals span
//!   handovers. Each of the largest gaps counts once in every millisecond that it covers; the handover is
//!   at the peak of the counts. This needs arrivals at intervals much shorter than an outage of 30 to 100
//!   ms.
//! - *level shifts*: the delay steps from one level to another at a handover. At each possible moment the
//!   spread of the delays around one level is compared with the spread around two levels; the handover is
//!   where two levels reduce the spread most. For this, sparse samples (10 per second, with gaps) are
//!   enough.
//!
//! A phase counts as a grid only if its evidence is statistically significant, corrected for the number of
//! phases and periods that were tried.

mod chance;
mod learner;
mod levels;
mod period;
mod spacing;
mod traffic;

use skyhop_units::{Duration, UtcInstant};

use crate::schedule::HandoverGrid;

pub use learner::{BlindPlan, ESTIMATE_EVERY, Learner, WINDOW};
pub use traffic::Traffic;

/// Arrival of a packet, with its delay if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Arrival time, by any clock; the estimated offset refers to the same clock.
    pub at: UtcInstant,
    /// Round trip or one-way delay; only its steps matter.
    pub delay: Option<Duration>,
}

/// Time from one handover to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// Period known to the caller.
    Known(Duration),
    /// Period to search for: every tenth of a second from 5 to 60 s is tried.
    Searched,
}

/// Estimate of the grid from samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Estimated grid; `None` if there is no significant evidence of one.
    pub grid: Option<HandoverGrid>,
    /// Kind of evidence by which the grid was found; without a grid, the kind that was tried last.
    pub evidence: Evidence,
    /// Share of the grid's moments at which the evidence shows, in excess of the share expected by chance: 1 if
    /// the evidence shows at all of them, 0 if it shows no more often than elsewhere.
    pub confidence: f64,
    /// Number of samples on which the estimate is based.
    pub samples: usize,
}

/// Kind of evidence for a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Gaps between arrivals, caused by outages at handovers.
    Spacing,
    /// Steps of the delay at handovers.
    LevelShifts,
}

impl Evidence {
    /// Error of an offset found by this evidence. Gaps locate the start of an outage to within some
    /// milliseconds (SatPipe, Figure 13), levels only to within the transient after it.
    pub fn error(self) -> Duration {
        match self {
            Self::Spacing => Duration::from_millis(10),
            Self::LevelShifts => Duration::from_millis(100),
        }
    }

    /// Name of the evidence in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spacing => "spacing",
            Self::LevelShifts => "level shifts",
        }
    }
}

impl Estimate {
    /// Order estimates by clarity, the clearest last: estimates without a grid come first; within
    /// each group, estimates are ordered by confidence.
    pub fn by_clarity(a: &Self, b: &Self) -> std::cmp::Ordering {
        let is_grid = a.grid.is_some().cmp(&b.grid.is_some());
        is_grid.then(a.confidence.total_cmp(&b.confidence))
    }
}

/// Estimate the grid from samples, which may be in any order.
///
/// The samples must cover at least [`MIN_MOMENTS`] periods: over fewer periods, random gaps agree too easily.
pub fn estimate(samples: &[Sample], period: Period) -> Estimate {
    estimate_unless(samples, period, &|| false)
}

/// Estimate the grid as [`estimate`] does; once `interrupted` returns true, the search ends soon, and its result has
/// no meaning.
pub fn estimate_unless(
    samples: &[Sample],
    period: Period,
    interrupted: &Interrupted<'_>,
) -> Estimate {
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|sample| sample.at);
    let mut traffic = Traffic::default();
    sorted.iter().for_each(|sample| traffic.push(*sample));
    traffic.estimate_unless(period, interrupted)
}

/// Function that returns true once the user has stopped the search.
pub type Interrupted<'i> = dyn Fn() -> bool + Sync + 'i;

/// Minimum number of moments of a grid that the samples must cover.
pub const MIN_MOMENTS: usize = 6;

/// Phase of the period at which handovers may happen.
#[derive(Debug, Clone, Copy)]
struct PhaseEstimate {
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
