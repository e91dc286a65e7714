//! Simulation of the partitions on several threads.
//!
//! Time is divided into windows. Within a window every partition processes its own events; a window is as long as the
//! shortest delay between two nodes, so that packets sent within it arrive after it. Between windows the threads meet,
//! and take over the packets that others have sent to their partitions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use skyhop_units::{Duration, Instant};

use crate::ground::{Ground, Hosts};
use crate::meeting::{Absence, Attempts, Meeting};
use crate::sky::Sky;
use crate::transfer::{Outboxes, Routed, Transfer};
use crate::view::{Routes, View};

/// Places where partitions leave packets for each other. The partition of the sites is the last.
pub(crate) struct Exchange<P> {
    threads: usize,
    partitions: usize,
    /// Packets from one partition to another, left at the ends of even and of odd windows: what is left at the end of a
    /// window is taken during the next one.
    slots: [Vec<Mutex<Vec<Transfer<P>>>>; 2],
    /// Earliest event that each partition has or causes at the end of an even or an odd window.
    next_ns: [Vec<AtomicU64>; 2],
    meeting: Meeting,
    attempts: Attempts,
    /// Number of the last window.
    window: usize,
}

/// Partitions of satellites that a thread processes, with the number of each.
type Share<'p, P> = Vec<(usize, &'p mut Sky<P>)>;

impl<P: Routed> Exchange<P> {
    /// Create places for so many partitions of satellites and that of the sites.
    pub(crate) fn new(of_satellites: usize, threads: usize) -> Self {
        let partitions = of_satellites + 1;
        let slots = || (0..partitions * partitions).map(|_| Mutex::new(Vec::new())).collect();
        let next_ns = || (0..partitions).map(|_| AtomicU64::new(0)).collect();
        Self {
            threads,
            partitions,
            slots: [slots(), slots()],
            next_ns: [next_ns(), next_ns()],
            meeting: Meeting::new(),
            attempts: Attempts::default(),
            window: 0,
        }
    }

    /// Number of the partition of the sites.
    const fn ground(&self) -> usize {
        self.partitions - 1
    }

    /// Leave a partition's packets for the others at the end of a window, and the time of its next event, or of the
    /// next one that these packets cause.
    fn leave(&self, window: usize, number: usize, outboxes: &mut Outboxes<P>, next: Instant) {
        let next_ns = next.min(outboxes.earliest()).as_nanos();
        self.next_ns[window % 2][number].store(next_ns, Ordering::Relaxed);
        for to in 0..self.partitions {
            if outboxes.has(to) {
                outboxes.swap(to, &mut self.slot(window, number, to));
            }
        }
    }

    /// Take over the packets that others have left for a partition at the end of a window.
    fn take(&self, window: usize, number: usize, mut accept: impl FnMut(Transfer<P>)) {
        for from in (0..self.partitions).filter(|from| *from != number) {
            self.slot(window, from, number).drain(..).for_each(&mut accept);
        }
    }

    fn slot(&self, window: usize, from: usize, to: usize) -> MutexGuard<'_, Vec<Transfer<P>>> {
        let slot = &self.slots[window % 2][from * self.partitions + to];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Earliest event of all partitions at the end of a window.
    fn earliest(&self, window: usize) -> Instant {
        let all = self.next_ns[window % 2].iter().map(|next| next.load(Ordering::Relaxed));
        all.min().map_or(Instant::NEVER, Instant::from_nanos)
    }
}

/// Process all events of all partitions up to and including `end`, in windows of the duration `lookahead`.
pub(crate) fn run<P: Routed + Send, H: Hosts<P>, R: Routes>(
    exchange: &mut Exchange<P>,
    (ground, hosts): (&mut Ground<P>, &mut H),
    sky: &mut [Sky<P>],
    (view, lookahead, end): (&View<R>, Duration, Instant),
) {
    exchange.window += 1;
    let next = ground.next(hosts);
    exchange.leave(exchange.window, exchange.ground(), &mut ground.outboxes, next);
    for (number, partition) in sky.iter_mut().enumerate() {
        let next = partition.next();
        exchange.leave(exchange.window, number, &mut partition.outboxes, next);
    }
    let threads = exchange.attempts.threads(exchange.threads);
    let is_crowded = run_on(threads, exchange, (ground, hosts), sky, (view, lookahead, end));
    if is_crowded {
        run_on(1, exchange, (ground, hosts), sky, (view, lookahead, end));
    }
    if threads > 1 {
        exchange.attempts.note(is_crowded);
    }
}

/// Process events on so many threads up to and including `end`, or until the threads are in a crowd; return whether they
/// are.
fn run_on<P: Routed + Send, H: Hosts<P>, R: Routes>(
    threads: usize,
    exchange: &mut Exchange<P>,
    (ground, hosts): (&mut Ground<P>, &mut H),
    sky: &mut [Sky<P>],
    (view, lookahead, end): (&View<R>, Duration, Instant),
) -> bool {
    exchange.meeting.begin();
    let mut shares = shares(ground, sky, threads).into_iter();
    let mut own = shares.next().unwrap_or_default();
    let windows = Windows { threads, exchange, view, lookahead, end };
    let (last, is_crowded) = thread::scope(|scope| {
        for mut share in shares {
            let windows = &windows;
            scope.spawn(move || windows.run(&mut share, &mut |_, _| 0));
        }
        windows.run(&mut own, &mut |window, until| {
            let (number, before) = (exchange.ground(), ground.crossings);
            exchange.take(window, number, |transfer| ground.accept(transfer));
            if let Some(until) = until {
                ground.run_until(until, hosts, view);
                let next = ground.next(hosts);
                exchange.leave(window + 1, number, &mut ground.outboxes, next);
            }
            (ground.crossings - before) * WORK_OF_HOSTS
        })
    });
    exchange.window = last;
    is_crowded
}

/// Windows of a step, as all threads see them.
struct Windows<'n, P, R> {
    threads: usize,
    exchange: &'n Exchange<P>,
    view: &'n View<R>,
    lookahead: Duration,
    end: Instant,
}

impl<P: Routed, R: Routes> Windows<'_, P, R> {
    /// Run a thread's share of all windows, or of those before the threads are in a crowd. Return the number of the last
    /// window, and whether there is a crowd.
    ///
    /// `also` runs the partition of the sites, and returns its work in crossings: after the window with the given number up
    /// to the given time, and at the end without a time, when it has to take over the packets that were left for it.
    fn run(
        &self,
        share: &mut Share<'_, P>,
        also: &mut impl FnMut(usize, Option<Instant>) -> u64,
    ) -> (usize, bool) {
        let exchange = self.exchange;
        let _absence = Absence(&exchange.meeting);
        let mut window = exchange.window;
        loop {
            let earliest = exchange.earliest(window);
            let is_last = earliest > self.end;
            // A packet sent at `earliest` arrives at the next node after this time.
            let until = self.end.min(earliest + (self.lookahead - Duration::from_nanos(1)));
            let mut work = also(window, (!is_last).then_some(until));
            for (number, partition) in share.iter_mut() {
                exchange.take(window, *number, |transfer| partition.accept(transfer));
                if !is_last {
                    let before = partition.crossings;
                    partition.run_until(until, self.view);
                    work += partition.crossings - before;
                    let next = partition.next();
                    exchange.leave(window + 1, *number, &mut partition.outboxes, next);
                }
            }
            if is_last {
                return (window, false);
            }
            window += 1;
            if exchange.meeting.wait(self.threads, work) {
                return (window, true);
            }
        }
    }
}

/// Work of the hosts for a packet that arrives, in crossings.
const WORK_OF_HOSTS: u64 = 4;

/// Divide the partitions of satellites among threads, so that all have about as much work. The first thread also has the
/// sites.
fn shares<'p, P>(ground: &Ground<P>, sky: &'p mut [Sky<P>], threads: usize) -> Vec<Share<'p, P>> {
    let mut work = vec![0; threads];
    work[0] = ground.crossings * WORK_OF_HOSTS;
    let mut by_work: Share<'p, P> = sky.iter_mut().enumerate().collect();
    by_work.sort_by_key(|(number, partition)| (std::cmp::Reverse(partition.crossings), *number));
    let mut shares: Vec<Share<'p, P>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, partition) in by_work {
        let thread = (0..threads).min_by_key(|thread| work[*thread]).unwrap_or(0);
        work[thread] += partition.crossings.max(1);
        shares[thread].push((number, partition));
    }
    shares
}
