//! Linux's disciplines at work: changed when the schedule says so, and asked what they have counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_host::clock::{RunClock, Stop, sleep_until, wake_precisely};
use skyhop_host::device::{DeviceCount, DisciplineStats, Disciplines, Routers};
use skyhop_host::error::HostError;
use skyhop_host::namespace::NetNamespace;
use skyhop_host::tc::Position;
use skyhop_host::thread::{Worker, join, spawn};
use skyhop_link::LinkStats;
use skyhop_model::{Direction, Drops, End, LossReason};
use skyhop_units::Instant;

use super::plan::{Step, TcPlan};
use crate::pump::{PumpState, PumpView};
use crate::traffic::Addresses;

/// The links of a run, with what is known of them.
#[derive(Debug)]
pub(crate) struct TcLinks {
    routers: Routers,
    losses: Mutex<[Losses; 2]>,
    pub(crate) views: [Arc<PumpView>; 2],
}

/// What was lost behind a queue: a discipline only counts, and the moment tells the reason.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    /// Why all is lost at present, if it is.
    takes_all: Option<LossReason>,
    seen: u64,
    drops: Drops,
}

impl Losses {
    /// So many have been lost: until now, or until somebody asked whose answer comes late.
    fn have_become(&mut self, drops: u64) {
        let since = drops.saturating_sub(self.seen);
        self.drops[self.takes_all.unwrap_or(LossReason::Loss)] += since;
        self.seen = self.seen.max(drops);
    }
}

impl TcLinks {
    /// Joins the two ends.
    pub(crate) fn create(ends: [&NetNamespace; 2], plan: &TcPlan) -> Result<Arc<Self>, HostError> {
        let [from_has, to_has] = [End::From, End::To].map(Addresses::all_of);
        let ends = [(ends[0], from_has.as_slice()), (ends[1], to_has.as_slice())];
        let first = plan.directions.each_ref().map(|steps| &steps[0]);
        let disciplines = first.map(|step| &step.disciplines);
        let routers = Routers::create(ends, disciplines, plan.segments)?;
        let losses = first.map(|step| Losses { takes_all: step.takes_all, ..Losses::default() });
        let views = [Arc::new(PumpView::new()?), Arc::new(PumpView::new()?)];
        Ok(Arc::new(Self { routers, losses: Mutex::new(losses), views }))
    }

    /// Brings the views up to date.
    pub(crate) fn refresh(&self) -> Result<(), HostError> {
        for direction in [Direction::Forward, Direction::Back] {
            let counted = self.routers.stats(direction)?;
            let losses = self.note_losses(direction, &counted);
            self.views[direction.index()].show(state(&counted, losses));
        }
        Ok(())
    }

    /// What the kernel has counted at the ends' devices.
    pub(crate) fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        self.routers.counts()
    }

    fn losses(&self) -> MutexGuard<'_, [Losses; 2]> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_losses(&self, direction: Direction, counted: &DisciplineStats) -> Losses {
        let mut losses = self.losses();
        losses[direction.index()].have_become(counted.line[1].drops);
        losses[direction.index()]
    }

    /// Sets what a step changes.
    fn change(&self, direction: Direction, from: &Disciplines, to: &Step) -> Result<(), HostError> {
        // What was lost until now was lost for the reason of until now.
        if self.losses()[direction.index()].takes_all != to.takes_all {
            self.note_losses(direction, &self.routers.stats(direction)?);
        }
        let both = [Position::Root, Position::Below].into_iter().enumerate();
        for (place, at) in both {
            let Disciplines { queue, line } = &to.disciplines;
            if queue[place] != from.queue[place] {
                self.routers.change_queue(direction, at, &queue[place])?;
            }
            if line[place] != from.line[place] {
                self.routers.change_line(direction, at, &line[place])?;
            }
        }
        self.losses()[direction.index()].takes_all = to.takes_all;
        Ok(())
    }
}

/// A direction as skyhop's own links would tell of it.
fn state(counted: &DisciplineStats, losses: Losses) -> PumpState {
    let ([queue, child], [line, _]) = (counted.queue, counted.line);
    let mut stats = LinkStats {
        enqueued_packets: queue.packets + queue.drops + queue.backlog_packets,
        delivered_packets: line.packets,
        delivered_bytes: line.bytes,
        transmitted_bytes: queue.bytes,
        backlog_packets: queue.backlog_packets,
        backlog_bytes: queue.backlog_bytes,
        drops: losses.drops,
        marks: child.marks,
        underway_packets: queue.packets.saturating_sub(line.packets + losses.seen),
    };
    stats.drops[LossReason::Queue] = queue.drops;
    PumpState {
        entered: stats.enqueued_packets,
        delivered: stats.delivered_packets,
        idle: stats.backlog_packets + stats.underway_packets == 0,
        stats: vec![stats],
        ..PumpState::default()
    }
}

/// The thread that follows the schedule.
pub(crate) struct RunningTc {
    pub(crate) links: Arc<TcLinks>,
    thread: Worker<()>,
}

impl RunningTc {
    /// Begins to follow it.
    pub(crate) fn start(
        links: Arc<TcLinks>,
        plan: TcPlan,
        clock: RunClock,
        stop: Arc<Stop>,
    ) -> Result<Self, HostError> {
        let thread = spawn("link-tc".to_owned(), {
            let links = Arc::clone(&links);
            move || follow(&links, &plan, clock, &stop)
        })?;
        Ok(Self { links, thread })
    }

    /// Whether the thread has ended, which it does by itself only on an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<(), HostError> {
        join(self.thread)
    }
}

fn follow(links: &TcLinks, plan: &TcPlan, clock: RunClock, stop: &Stop) -> Result<(), HostError> {
    wake_precisely()?;
    let changes = |direction: Direction| {
        plan.directions[direction.index()].windows(2).map(move |pair| (direction, pair))
    };
    let mut changes: Vec<_> = changes(Direction::Forward).chain(changes(Direction::Back)).collect();
    changes.sort_by_key(|(_, pair)| pair[1].at);
    for (direction, pair) in changes {
        if !sleep_until(clock, pair[1].at, stop)? {
            return Ok(());
        }
        links.change(direction, &pair[0].disciplines, &pair[1])?;
    }
    // That it has ended before it is told to means that it has failed.
    sleep_until(clock, Instant::NEVER, stop).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_once_though_answers_overtake_each_other() {
        let mut losses = Losses::default();
        for drops in [5, 3, 6] {
            losses.have_become(drops);
        }
        assert_eq!(losses.drops[LossReason::Loss], 6);
        losses.takes_all = Some(LossReason::Outage);
        losses.have_become(8);
        assert_eq!(
            [LossReason::Loss, LossReason::Outage].map(|reason| losses.drops[reason]),
            [6, 2]
        );
    }
}
