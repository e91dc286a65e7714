//! UTC of this machine's clock, and its error.

use nix::time::{ClockId, clock_gettime};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ServiceSource;
use skyhop_host::error::{Context, HostError};

/// Change of UTC relative to `CLOCK_MONOTONIC` between two checks, ns, above which the clock was set, not slewed:
/// NTP slews by 0.5 ms per second.
const STEP_NS: i64 = 1_000_000;

/// Offset between `CLOCK_REALTIME` (UTC) and `CLOCK_MONOTONIC`, with the NTP state of UTC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    /// `CLOCK_MONOTONIC` at the start of the service, ns.
    started_ns: i64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    utc_offset_ns: i64,
    synchronised: bool,
    error: Duration,
}

impl WallClock {
    pub(crate) fn read() -> Result<Self, HostError> {
        let (synchronised, error) = ntp_state()?;
        Ok(Self {
            started_ns: monotonic_ns()?,
            utc_offset_ns: utc_offset_ns()?,
            synchronised,
            error,
        })
    }

    /// Compare the clocks again; return the step in ns if UTC has been set since the last comparison.
    pub(crate) fn update(&mut self) -> Result<Option<i64>, HostError> {
        let before = self.utc_offset_ns;
        *self = Self { started_ns: self.started_ns, ..Self::read()? };
        let step_ns = self.utc_offset_ns - before;
        Ok((step_ns.abs() > STEP_NS).then_some(step_ns))
    }

    /// Time since the start of the service, which a step of UTC does not change.
    pub(crate) fn now(&self) -> Instant {
        // `read` has read the clock successfully, so that a later reading cannot fail.
        let since_ns = monotonic_ns().unwrap_or(0) - self.started_ns;
        Instant::from_nanos(u64::try_from(since_ns).unwrap_or(0))
    }

    pub(crate) fn utc(&self) -> UtcInstant {
        self.utc_at(self.now())
    }

    /// UTC at a time since the service's start, according to the current clock.
    pub(crate) fn utc_at(&self, at: Instant) -> UtcInstant {
        self.start().after(at.saturating_since(Instant::START))
    }

    /// UTC at the service's start, according to the current clock.
    pub(crate) fn start(&self) -> UtcInstant {
        UtcInstant::from_unix_nanos(self.started_ns + self.utc_offset_ns)
    }

    /// `CLOCK_MONOTONIC` at a time since the service's start, ns.
    pub(crate) fn monotonic_ns(&self, at: Instant) -> u64 {
        self.started_ns.unsigned_abs() + at.as_nanos()
    }

    pub(crate) fn is_synchronised(&self) -> bool {
        self.synchronised
    }

    /// Maximum error of UTC in either direction, according to the kernel's NTP state.
    pub(crate) fn error(&self) -> Duration {
        self.error
    }

    /// Combine a source's own error with the clock's.
    ///
    /// A path whose time zero is the service's start does not depend on UTC. For a configured grid the larger
    /// error counts, because the grid may have been measured with this clock, and its error then includes the
    /// clock's. The error of a forecast does not include the clock's, so that both are added.
    pub(crate) fn error_for(&self, source: &ServiceSource, own: Duration) -> Duration {
        match source {
            ServiceSource::Grid { .. } => own.max(self.error),
            // A watched grid is measured with this same clock, so that an error of UTC cancels out.
            ServiceSource::Watched { .. } | ServiceSource::Path(_) => own,
            ServiceSource::Forecast(_) => own + self.error,
        }
    }
}

/// Longest duration of an undisturbed reading of both clocks, ns; a slower one was interrupted and is repeated.
const MAX_READING_NS: i64 = 20_000;
/// Maximum number of readings; the quickest one is used.
const MAX_READINGS: usize = 10;

fn utc_offset_ns() -> Result<i64, HostError> {
    let mut best = (i64::MAX, 0);
    for _ in 0..MAX_READINGS {
        // UTC is read between two readings of the monotonic clock. The error of their midpoint is at most half
        // the time between them.
        let before = monotonic_ns()?;
        let utc = clock_gettime(ClockId::CLOCK_REALTIME).context("cannot read CLOCK_REALTIME")?;
        let took_ns = monotonic_ns()? - before;
        let utc_ns = utc.tv_sec() * 1_000_000_000 + utc.tv_nsec();
        best = best.min((took_ns, utc_ns - (before + took_ns / 2)));
        if took_ns <= MAX_READING_NS {
            break;
        }
    }
    Ok(best.1)
}

fn monotonic_ns() -> Result<i64, HostError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// NTP state by adjtimex(2): whether the clock is synchronised, and its maximum error.
fn ntp_state() -> Result<(bool, Duration), HostError> {
    // SAFETY: all fields of the struct are numbers, for which zero is valid; `modes` 0 only reads.
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
        // Simulate a step of UTC by one second since the last comparison.
        clock.utc_offset_ns -= 1_000_000_000;
        assert!((clock.update().unwrap().unwrap() - 1_000_000_000).abs() < STEP_NS);
        assert_eq!(clock.update().unwrap(), None);
    }
}
