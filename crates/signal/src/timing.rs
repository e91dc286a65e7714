//! Lead time of announcements, and the error of their times.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use skyhop_model::HandoverKind;
use skyhop_units::{Duration, Instant, Quoted};
use thiserror::Error;

use crate::report_timing;
use crate::{Announcement, Handover};

/// Times and errors with which handovers are announced, by the kind of handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Timing of handovers of an end. SaTCP's terminal knows these times exactly (section V-C).
    pub end: KindTiming,
    /// Timing of intermediate handovers. SaTCP's gateways compute these times from orbits (section V-B).
    pub intermediate: KindTiming,
    /// Timing of handovers whose kind is not known.
    pub unknown: KindTiming,
    /// Time from the announcement of a handover to its arrival at the sender.
    pub latency: Duration,
    /// Seed of random errors.
    pub seed: u64,
}

/// Lead time and error of the announcements of one kind of handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTiming {
    /// Time from the announcement to the announced handover.
    pub lead: Duration,
    /// Error added to the handover's time.
    pub error: TimingError,
}

/// Error added to the announced time of handovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimingError {
    /// The announced times are exact.
    None,
    /// Random error in either direction: SaTCP's Figure 4, for element sets that are three hours old.
    ReportTiming,
    /// Constant error: handovers are announced for later than they happen.
    Late(Duration),
    /// Constant error: handovers are announced for earlier than they happen.
    Early(Duration),
}

/// Error of parsing a [`TimingError`]: the text is neither a name of an error nor a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} is not a timing error; expected none, report-timing, or a duration such as \"0.2 s\" or \"-0.2 s\"",
    Quoted(.0)
)]
pub struct TimingErrorText(String);

impl Timing {
    /// Create the same timing for all kinds of handovers, without latency.
    pub const fn new(lead: Duration, error: TimingError, seed: u64) -> Self {
        let all = KindTiming { lead, error };
        Self { end: all, intermediate: all, unknown: all, latency: Duration::ZERO, seed }
    }

    /// Timing of the announcements of a kind of handover.
    pub const fn of(&self, kind: HandoverKind) -> KindTiming {
        match kind {
            HandoverKind::End => self.end,
            HandoverKind::Intermediate => self.intermediate,
            HandoverKind::Unknown => self.unknown,
        }
    }

    /// Longest lead time of all kinds of handovers.
    pub fn longest_lead(&self) -> Duration {
        self.end.lead.max(self.intermediate.lead).max(self.unknown.lead)
    }

    /// Return those announcements of the handovers that arrive before `until`, ordered by the time at which they
    /// arrive, then by the announced time. Both times are at least [`Instant::START`].
    pub fn announce(
        &self,
        handovers: impl IntoIterator<Item = Handover>,
        until: Instant,
    ) -> Vec<Announcement> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut announcements: Vec<Announcement> = handovers
            .into_iter()
            .map(|handover| self.announcement(&handover, &mut rng))
            .filter(|announcement| announcement.announced < until)
            .collect();
        announcements.sort_by_key(|announcement| (announcement.announced, announcement.at));
        announcements
    }

    fn announcement(&self, handover: &Handover, rng: &mut ChaCha8Rng) -> Announcement {
        let timing = self.of(handover.kind);
        let (at, error) = match timing.error {
            TimingError::None => (handover.at, Duration::ZERO),
            TimingError::Late(by) => (handover.at + by, by),
            TimingError::Early(by) => (handover.at - by, by),
            TimingError::ReportTiming => {
                let (by, is_late) = report_timing::draw(rng);
                let at = if is_late { handover.at + by } else { handover.at - by };
                (at, report_timing::LARGEST)
            }
        };
        Announcement {
            announced: at - timing.lead + self.latency,
            at,
            outage: handover.outage,
            error: handover.error + error,
            kind: handover.kind,
        }
    }
}

impl TimingError {
    /// Absolute value of a constant error; zero without an error or with random errors.
    pub fn constant(self) -> Duration {
        match self {
            Self::Late(by) | Self::Early(by) => by,
            Self::None | Self::ReportTiming => Duration::ZERO,
        }
    }
}

impl FromStr for TimingError {
    type Err = TimingErrorText;

    fn from_str(text: &str) -> Result<Self, TimingErrorText> {
        let duration = |text: &str| text.parse().map_err(|_| TimingErrorText(text.to_owned()));
        match (text.trim(), text.trim().strip_prefix('-')) {
            ("none", _) => Ok(Self::None),
            ("report-timing", _) => Ok(Self::ReportTiming),
            (_, Some(early)) => duration(early).map(Self::Early),
            (late, None) => duration(late).map(Self::Late),
        }
    }
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::ReportTiming => f.write_str("report-timing"),
            Self::Late(by) => write!(f, "{by}"),
            Self::Early(by) => write!(f, "-{by}"),
        }
    }
}
