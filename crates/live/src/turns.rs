//! The threads that pumps take turns on: one for each direction, or one for both in a guest.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags};
use skyhop_host::clock::{RunClock, Stop, poll_for, run_first, wake_precisely};
use skyhop_host::error::HostError;
use skyhop_host::thread::{self, join, spawn};
use skyhop_units::{Duration, Instant};

use crate::carrier::PumpParts;
use crate::pump::{Pump, PumpView, Sojourn, Worker};

/// The longest busy wait: a bit more than a sleeping thread wakes late, which takes most of that
/// lateness away at a fifth of a core. Packets of 150 Mbit/s are 80 us apart; a wait that is not
/// short against that never sleeps and takes the time from the endpoints.
pub(crate) const SPIN: Duration = Duration::from_micros(20);
/// How old the state of a link with a backlog may become while nothing else wakes it.
const REFRESH: Duration = Duration::from_millis(10);

/// Both directions at work.
pub(crate) struct RunningPumps {
    pub(crate) views: [Arc<PumpView>; 2],
    threads: Vec<thread::Worker<Vec<Vec<Sojourn>>>>,
}

impl RunningPumps {
    /// Starts working.
    pub(crate) fn start(pumps: [Pump; 2], parts: &PumpParts<'_>) -> Result<Self, HostError> {
        let [forward, back] = pumps;
        let workers = [Worker::new(forward)?, Worker::new(back)?];
        let views = workers.each_ref().map(|worker| Arc::clone(worker.view()));
        let shifts = if parts.is_virtual {
            // There is one processor, and what one direction delivers is mostly answered at once.
            vec![workers.into()]
        } else {
            workers.map(|worker| vec![worker]).into()
        };
        let threads = shifts.into_iter().map(|workers| Shift::start(workers, parts));
        Ok(Self { views, threads: threads.collect::<Result<_, _>>()? })
    }

    /// Whether a thread has ended, which it does by itself only on an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.is_finished())
    }

    /// Waits for the end; returns what the links scheduled for each of skyhop's own datagrams.
    pub(crate) fn join(self) -> Result<[Vec<Sojourn>; 2], HostError> {
        let sojourns = self.threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        let mut by_direction = sojourns.into_iter().flatten();
        Ok([(); 2].map(|()| by_direction.next().unwrap_or_default()))
    }
}

/// The run's clock, as it is read within a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnClock {
    clock: RunClock,
    /// When the turn began, which is all that is read where computing takes no time: there, reading a clock is a
    /// system call and moves it.
    began: Option<Instant>,
}

impl TurnClock {
    fn begin_turn(&mut self) {
        if let Some(began) = &mut self.began {
            *began = self.clock.now();
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.began.unwrap_or_else(|| self.clock.now())
    }
}

/// Who shares a thread.
struct Shift {
    workers: Vec<Worker>,
    clock: TurnClock,
    spin: bool,
    stop: Arc<Stop>,
}

impl Shift {
    fn start(
        workers: Vec<Worker>,
        parts: &PumpParts<'_>,
    ) -> Result<thread::Worker<Vec<Vec<Sojourn>>>, HostError> {
        let names: Vec<&str> = workers.iter().map(|worker| worker.direction().name()).collect();
        let name = format!("link-{}", names.join("-"));
        let began = parts.is_virtual.then_some(Instant::START);
        let clock = TurnClock { clock: parts.clock, began };
        let (spin, stop) = (parts.spin, Arc::clone(&parts.stop));
        spawn(name, move || Self { workers, clock, spin, stop }.run())
    }

    fn run(mut self) -> Result<Vec<Vec<Sojourn>>, HostError> {
        wake_precisely()?;
        if self.clock.began.is_some() {
            // What others do between a turn's beginning and its wait would make the wait end late.
            run_first()?;
        }
        while !self.stop.is_set() {
            self.clock.begin_turn();
            if !self.take_turn()? {
                self.wait()?;
            }
        }
        self.workers.iter_mut().for_each(Worker::publish);
        Ok(self.workers.into_iter().map(Worker::into_sojourns).collect())
    }

    /// Whether there may be more to read. What is delivered comes first: the answer to it is then there to be read.
    fn take_turn(&mut self) -> Result<bool, HostError> {
        for worker in &mut self.workers {
            worker.deliver_due(&self.clock)?;
        }
        let mut is_behind = false;
        for worker in &mut self.workers {
            is_behind |= worker.read_batch(&self.clock)?;
            worker.show_changes();
        }
        Ok(is_behind)
    }

    /// Waits for the next packet to read or to write; returns at once when that is near enough for
    /// a busy wait.
    fn wait(&mut self) -> Result<(), HostError> {
        let next = self.workers.iter().filter_map(Worker::next_wakeup).min();
        let ahead = if self.spin { SPIN } else { Duration::ZERO };
        let now = self.clock.now();
        let mut left = next.map(|next| next.saturating_since(now).saturating_sub(ahead));
        if left == Some(Duration::ZERO) {
            return Ok(());
        }
        for worker in &mut self.workers {
            if worker.refreshes() {
                left = Some(left.map_or(REFRESH, |left| left.min(REFRESH)));
            }
        }
        let of_workers = self.workers.iter().map(|worker| worker.source().as_fd());
        let fds = of_workers.chain([self.stop.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        poll_for(left.map(before_slack), &mut fds)?;
        for (worker, fd) in self.workers.iter().zip(&fds) {
            if fd.revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
                worker.source().forget_error()?;
            }
        }
        Ok(())
    }
}

/// What to ask of poll(2) for a wait: it takes up to a thousandth more than it was asked for (fs/select.c:
/// `select_estimate_accuracy`).
fn before_slack(wait: Duration) -> Duration {
    wait - wait / 1001
}
