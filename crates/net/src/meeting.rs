//! Meetings of the threads of a run after every window, and the times without them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{hint, thread};

/// Meeting point of some threads.
///
/// On a machine with fewer free processors than threads, a thread waits for others that do not run, window after window.
/// The meeting point counts these waits. It reads no clock: a wait is long if the thread looks for the others far longer
/// than its own work of the window took.
pub(crate) struct Meeting {
    arrived: AtomicUsize,
    /// Number of the meeting.
    held: AtomicUsize,
    /// Number of the first meeting since [`Self::begin`].
    first: usize,
    /// Number of long waits since then.
    long_waits: AtomicUsize,
    /// Whether long waits took most of the time up to the last meeting.
    is_crowded: AtomicBool,
    /// Whether a thread has panicked, and will not be at any further meeting.
    is_off: AtomicBool,
}

/// Absence of a thread from all further meetings if it panics.
pub(crate) struct Absence<'m>(pub(crate) &'m Meeting);

impl Drop for Absence<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_off.store(true, Ordering::Release);
        }
    }
}

/// Looks at the meeting before a wait is long, without work: windows take microseconds.
const LOOKS: u64 = 2_000;
/// Further looks for each crossing of the own work, about ten times as long as the crossing itself takes.
const LOOKS_PER_CROSSING: u64 = 100;
/// Long waits that tell of a crowd if they are as many as a tenth of the meetings: several threads then save no time.
const LONG_WAITS: usize = 3;

impl Meeting {
    pub(crate) fn new() -> Self {
        Self {
            arrived: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            first: 0,
            long_waits: AtomicUsize::new(0),
            is_crowded: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
        }
    }

    /// Forget the waits so far.
    pub(crate) fn begin(&mut self) {
        self.first = *self.held.get_mut();
        *self.long_waits.get_mut() = 0;
    }

    /// Wait until so many threads are here; `work` is the work in crossings since the last meeting. What each thread wrote
    /// before, all can read afterwards.
    ///
    /// All threads return the same: whether they spend most of the time on waiting for each other.
    pub(crate) fn wait(&self, threads: usize, work: u64) -> bool {
        let held = self.held.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            let long_waits = self.long_waits.load(Ordering::Relaxed);
            let is_crowded = long_waits >= LONG_WAITS && 10 * long_waits > held + 1 - self.first;
            self.is_crowded.store(is_crowded, Ordering::Relaxed);
            self.held.store(held + 1, Ordering::Release);
        } else {
            self.look_out(held, LOOKS + LOOKS_PER_CROSSING * work);
        }
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Wait until the meeting with the number `held` is over; after so many looks let other threads run.
    fn look_out(&self, held: usize, most: u64) {
        let mut looks = 0;
        while self.held.load(Ordering::Acquire) == held {
            assert!(
                !self.is_off.load(Ordering::Acquire),
                "another thread of the simulation failed"
            );
            looks += 1;
            if looks < most {
                hint::spin_loop();
                continue;
            }
            if looks == most {
                self.long_waits.fetch_add(1, Ordering::Relaxed);
            }
            thread::yield_now();
        }
    }
}

/// Steps that run on one thread because the machine has no room for more, with attempts in between.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Number of steps before the next attempt.
    pause: u32,
    /// Number of attempts in a row that met a crowd.
    failed: u32,
}

/// Largest number of doublings of a pause: an attempt costs a few long waits.
const DOUBLINGS: u32 = 6;

impl Attempts {
    /// Number of threads for the next step, of those that there are.
    pub(crate) fn threads(&mut self, all: usize) -> usize {
        match self.pause.checked_sub(1) {
            None => all,
            Some(rest) => {
                self.pause = rest;
                1
            }
        }
    }

    /// Note whether a step on all threads met a crowd: the next 1, 2, 4, … steps then run on one.
    pub(crate) fn note(&mut self, is_crowded: bool) {
        self.pause = if is_crowded { 1 << self.failed.min(DOUBLINGS) } else { 0 };
        self.failed = if is_crowded { self.failed + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_attempts_fail() {
        let mut attempts = Attempts::default();
        let mut alone = Vec::new();
        for is_crowded in [true, true, true, false, true, true] {
            let mut steps = 0;
            while attempts.threads(2) == 1 {
                steps += 1;
            }
            alone.push(steps);
            attempts.note(is_crowded);
        }
        assert_eq!(alone, [0, 1, 2, 4, 0, 1]);
        (0..100).for_each(|_| attempts.note(true));
        assert_eq!(attempts.pause, 64);
    }

    /// Hold meetings of two threads, at which the second is late until the first has waited long, or does not wait.
    fn held(meetings: usize, is_late: impl Fn(usize) -> bool + Sync) -> [Vec<bool>; 2] {
        let mut meeting = Meeting::new();
        meeting.begin();
        let (meeting, is_late) = (&meeting, &is_late);
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                let wait = |number| {
                    // A thread that never gets to its last look does not wait long.
                    let work =
                        if is_late(number) { 0 } else { u64::MAX / LOOKS_PER_CROSSING - LOOKS };
                    meeting.wait(2, work)
                };
                (0..meetings).map(wait).collect()
            });
            let mut long_waits = 0;
            let wait = |number| {
                long_waits += usize::from(is_late(number));
                while meeting.long_waits.load(Ordering::Relaxed) < long_waits {
                    thread::yield_now();
                }
                meeting.wait(2, u64::MAX / LOOKS_PER_CROSSING - LOOKS)
            };
            let second = (0..meetings).map(wait).collect();
            [first.join().unwrap(), second]
        })
    }

    #[test]
    fn long_waits_at_a_tenth_of_the_meetings_are_a_crowd() {
        let [first, second] = held(45, |number| [0, 14, 28].contains(&number));
        assert_eq!(first, second);
        // The third long wait is at the meeting with the number 28; three are more than a tenth of the first 29.
        let crowded: Vec<usize> = (0..45).filter(|number| first[*number]).collect();
        assert_eq!(crowded, [28]);
        assert!(held(40, |number| number < 2).iter().flatten().all(|is_crowded| !is_crowded));
    }
}
