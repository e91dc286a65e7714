//! Lateness of packets that leave the link, over the whole run and over the seconds without CPU steal.

use std::fs::File;
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use skyhop_record::Quantiles;
use skyhop_units::{Duration, Instant};
use tracing::{Level, enabled, warn};

use crate::info::Timing;
use crate::summary::TOLERABLE_P99_US;
use skyhop_host::error::{Context, HostError};

/// Length of the windows for which CPU steal is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Largest lateness in the histogram, in ns; longer ones are recorded as this value.
const LONGEST_NS: u64 = 60_000_000_000;

/// Histogram of lateness in nanoseconds.
pub(crate) type Lateness = Histogram<u32>;

pub(crate) fn new_lateness() -> Result<Lateness, HostError> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| HostError::System {
        action: "cannot create a histogram".to_owned(),
        reason: error.to_string(),
    })
}

/// Quantiles of a histogram of nanoseconds, in microseconds; `None` if it is empty.
pub(crate) fn quantiles(lateness: &Lateness) -> Option<Quantiles> {
    let us = |ns: u64| ns as f64 / 1e3;
    (!lateness.is_empty()).then(|| Quantiles {
        p50: us(lateness.value_at_quantile(0.5)),
        p99: us(lateness.value_at_quantile(0.99)),
        max: us(lateness.max()),
    })
}

/// Lateness of one direction in the current window.
#[derive(Debug)]
pub(crate) struct LatenessWindow(Mutex<Lateness>);

impl LatenessWindow {
    pub(crate) fn new() -> Result<Self, HostError> {
        Ok(Self(Mutex::new(new_lateness()?)))
    }

    /// Move `pending` into the window. While the window is being closed, leave `pending` unchanged
    /// for the next call.
    pub(crate) fn record(&self, pending: &mut Vec<u64>) {
        if let Ok(mut window) = self.0.try_lock() {
            for ns in pending.drain(..) {
                window.saturating_record(ns);
            }
        }
    }

    /// Close the window: return its histogram and replace it with `empty`.
    fn replace(&self, empty: Lateness) -> Lateness {
        mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), empty)
    }
}

/// Collector of the windows of both directions; separates quiet windows from those with CPU steal.
#[derive(Debug)]
pub(crate) struct TimingRecorder {
    steal: StealCounter,
    steal_at_start: Duration,
    steal_at_window: Duration,
    cpu_at_start: Duration,
    window_ends: Instant,
    spare: Lateness,
    /// Lateness over the whole run.
    pub(crate) all: Lateness,
    /// Lateness over the windows without CPU steal.
    quiet: Lateness,
    /// Number of closed windows.
    windows: u64,
    /// Number of closed windows without CPU steal.
    quiet_windows: u64,
}

impl TimingRecorder {
    pub(crate) fn new() -> Result<Self, HostError> {
        let steal = StealCounter::open()?;
        let steal_at_start = steal.read()?;
        Ok(Self {
            steal,
            steal_at_start,
            steal_at_window: steal_at_start,
            cpu_at_start: cpu_time()?,
            window_ends: Instant::START + WINDOW,
            spare: new_lateness()?,
            all: new_lateness()?,
            quiet: new_lateness()?,
            windows: 0,
            quiet_windows: 0,
        })
    }

    /// Close the current window if its time is over. Must be called several times per window.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        windows: [&LatenessWindow; 2],
    ) -> Result<(), HostError> {
        if now < self.window_ends {
            return Ok(());
        }
        let steal = self.steal.read()?;
        let quiet = steal == self.steal_at_window;
        self.steal_at_window = steal;
        self.windows += 1;
        self.quiet_windows += u64::from(quiet);
        while self.window_ends <= now {
            self.window_ends += WINDOW;
        }
        self.collect(windows, quiet)
    }

    /// Collect the lateness after the last whole window; it is added to the whole run's, but not to
    /// that of quiet windows.
    pub(crate) fn finish(&mut self, windows: [&LatenessWindow; 2]) -> Result<(), HostError> {
        self.collect(windows, false)
    }

    fn collect(&mut self, windows: [&LatenessWindow; 2], quiet: bool) -> Result<(), HostError> {
        for (direction, window) in ["forward", "back"].into_iter().zip(windows) {
            // An empty spare histogram replaces the window's, so that the pump does not wait for the merge.
            let empty = mem::replace(&mut self.spare, Histogram::new(0).map_err(cannot_merge)?);
            let mut closed = window.replace(empty);
            log_lateness(direction, &closed);
            self.all.add(&closed).map_err(cannot_merge)?;
            if quiet {
                self.quiet.add(&closed).map_err(cannot_merge)?;
            }
            closed.reset();
            self.spare = closed;
        }
        Ok(())
    }

    /// Timing section of run.json for the whole run.
    pub(crate) fn conclude(self, spin: bool) -> Result<Timing, HostError> {
        Ok(Timing {
            steal_s: self.steal.read()?.saturating_sub(self.steal_at_start).as_secs_f64(),
            seconds: self.windows,
            quiet_seconds: self.quiet_windows,
            quiet_lateness_us: quantiles(&self.quiet),
            cpu_s: cpu_time()?.saturating_sub(self.cpu_at_start).as_secs_f64(),
            spin,
        })
    }
}

fn log_lateness(direction: &str, window: &Lateness) {
    // Computing quantiles takes longer than merging.
    if enabled!(Level::WARN)
        && let Some(late) = quantiles(window).filter(|found| found.p99 > TOLERABLE_P99_US)
    {
        warn!(direction, p99_us = late.p99, max_us = late.max, "packets left the link late");
    }
}

fn cannot_merge(error: impl std::fmt::Display) -> HostError {
    HostError::System { action: "cannot merge histograms".to_owned(), reason: error.to_string() }
}

fn cpu_time() -> Result<Duration, HostError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read the engine's CPU time")?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.unsigned_abs()))
}

/// Counter of the machine's CPU steal, read from /proc/stat.
#[derive(Debug)]
struct StealCounter {
    stat: File,
    tick: Duration,
}

impl StealCounter {
    fn open() -> Result<Self, HostError> {
        let stat = File::open("/proc/stat").context("cannot open /proc/stat")?;
        let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
            .context("cannot read the clock tick")?
            .unwrap_or(100);
        Ok(Self { stat, tick: Duration::from_nanos(1_000_000_000 / per_second.unsigned_abs()) })
    }

    fn read(&self) -> Result<Duration, HostError> {
        let mut text = [0; 256];
        let length = self.stat.read_at(&mut text, 0).context("cannot read /proc/stat")?;
        let ticks = steal_ticks(&String::from_utf8_lossy(&text[..length]));
        Ok(self.tick * ticks)
    }
}

/// CPU steal in clock ticks. proc(5): "cpu user nice system idle iowait irq softirq steal …"; absent before
/// Linux 2.6.11.
fn steal_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    line.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_figure_of_the_first_line() {
        assert_eq!(steal_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 1 1 1 1 1 1 1"), 88);
        assert_eq!(steal_ticks("cpu  1 2 3 4"), 0);
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut lateness = new_lateness().unwrap();
        assert_eq!(quantiles(&lateness), None);
        lateness.record_n(2_000, 98).unwrap();
        lateness.record_n(500_000, 2).unwrap();
        let found = quantiles(&lateness).unwrap();
        assert!((found.p50 - 2.0).abs() < 0.01 && (found.p99 - 500.0).abs() < 1.0, "{found:?}");
    }
}
