//! Threads of the pumps: one per direction, or one for both directions in a guest.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags};
use skyhop_host::clock::{RunClock, Stop, minimize_timer_slack, poll_for, schedule_first};
use skyhop_host::error::HostError;
use skyhop_host::thread::{self, join, spawn};
use skyhop_units::{Duration, Instant};

use crate::datapath::PumpParts;
use crate::pump::{Pump, PumpView, PumpWorker, Sojourn};

/// Longest busy wait: slightly more than the wake-up latency of a sleeping thread. It removes most of the lateness
/// that this latency causes, at the cost of a fifth of a core. Packets at 150 Mbit/s are 80 us apart; with a busy
/// wait of similar length the thread would never sleep and would take CPU time from the endpoints.
pub(crate) const SPIN: Duration = Duration::from_micros(20);
/// Longest interval between published states of a link with a backlog.
const REFRESH: Duration = Duration::from_millis(10);

/// Running pumps of both directions.
pub(crate) struct RunningPumps {
    pub(crate) views: [Arc<PumpView>; 2],
    threads: Vec<thread::Worker<Vec<Vec<Sojourn>>>>,
}

impl RunningPumps {
    /// Start the threads of both pumps.
    pub(crate) fn start(pumps: [Pump; 2], parts: &PumpParts<'_>) -> Result<Self, HostError> {
        let [forward, back] = pumps;
        let workers = [PumpWorker::new(forward)?, PumpWorker::new(back)?];
        let views = workers.each_ref().map(|worker| Arc::clone(worker.view()));
        let groups = if parts.is_virtual {
            // A guest has one processor, and an end replies at once to most packets that it
            // receives, in the other direction.
            vec![workers.into()]
        } else {
            workers.map(|worker| vec![worker]).into()
        };
        let threads = groups.into_iter().map(|workers| PumpThread::start(workers, parts));
        Ok(Self { views, threads: threads.collect::<Result<_, _>>()? })
    }

    /// Whether a thread has ended; before `stop` is set, a thread ends only because of an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.is_finished())
    }

    /// Wait for the threads to end; return the scheduled sojourn times of skyhop's own datagrams, per direction.
    pub(crate) fn join(self) -> Result<[Vec<Sojourn>; 2], HostError> {
        let sojourns = self.threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        let mut by_direction = sojourns.into_iter().flatten();
        Ok([(); 2].map(|()| by_direction.next().unwrap_or_default()))
    }
}

/// Run clock during one iteration of a pump thread's loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PumpClock {
    clock: RunClock,
    /// Start of the iteration. With a virtual clock it is the time of the whole iteration, because reading such a clock
    /// is a system call and advances it. `None` on the wall clock.
    began: Option<Instant>,
}

impl PumpClock {
    fn begin_iteration(&mut self) {
        if let Some(began) = &mut self.began {
            *began = self.clock.now();
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.began.unwrap_or_else(|| self.clock.now())
    }
}

/// Pumps polled by one thread.
struct PumpThread {
    workers: Vec<PumpWorker>,
    clock: PumpClock,
    spin: bool,
    stop: Arc<Stop>,
}

impl PumpThread {
    fn start(
        workers: Vec<PumpWorker>,
        parts: &PumpParts<'_>,
    ) -> Result<thread::Worker<Vec<Vec<Sojourn>>>, HostError> {
        let names: Vec<&str> = workers.iter().map(|worker| worker.direction().name()).collect();
        let name = format!("link-{}", names.join("-"));
        let began = parts.is_virtual.then_some(Instant::START);
        let clock = PumpClock { clock: parts.clock, began };
        let (spin, stop) = (parts.spin, Arc::clone(&parts.stop));
        spawn(name, move || Self { workers, clock, spin, stop }.run())
    }

    fn run(mut self) -> Result<Vec<Vec<Sojourn>>, HostError> {
        minimize_timer_slack()?;
        if self.clock.began.is_some() {
            // If another thread ran between the start of an iteration and its wait, the wait would end late.
            schedule_first()?;
        }
        while !self.stop.is_set() {
            self.clock.begin_iteration();
            if !self.poll_pumps()? {
                self.wait()?;
            }
        }
        self.workers.iter_mut().for_each(PumpWorker::publish);
        Ok(self.workers.into_iter().map(PumpWorker::into_sojourns).collect())
    }

    /// Deliver due packets, then read new ones; return whether a device may have more. Deliveries come first, so that
    /// the ends' replies to them are read in the same iteration.
    fn poll_pumps(&mut self) -> Result<bool, HostError> {
        for worker in &mut self.workers {
            worker.deliver_due(&self.clock)?;
        }
        let mut is_behind = false;
        for worker in &mut self.workers {
            is_behind |= worker.read_batch(&self.clock)?;
            worker.publish_changes();
        }
        Ok(is_behind)
    }

    /// Wait until a packet can be read or is due; return at once if the next packet is due within
    /// the length of the busy wait.
    fn wait(&mut self) -> Result<(), HostError> {
        let next = self.workers.iter().filter_map(PumpWorker::next_wakeup).min();
        let ahead = if self.spin { SPIN } else { Duration::ZERO };
        let now = self.clock.now();
        let mut left = next.map(|next| next.saturating_since(now).saturating_sub(ahead));
        if left == Some(Duration::ZERO) {
            return Ok(());
        }
        for worker in &mut self.workers {
            if worker.mark_backlog_changed() {
                left = Some(left.map_or(REFRESH, |left| left.min(REFRESH)));
            }
        }
        let sources = self.workers.iter().map(|worker| worker.source().as_fd());
        let fds = sources.chain([self.stop.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        poll_for(left.map(without_slack), &mut fds)?;
        for (worker, fd) in self.workers.iter().zip(&fds) {
            if fd.revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
                worker.source().clear_error()?;
            }
        }
        Ok(())
    }
}

/// Timeout to pass to poll(2) for a wait: poll adds a slack of up to a thousandth (fs/select.c:
/// `select_estimate_accuracy`).
fn without_slack(wait: Duration) -> Duration {
    wait - wait / 1001
}
