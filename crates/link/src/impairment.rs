//! Losses at the moment a packet leaves the queue: random loss first, then outages.

use skyhop_model::{DuringOutage, LossReason};
use skyhop_units::{Instant, Ratio};

use crate::rng::LinkRng;
use crate::timeline::Timeline;
use crate::{LinkSchedule, Outage, Piece};

/// Loss processes between the queue and the delay line.
#[derive(Debug)]
pub(crate) struct Impairment {
    loss: RandomLoss,
    outages: Outages,
}

impl Impairment {
    pub(crate) fn new(schedule: &LinkSchedule, seed: u64) -> Self {
        Self { loss: RandomLoss::new(&schedule.loss, seed), outages: Outages::new(schedule) }
    }

    /// Reason for which a packet whose transmission ends at `at` is lost, if it is.
    ///
    /// Call it once per packet, in the order in which packets leave the queue: each call draws from the random
    /// stream.
    #[inline]
    pub(crate) fn loss_at(&mut self, at: Instant) -> Option<LossReason> {
        if self.loss.is_lost(at) {
            Some(LossReason::Loss)
        } else if self.outages.covers(at) {
            Some(LossReason::Outage)
        } else {
            None
        }
    }
}

/// Independent (Bernoulli) random loss, drawn from a random stream of its own.
#[derive(Debug)]
struct RandomLoss {
    probability: Timeline<Piece<Ratio>>,
    rng: LinkRng,
}

impl RandomLoss {
    fn new(pieces: &[Piece<Ratio>], seed: u64) -> Self {
        Self { probability: Timeline::new(pieces.to_vec()), rng: LinkRng::for_loss(seed) }
    }

    #[inline]
    fn is_lost(&mut self, at: Instant) -> bool {
        let probability = self.probability.seek(at).value.fraction();
        probability > 0.0 && self.rng.draw() < probability
    }
}

/// Outages in which packets are lost; empty with [`DuringOutage::Hold`], which keeps packets in the queue
/// instead.
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

    /// Whether an outage covers `at`. `at` must not decrease from call to call.
    #[inline]
    fn covers(&mut self, at: Instant) -> bool {
        while let Some(outage) = self.outages.get(self.index) {
            if at < outage.until {
                return outage.from <= at;
            }
            self.index += 1;
        }
        false
    }
}
