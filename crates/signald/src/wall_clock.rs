//! UTC as this machine knows it, and how well.

use nix::time::{ClockId, clock_gettime};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ServiceSource;
use skyhop_host::error::{Context, HostError};

/// UTC that moves further than this against `CLOCK_MONOTONIC` between two looks was set, not slewed:
/// NTP slews by 0.5 ms per second.
const STEP_NS: i64 = 1_000_000;

/// The two clocks, compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    /// `CLOCK_MONOTONIC` when the service began.
    started_ns: i64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    ahead_ns: i64,
    synchronised: bool,
    error: Duration,
}

impl WallClock {
    pub(crate) fn read() -> Result<Self, HostError> {
        let (synchronised, error) = ntp_state()?;
        Ok(Self { started_ns: monotonic_ns()?, ahead_ns: ahead_ns()?, synchronised, error })
    }

    /// Compares the clocks again; where UTC was set in the meantime, by how many ns.
    pub(crate) fn compare(&mut self) -> Result<Option<i64>, HostError> {
        let before = self.ahead_ns;
        *self = Self { started_ns: self.started_ns, ..Self::read()? };
        let step_ns = self.ahead_ns - before;
        Ok((step_ns.abs() > STEP_NS).then_some(step_ns))
    }

    /// The time since the service began, which no setting of UTC changes.
    pub(crate) fn now(&self) -> Instant {
        // It was readable when this was made, and cannot fail after that.
        let since_ns = monotonic_ns().unwrap_or(0) - self.started_ns;
        Instant::from_nanos(u64::try_from(since_ns).unwrap_or(0))
    }

    pub(crate) fn utc(&self) -> UtcInstant {
        self.utc_at(self.now())
    }

    /// UTC at a moment of the service, as the clock has it now.
    pub(crate) fn utc_at(&self, at: Instant) -> UtcInstant {
        self.start().after(at.saturating_since(Instant::START))
    }

    /// UTC when the service began, as the clock has it now.
    pub(crate) fn start(&self) -> UtcInstant {
        UtcInstant::from_unix_nanos(self.started_ns + self.ahead_ns)
    }

    /// A moment of the service on `CLOCK_MONOTONIC`, ns.
    pub(crate) fn monotonic_ns(&self, at: Instant) -> u64 {
        self.started_ns.unsigned_abs() + at.as_nanos()
    }

    pub(crate) fn is_synchronised(&self) -> bool {
        self.synchronised
    }

    /// How wrong UTC may be, either way, as the kernel's NTP state has it.
    pub(crate) fn error(&self) -> Duration {
        self.error
    }

    /// What that makes of a source's own error: a path that begins with the service needs no UTC, a grid that was
    /// measured has this clock's error in it, a forecast has not.
    pub(crate) fn error_for(&self, source: &ServiceSource, own: Duration) -> Duration {
        match source {
            ServiceSource::Grid { .. } => own.max(self.error),
            // A grid that was seen by this clock is where it says.
            ServiceSource::Watched { .. } | ServiceSource::Path(_) => own,
            ServiceSource::Forecast(_) => own + self.error,
        }
    }
}

/// Readings of both clocks that took longer than this were interrupted, and are repeated.
const PROMPT_NS: i64 = 20_000;
/// How often at most; then the promptest counts.
const READINGS: usize = 10;

fn ahead_ns() -> Result<i64, HostError> {
    let mut best = (i64::MAX, 0);
    for _ in 0..READINGS {
        // The reading of UTC lies between the two others: their middle is at most half their distance off.
        let before = monotonic_ns()?;
        let utc = clock_gettime(ClockId::CLOCK_REALTIME).context("cannot read CLOCK_REALTIME")?;
        let took_ns = monotonic_ns()? - before;
        let utc_ns = utc.tv_sec() * 1_000_000_000 + utc.tv_nsec();
        best = best.min((took_ns, utc_ns - (before + took_ns / 2)));
        if took_ns <= PROMPT_NS {
            break;
        }
    }
    Ok(best.1)
}

fn monotonic_ns() -> Result<i64, HostError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// adjtimex(2): whether somebody keeps the clock, and the largest error it may have.
fn ntp_state() -> Result<(bool, Duration), HostError> {
    // SAFETY: all of its fields are numbers, for which zero is a value; `modes` 0 only reads.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into `state`, which lives for the call.
    let clock = unsafe { libc::adjtimex(&raw mut state) };
    if clock < 0 {
        return Err(nix::errno::Errno::last()).context("cannot read the state of the clock");
    }
    let synchronised = clock != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    Ok((synchronised, Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_and_the_monotonic_clock_are_told_apart_and_turned_into_each_other() {
        let system_ns = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().as_nanos() as i64
        };
        let mut clock = WallClock::read().unwrap();
        let before = (system_ns(), monotonic_ns().unwrap());
        let now = clock.now();
        let after = (system_ns(), monotonic_ns().unwrap());
        let utc_ns = clock.utc_at(now).unix_nanos();
        assert!((before.0 - STEP_NS..=after.0 + STEP_NS).contains(&utc_ns));
        assert!((before.1..=after.1).contains(&(clock.monotonic_ns(now) as i64)));
        // As if UTC had been set by a second since.
        clock.ahead_ns -= 1_000_000_000;
        assert!((clock.compare().unwrap().unwrap() - 1_000_000_000).abs() < STEP_NS);
        assert_eq!(clock.compare().unwrap(), None);
    }
}
