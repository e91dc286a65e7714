//! What may take a packet at the moment it leaves the queue: random loss, then an outage.

use skyhop_model::{DuringOutage, LossReason};
use skyhop_units::{Instant, Ratio};

use crate::chance::Chance;
use crate::timeline::Timeline;
use crate::{LinkSchedule, Outage, Piece};

/// Everything that stands between the queue and the delay line.
#[derive(Debug)]
pub(crate) struct Impairment {
    loss: RandomLoss,
    outages: Outages,
}

impl Impairment {
    pub(crate) fn new(schedule: &LinkSchedule, seed: u64) -> Self {
        Self { loss: RandomLoss::new(&schedule.loss, seed), outages: Outages::new(schedule) }
    }

    /// Why a packet whose transmission ends at `at` is lost, if it is.
    ///
    /// Asked once for each packet, in the order in which they leave the queue.
    #[inline]
    pub(crate) fn takes(&mut self, at: Instant) -> Option<LossReason> {
        if self.loss.takes(at) {
            Some(LossReason::Loss)
        } else if self.outages.cover(at) {
            Some(LossReason::Outage)
        } else {
            None
        }
    }
}

/// Independent random loss from a stream of its own.
#[derive(Debug)]
struct RandomLoss {
    probability: Timeline<Piece<Ratio>>,
    chance: Chance,
}

impl RandomLoss {
    fn new(pieces: &[Piece<Ratio>], seed: u64) -> Self {
        Self { probability: Timeline::new(pieces.to_vec()), chance: Chance::of_loss(seed) }
    }

    #[inline]
    fn takes(&mut self, at: Instant) -> bool {
        let probability = self.probability.seek(at).value.fraction();
        probability > 0.0 && self.chance.draw() < probability
    }
}

/// The outages in which packets are lost: none where the queue is held instead.
#[derive(Debug)]
struct Outages {
    outages: Box<[Outage]>,
    index: usize,
}

impl Outages {
    fn new(schedule: &LinkSchedule) -> Self {
        let outages = match schedule.during_outage {
            DuringOutage::Drop => schedule.outages.as_slice(),
            DuringOutage::Hold => &[],
        };
        Self { outages: outages.into(), index: 0 }
    }

    /// Whether one of them covers `at`, which is not before any earlier `at`.
    #[inline]
    fn cover(&mut self, at: Instant) -> bool {
        while let Some(outage) = self.outages.get(self.index) {
            if at < outage.until {
                return outage.from <= at;
            }
            self.index += 1;
        }
        false
    }
}
