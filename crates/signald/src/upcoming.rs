//! Upcoming announcements from the source of the handovers.

use skyhop_model::HandoverKind;
use skyhop_signal::{Agenda, Announcement, Statement, Timing, path};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ServiceSource;
use crate::forecaster::Forecaster;
use crate::wall_clock::WallClock;
use skyhop_host::error::HostError;

/// Upcoming announcements: the agenda, and for a forecast the thread that computes it ahead.
#[derive(Debug)]
pub(crate) struct Upcoming {
    pub(crate) agenda: Agenda,
    forecaster: Option<Forecaster>,
    /// Whether the source may add announcements to an empty agenda.
    is_endless: bool,
}

impl Upcoming {
    /// Create the agenda of announcements for a source.
    ///
    /// # Errors
    /// The forecast's thread cannot be started.
    pub(crate) fn new(
        source: &ServiceSource,
        timing: Timing,
        clock: &WallClock,
    ) -> Result<Self, HostError> {
        let agenda = Agenda::new(timing, clock.start());
        let mut upcoming = Self { agenda, forecaster: None, is_endless: true };
        match source {
            ServiceSource::Grid { grid, error } => {
                upcoming.agenda.set_grid(clock.now(), Some((*grid, *error)));
            }
            ServiceSource::Watched { .. } => {}
            ServiceSource::Path(trace) => {
                let all = timing.announce(path::handovers(trace, &[]), Instant::NEVER);
                upcoming.agenda = Agenda::from_announcements(&all);
                upcoming.is_endless = false;
            }
            ServiceSource::Forecast(plan) => {
                upcoming.forecaster = Some(Forecaster::start(plan, clock.utc())?);
            }
        }
        Ok(upcoming)
    }

    /// Adapt to a step of UTC. A forecast is restarted, because the satellites' positions depend on UTC.
    ///
    /// # Errors
    /// The forecast's thread cannot be started.
    pub(crate) fn clock_set(&mut self, clock: &WallClock) -> Result<(), HostError> {
        self.agenda.set_start(clock.now(), clock.start());
        match &mut self.forecaster {
            Some(forecaster) => {
                self.agenda.clear();
                forecaster.restart(clock.utc())
            }
            None => Ok(()),
        }
    }

    /// Add the handovers that have been forecast since the last call to the agenda; return messages
    /// to the user.
    ///
    /// # Errors
    /// The forecast has failed.
    pub(crate) fn update(
        &mut self,
        clock: &WallClock,
        lead: Duration,
    ) -> Result<Vec<String>, HostError> {
        let Some(forecaster) = &mut self.forecaster else { return Ok(Vec::new()) };
        let now = clock.utc();
        let update = forecaster.update(now, now.after(lead))?;
        if update.replaces {
            self.agenda.clear();
        }
        for (start, chunk) in update.chunks {
            self.agenda.extend(clock.now(), start, &chunk);
        }
        Ok(update.notes)
    }

    /// Return the announcement or withdrawal that is due now, if any.
    ///
    /// If nothing is due, the grid's next handover is computed again from the last comparison of the clocks,
    /// because NTP adjusts UTC continually.
    pub(crate) fn pop(&mut self, clock: &WallClock) -> Option<Statement> {
        let now = clock.now();
        let due = self.agenda.pop(now);
        if due.is_none() {
            self.agenda.set_start(now, clock.start());
        }
        due
    }

    /// Time until the next announcement or withdrawal is due.
    pub(crate) fn wait(&self, clock: &WallClock) -> Duration {
        self.agenda.next().unwrap_or(Instant::NEVER).saturating_since(clock.now())
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.is_endless && self.agenda.next().is_none()
    }
}

/// Announcement in the form in which kernel modules and socket clients receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Time of the handover on `CLOCK_MONOTONIC`, ns.
    pub(crate) at_ns: u64,
    pub(crate) at: UtcInstant,
    pub(crate) outage: Duration,
    pub(crate) error: Duration,
    pub(crate) kind: HandoverKind,
}

impl Notice {
    /// Convert an announcement of `source` to the clocks of its receivers.
    pub(crate) fn new(one: &Announcement, source: &ServiceSource, clock: &WallClock) -> Self {
        Self {
            at_ns: clock.monotonic_ns(one.at),
            at: rounded_to_us(clock.utc_at(one.at)),
            outage: one.outage,
            error: clock.error_for(source, one.error),
            kind: one.kind,
        }
    }
}

/// Round to a microsecond, the accuracy of the comparison of the two clocks.
fn rounded_to_us(at: UtcInstant) -> UtcInstant {
    const US_NS: i64 = 1_000;
    UtcInstant::from_unix_nanos((at.unix_nanos() + US_NS / 2).div_euclid(US_NS) * US_NS)
}
