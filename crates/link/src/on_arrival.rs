//! First in, first out, computed ahead: the schedule is known, so when a packet enters the queue, it is known
//! whether and when it arrives at the far end. The packet goes into the delay line at once, with its time of
//! arrival; this queue stores only the times at which transmissions begin and end.

use std::collections::VecDeque;

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::link_tail::{LinkTail, ScheduledLoss};
use crate::qdisc::{Backlog, Queued};
use crate::stats::Verdicts;
use crate::transmissions::Transmissions;
use crate::{LinkConfig, Via};

/// Queue of [`Fifo`](crate::qdisc::fifo::Fifo) and its transmissions, used by links with that discipline in its
/// place: a packet is moved once less, and no event is needed between its entry and its arrival.
#[derive(Debug)]
pub(crate) struct OnArrival<P> {
    transmissions: Transmissions,
    /// Packets that wait or are being transmitted and will be lost when their transmission ends.
    scheduled_losses: VecDeque<Box<ScheduledLoss<P>>>,
}

impl<P> OnArrival<P> {
    /// Create the queue of a link with a valid configuration.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self { transmissions: Transmissions::new(config), scheduled_losses: VecDeque::new() }
    }

    /// Enqueue a packet that arrives now; [`Self::run_until`] has been called for now.
    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        queued: Queued<P>,
        via: Via,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let (now, wire_size) = (queued.since, queued.packet.wire_size);
        let Some(ends) = self.transmissions.enter(now, wire_size, via, tail.transmitter()) else {
            verdicts.lose(now, LossReason::Queue, queued.packet);
            return;
        };
        if let Some(loss) = tail.send(ends, queued) {
            self.scheduled_losses.push_back(loss);
        }
    }

    /// Move the transmissions that begin up to and including `until` out of the queue.
    #[inline]
    pub(crate) fn run_until(&mut self, until: Instant) {
        self.transmissions.run_until(until);
    }

    /// Record the losses up to and including `until`.
    #[inline]
    pub(crate) fn lose_until(&mut self, until: Instant, verdicts: &mut Verdicts<P>) {
        while self.next_loss() <= until && self.next_loss() != Instant::NEVER {
            if let Some(loss) = self.scheduled_losses.pop_front() {
                let ScheduledLoss { at, reason, packet } = *loss;
                verdicts.lose(at, reason, packet);
            }
        }
    }

    /// Time of the next loss that [`Self::lose_until`] records; [`Instant::NEVER`] while there is none.
    #[inline]
    pub(crate) fn next_loss(&self) -> Instant {
        self.scheduled_losses.front().map_or(Instant::NEVER, |first| first.at)
    }

    /// Wire bytes of the background that found the queue full, and of that which waits at `now`.
    pub(crate) fn missing_background(&self, now: Instant) -> Bytes {
        self.transmissions.missing_background(now)
    }

    /// Packets that wait now, after [`Self::run_until`] for now.
    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.transmissions.backlog()
    }

    /// Packets that are being transmitted or are in the delay line.
    pub(crate) fn underway_packets(&self, in_line: u64) -> u64 {
        in_line + self.scheduled_losses.len() as u64 - self.backlog().packets
    }

    /// Wire bytes whose transmission has ended by `now`, after [`Self::run_until`] for `now`.
    pub(crate) fn transmitted_bytes(&self, now: Instant) -> Bytes {
        self.transmissions.ended_bytes(now)
    }
}
