//! The part of a link behind its queue: transmitter, losses and delay line.

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::delay_line::DelayLine;
use crate::impairment::Impairment;
use crate::qdisc::Queued;
use crate::transmitter::Transmitter;
use crate::{LinkSchedule, Packet};

/// Everything behind the queue: transmitter, losses, delay line.
#[derive(Debug)]
pub(crate) struct LinkTail<P> {
    transmitter: Transmitter,
    impairment: Impairment,
    pub(crate) line: DelayLine<P>,
}

/// A packet that will be lost at the end of its transmission.
#[derive(Debug)]
pub(crate) struct ScheduledLoss<P> {
    pub(crate) at: Instant,
    pub(crate) reason: LossReason,
    pub(crate) packet: Packet<P>,
}

impl<P> LinkTail<P> {
    pub(crate) fn new(schedule: &LinkSchedule, seed: u64) -> Self {
        Self {
            transmitter: Transmitter::new(schedule),
            impairment: Impairment::new(schedule, seed),
            line: DelayLine::new(schedule.delay.clone()),
        }
    }

    /// Earliest time from `at` on at which a transmission can begin; [`Instant::NEVER`] if the rate stays zero.
    #[inline]
    pub(crate) fn earliest_start(&mut self, at: Instant) -> Instant {
        self.transmitter.earliest_start(at)
    }

    /// End of the transmission of `size` bytes that begins at `begins`: [`Transmitter::transmit`].
    #[inline]
    pub(crate) fn transmit(&mut self, begins: Instant, size: Bytes, back_to_back: bool) -> Instant {
        self.transmitter.transmit(begins, size, back_to_back)
    }

    /// Transmitter, for a queue that plans transmissions itself.
    #[inline]
    pub(crate) fn transmitter(&mut self) -> &mut Transmitter {
        &mut self.transmitter
    }

    /// Put a packet whose transmission ends at `ends` into the delay line. As the schedule is known, the
    /// transmission need not have begun yet. Return the loss instead if the packet is lost at `ends`.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        ends: Instant,
        queued: Queued<P>,
    ) -> Option<Box<ScheduledLoss<P>>> {
        match self.impairment.loss_at(ends) {
            Some(reason) => {
                Some(Box::new(ScheduledLoss { at: ends, reason, packet: queued.packet }))
            }
            None => {
                self.line.enter(ends, queued);
                None
            }
        }
    }
}
