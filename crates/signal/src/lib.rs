//! Announced handovers: what a source knows of handovers to come, and when it says so.
//!
//! A source gives [`Handover`]s in the order in which they happen: [`path`] those of the path itself,
//! [`schedule`] those of a grid in UTC, [`forecast`] those that element sets foretell. [`Timing`] turns
//! them into [`Announcement`]s: how long before, and how wrong. An [`Agenda`] says which one is next. What
//! to do about an announcement is up to whoever receives it.
//!
//! ```
//! use skyhop_signal::{Timing, TimingError, schedule};
//! use skyhop_units::{Duration, Instant};
//!
//! let until = Instant::START + Duration::from_secs(60);
//! let start = "2026-01-01T00:00:00Z".parse()?;
//! let grid = schedule::Grid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
//! let timing = Timing { lead: Duration::from_secs(1), error: TimingError::None, seed: 1 };
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
pub use timing::{Timing, TimingError, TimingErrorText};

/// A handover, as its source knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// When it happens.
    pub at: Instant,
    /// How long the path is expected to be down; zero where the source cannot say.
    pub outage: Duration,
    /// How wrong `at` may be, either way; zero where the source knows.
    pub error: Duration,
    /// What happens.
    pub kind: HandoverKind,
}

/// A handover that is said to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// When it is said.
    pub announced: Instant,
    /// When the handover is said to happen.
    pub at: Instant,
    /// How long the path is expected to be down; zero where nobody can say.
    pub outage: Duration,
    /// How wrong `at` may be, either way.
    pub error: Duration,
    /// What happens.
    pub kind: HandoverKind,
}
