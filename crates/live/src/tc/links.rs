//! Links emulated by Linux's disciplines, during a run: applies the changes of the schedule and
//! reads the disciplines' counters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_host::clock::{RunClock, Stop, minimize_timer_slack, sleep_until};
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

/// Links of a run that Linux's disciplines emulate, with their losses and views.
#[derive(Debug)]
pub(crate) struct TcLinks {
    routers: Routers,
    losses: Mutex<[Losses; 2]>,
    pub(crate) views: [Arc<PumpView>; 2],
}

/// Losses after a queue, by reason. A discipline only counts its drops; the reason of a drop is the
/// reason in force at the time.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    /// Reason for which every packet is lost at present; `None` if packets pass.
    loss_of_all: Option<LossReason>,
    counted: u64,
    drops: Drops,
}

impl Losses {
    /// Update the losses from a discipline's total number of drops. A total below the last one is
    /// from an earlier request and is ignored.
    fn update(&mut self, drops: u64) {
        let since = drops.saturating_sub(self.counted);
        self.drops[self.loss_of_all.unwrap_or(LossReason::Loss)] += since;
        self.counted = self.counted.max(drops);
    }
}

impl TcLinks {
    /// Connect the two ends by routers with the plan's first disciplines.
    pub(crate) fn create(ends: [&NetNamespace; 2], plan: &TcPlan) -> Result<Arc<Self>, HostError> {
        let [from_has, to_has] = [End::From, End::To].map(Addresses::all_of);
        let ends = [(ends[0], from_has.as_slice()), (ends[1], to_has.as_slice())];
        let first = plan.directions.each_ref().map(|steps| &steps[0]);
        let disciplines = first.map(|step| &step.disciplines);
        let routers = Routers::create(ends, disciplines, plan.segments)?;
        let losses =
            first.map(|step| Losses { loss_of_all: step.loss_of_all, ..Losses::default() });
        let views = [Arc::new(PumpView::new()?), Arc::new(PumpView::new()?)];
        Ok(Arc::new(Self { routers, losses: Mutex::new(losses), views }))
    }

    /// Update the views of both directions from the disciplines' counters.
    pub(crate) fn refresh(&self) -> Result<(), HostError> {
        for direction in [Direction::Forward, Direction::Back] {
            let counted = self.routers.stats(direction)?;
            let losses = self.note_losses(direction, &counted);
            self.views[direction.index()].publish(state(&counted, losses));
        }
        Ok(())
    }

    /// Kernel's packet counters of the two ends' devices.
    pub(crate) fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        self.routers.counts()
    }

    fn losses(&self) -> MutexGuard<'_, [Losses; 2]> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_losses(&self, direction: Direction, counted: &DisciplineStats) -> Losses {
        let mut losses = self.losses();
        losses[direction.index()].update(counted.line[1].drops);
        losses[direction.index()]
    }

    /// Change those disciplines whose settings in `to` differ from the current ones, `from`.
    fn change(&self, direction: Direction, from: &Disciplines, to: &Step) -> Result<(), HostError> {
        // Attribute the losses so far to the previous reason.
        if self.losses()[direction.index()].loss_of_all != to.loss_of_all {
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
        self.losses()[direction.index()].loss_of_all = to.loss_of_all;
        Ok(())
    }
}

/// Convert the disciplines' counters to those of skyhop's own links.
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
        underway_packets: queue.packets.saturating_sub(line.packets + losses.counted),
        ..LinkStats::default()
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

/// Thread that applies the schedule's changes.
pub(crate) struct RunningTc {
    pub(crate) links: Arc<TcLinks>,
    thread: Worker<()>,
}

impl RunningTc {
    /// Start the thread of both directions.
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

    /// Whether the thread has ended; before `stop` is set, it ends only because of an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Wait for the thread to end.
    pub(crate) fn join(self) -> Result<(), HostError> {
        join(self.thread)
    }
}

fn follow(links: &TcLinks, plan: &TcPlan, clock: RunClock, stop: &Stop) -> Result<(), HostError> {
    minimize_timer_slack()?;
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
    // The thread waits until `stop` is set, because an earlier end would count as a failure.
    sleep_until(clock, Instant::NEVER, stop).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_once_though_answers_overtake_each_other() {
        let mut losses = Losses::default();
        for drops in [5, 3, 6] {
            losses.update(drops);
        }
        assert_eq!(losses.drops[LossReason::Loss], 6);
        losses.loss_of_all = Some(LossReason::Outage);
        losses.update(8);
        assert_eq!(
            [LossReason::Loss, LossReason::Outage].map(|reason| losses.drops[reason]),
            [6, 2]
        );
    }
}
