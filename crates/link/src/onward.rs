//! What is behind a queue: the transmitter, what may take a packet as it leaves, the delay line.

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::delay_line::DelayLine;
use crate::impairment::Impairment;
use crate::qdisc::Queued;
use crate::transmitter::Transmitter;
use crate::{LinkSchedule, Packet};

/// Everything that a packet meets behind the queue.
#[derive(Debug)]
pub(crate) struct Onward<P> {
    transmitter: Transmitter,
    impairment: Impairment,
    pub(crate) line: DelayLine<P>,
}

/// A packet that will be lost as its transmission ends.
#[derive(Debug)]
pub(crate) struct Doomed<P> {
    pub(crate) at: Instant,
    pub(crate) reason: LossReason,
    pub(crate) packet: Packet<P>,
}

impl<P> Onward<P> {
    pub(crate) fn new(schedule: &LinkSchedule, seed: u64) -> Self {
        Self {
            transmitter: Transmitter::new(schedule),
            impairment: Impairment::new(schedule, seed),
            line: DelayLine::new(schedule.delay.clone()),
        }
    }

    /// The first moment from `at` on at which a transmission can begin; [`Instant::NEVER`] where there is none.
    #[inline]
    pub(crate) fn opens(&mut self, at: Instant) -> Instant {
        self.transmitter.opens(at)
    }

    /// When the transmission of `size` ends that begins at `begins`: [`Transmitter::transmit`].
    #[inline]
    pub(crate) fn transmit(&mut self, begins: Instant, size: Bytes, back_to_back: bool) -> Instant {
        self.transmitter.transmit(begins, size, back_to_back)
    }

    /// Sends a packet on its way, whose transmission ends at `ends`; the schedule being known, it may have yet to
    /// begin. Returned where it is lost then.
    #[inline(always)]
    pub(crate) fn send(&mut self, ends: Instant, queued: Queued<P>) -> Option<Box<Doomed<P>>> {
        match self.impairment.takes(ends) {
            Some(reason) => Some(Box::new(Doomed { at: ends, reason, packet: queued.packet })),
            None => {
                self.line.enter(ends, queued);
                None
            }
        }
    }
}
