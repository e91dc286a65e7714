//! Announcements of upcoming handovers to congestion controls.
//!
//! A source yields [`Handover`]s in the order of their times: [`path`] yields those of the path itself,
//! [`schedule`] those of a fixed grid in UTC, and [`forecast`] those predicted from element sets. [`Timing`]
//! turns them into [`Announcement`]s with a lead time and an error. An [`Agenda`] returns the announcement
//! that is due next. The receiver of an announcement decides how to react.
//!
//! ```
//! use skyhop_signal::{Timing, TimingError, schedule};
//! use skyhop_units::{Duration, Instant};
//!
//! let until = Instant::START + Duration::from_secs(60);
//! let start = "2026-01-01T00:00:00Z".parse()?;
//! let grid = schedule::HandoverGrid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
//! let timing = Timing::new(Duration::from_secs(1), TimingError::None, 1);
//! let announcements = timing.announce(grid.handovers(start, until), until);
//! let first = announcements[0];
//! assert_eq!((first.announced.as_secs_f64(), first.at.as_secs_f64()), (11.0, 12.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agenda;
pub mod blind;
pub mod capture;
pub mod forecast;
pub mod path;
mod report_timing;
pub mod schedule;
mod timing;

use serde::{Deserialize, Serialize};
use skyhop_model::HandoverKind;
use skyhop_units::{Duration, Instant};

pub use agenda::{Agenda, Statement};
pub use timing::{KindTiming, Timing, TimingError, TimingErrorText};

/// Handover, as far as its source knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// Time of the handover.
    pub at: Instant,
    /// Expected duration of the outage; zero if the source does not know it.
    pub outage: Duration,
    /// Maximum error of `at` in either direction; zero if the source is exact.
    pub error: Duration,
    /// Kind of the handover.
    pub kind: HandoverKind,
}

/// Announcement of an upcoming handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Time at which the announcement reaches its receiver.
    pub announced: Instant,
    /// Announced time of the handover.
    pub at: Instant,
    /// Expected duration of the outage; zero if the source does not know it.
    pub outage: Duration,
    /// Maximum error of `at` in either direction.
    pub error: Duration,
    /// Kind of the handover.
    pub kind: HandoverKind,
}
