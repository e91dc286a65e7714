//! What is to be announced next, and where it comes from.

use skyhop_model::HandoverKind;
use skyhop_signal::{Agenda, Announcement, Statement, Timing, path};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ServiceSource;
use crate::forecaster::Forecaster;
use crate::wall_clock::WallClock;
use skyhop_host::error::HostError;

/// The announcements to come.
#[derive(Debug)]
pub(crate) struct Upcoming {
    pub(crate) agenda: Agenda,
    forecaster: Option<Forecaster>,
    /// Whether there may be more when nothing is left.
    goes_on: bool,
}

impl Upcoming {
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn new(
        source: &ServiceSource,
        timing: Timing,
        clock: &WallClock,
    ) -> Result<Self, HostError> {
        let agenda = Agenda::new(timing, clock.start());
        let mut upcoming = Self { agenda, forecaster: None, goes_on: true };
        match source {
            ServiceSource::Grid { grid, error } => {
                upcoming.agenda.learn(clock.now(), Some((*grid, *error)));
            }
            ServiceSource::Watched { .. } => {}
            ServiceSource::Path(trace) => {
                let all = timing.announce(path::handovers(trace, &[]), Instant::NEVER);
                upcoming.agenda = Agenda::of(&all);
                upcoming.goes_on = false;
            }
            ServiceSource::Forecast(plan) => {
                upcoming.forecaster = Some(Forecaster::start(plan, clock.utc())?);
            }
        }
        Ok(upcoming)
    }

    /// UTC was set. Satellites go by it, too.
    ///
    /// # Errors
    /// A thread cannot be started.
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

    /// Takes over what has been forecast meanwhile; what a user should know of it.
    ///
    /// # Errors
    /// The forecast cannot go on.
    pub(crate) fn look_ahead(
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
        for (start, piece) in update.pieces {
            self.agenda.extend(clock.now(), start, &piece);
        }
        Ok(update.notes)
    }

    /// What is to be said now, if anything. Where there is nothing, a grid's next moment is worked out by the
    /// clock as it was compared last: NTP moves it all the time.
    pub(crate) fn pop(&mut self, clock: &WallClock) -> Option<Statement> {
        let now = clock.now();
        let said = self.agenda.pop(now);
        if said.is_none() {
            self.agenda.set_start(now, clock.start());
        }
        said
    }

    /// How long until there is something to say.
    pub(crate) fn wait(&self, clock: &WallClock) -> Duration {
        self.agenda.next().unwrap_or(Instant::NEVER).saturating_since(clock.now())
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.goes_on && self.agenda.next().is_none()
    }
}

/// An announcement as listeners get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    pub(crate) at: UtcInstant,
    pub(crate) outage: Duration,
    pub(crate) error: Duration,
    pub(crate) kind: HandoverKind,
}

impl Notice {
    /// Of an announcement of `source`.
    pub(crate) fn of(one: &Announcement, source: &ServiceSource, clock: &WallClock) -> Self {
        Self {
            at_ns: clock.monotonic_ns(one.at),
            at: to_the_microsecond(clock.utc_at(one.at)),
            outage: one.outage,
            error: clock.error_for(source, one.error),
            kind: one.kind,
        }
    }
}

/// The two clocks cannot be compared better than that.
fn to_the_microsecond(at: UtcInstant) -> UtcInstant {
    const US_NS: i64 = 1_000;
    UtcInstant::from_unix_nanos((at.unix_nanos() + US_NS / 2).div_euclid(US_NS) * US_NS)
}
