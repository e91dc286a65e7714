//! Clock of a run, and waits on it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use skyhop_units::{Duration, Instant};

use crate::error::{Context, HostError};

/// Clock of a run: `CLOCK_MONOTONIC`, counted from the run's start.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    start_ns: u64,
}

impl RunClock {
    /// Create the clock of a run that starts in `lead` from now.
    pub fn starting_in(lead: Duration) -> Result<Self, HostError> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
        Ok(Self { start_ns: nanos(now) + lead.as_nanos() })
    }

    /// Time since the run's start; zero before the start.
    pub fn now(self) -> Instant {
        // CLOCK_MONOTONIC was readable when the clock was created, and cannot fail later.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(self.start_ns, nanos);
        self.at(now)
    }

    /// Time left until `at`; before the run's start this includes the time until the start.
    fn left_until(self, at: Instant) -> Duration {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(self.start_ns, nanos);
        let at = self.start_ns.saturating_add(at.as_nanos());
        Duration::from_nanos(at.saturating_sub(now))
    }

    /// Run time of a `CLOCK_MONOTONIC` time; the run's start for earlier times.
    pub fn at(self, monotonic_ns: u64) -> Instant {
        Instant::from_nanos(monotonic_ns.saturating_sub(self.start_ns))
    }

    /// Absolute `CLOCK_MONOTONIC` time of a run time.
    pub fn absolute(self, at: Instant) -> TimeSpec {
        let ns = self.start_ns.saturating_add(at.as_nanos()).min(i64::MAX as u64);
        timespec(ns)
    }
}

fn nanos(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn timespec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
}

/// Stop signal for any number of threads, which also wakes threads in poll(2).
#[derive(Debug)]
pub struct Stop {
    set: AtomicBool,
    event: EventFd,
}

impl Stop {
    /// Create a signal that is not set.
    pub fn new() -> Result<Self, HostError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event =
            EventFd::from_value_and_flags(0, flags).context("cannot create an event descriptor")?;
        Ok(Self { set: AtomicBool::new(false), event })
    }

    /// Set the signal permanently and wake waiting threads.
    pub fn set(&self) -> Result<(), HostError> {
        self.set.store(true, Ordering::Release);
        // No thread reads the event descriptor, so it stays readable and wakes every thread.
        self.event.write(1).context("cannot wake the engine's threads").map(|_| ())
    }

    /// Whether the signal is set.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Descriptor that is readable once the signal is set.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Wait until `until`, until `stop` is set, or until one of `fds` is ready for its events.
pub fn wait<'fd>(
    clock: RunClock,
    until: Instant,
    stop: &'fd Stop,
    fds: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
) -> Result<(), HostError> {
    let left = clock.left_until(until);
    if left == Duration::ZERO || stop.is_set() {
        return Ok(());
    }
    let mut waited_for = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    waited_for.extend(fds.into_iter().map(|(fd, events)| PollFd::new(fd, events)));
    poll_for(Some(left), &mut waited_for)
}

/// Wait for `left` (`None`: without limit) or until one of `fds` is ready for its events.
pub fn poll_for(left: Option<Duration>, fds: &mut [PollFd<'_>]) -> Result<(), HostError> {
    let timeout = left.map(|left| timespec(left.as_nanos().min(i64::MAX as u64)));
    match ppoll(fds, timeout, None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for a socket"),
    }
}

/// Sleep until `until`, which may be the run's start; return false if `stop` was set before.
pub fn sleep_until(clock: RunClock, until: Instant, stop: &Stop) -> Result<bool, HostError> {
    while clock.left_until(until) > Duration::ZERO && !stop.is_set() {
        wait(clock, until, stop, None)?;
    }
    Ok(!stop.is_set())
}

/// Set this thread's timer slack to 1 ns, so that its waits end on time; the default slack is 50 us.
pub fn minimize_timer_slack() -> Result<(), HostError> {
    nix::sys::prctl::set_timerslack(1).context("cannot set the timer slack")
}

/// Give this thread the scheduling policy SCHED_FIFO, so that it runs before all others; for threads that compute
/// little. Its waits then have no timer slack.
pub fn schedule_first() -> Result<(), HostError> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param, which lives for the call.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
    nix::errno::Errno::result(set).context("cannot set a thread's scheduling policy").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_until_the_start_waits_for_it() {
        let far_off = RunClock::starting_in(Duration::from_secs(3600)).unwrap();
        assert_eq!(far_off.now(), Instant::START);
        let clock = RunClock::starting_in(Duration::from_millis(30)).unwrap();
        let stop = Stop::new().unwrap();
        assert!(sleep_until(clock, Instant::START, &stop).unwrap());
        assert!(clock.now() > Instant::START, "it was not waited for");
        stop.set().unwrap();
        assert!(!sleep_until(clock, Instant::from_nanos(u64::MAX / 2), &stop).unwrap());
    }
}
