//! Losses at the moment a packet leaves the queue: random loss first, then outages.

use skyhop_model::{DuringOutage, LossReason};
use skyhop_units::{Duration, Instant};

use crate::rng::LinkRng;
use crate::timeline::Timeline;
use crate::{GilbertElliott, LinkSchedule, Loss, Outage, Piece, Switching};

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

/// Random loss. Whether a packet is lost is drawn from a random stream of its own; the states of losses in bursts
/// are drawn from others.
#[derive(Debug)]
struct RandomLoss {
    pieces: Timeline<Piece<Loss>>,
    rng: LinkRng,
    seed: u64,
    /// State of the losses in bursts, of the piece in which the last packet left.
    bursts: Option<Box<Bursts>>,
}

impl RandomLoss {
    fn new(pieces: &[Piece<Loss>], seed: u64) -> Self {
        let (pieces, rng) = (Timeline::new(pieces.to_vec()), LinkRng::for_loss(seed));
        Self { pieces, rng, seed, bursts: None }
    }

    #[inline]
    fn is_lost(&mut self, at: Instant) -> bool {
        let piece = self.pieces.seek(at);
        let probability = match piece.value {
            Loss::Independent(probability) => probability.fraction(),
            Loss::GilbertElliott(model) => {
                let (from, index) = (piece.from, self.pieces.index());
                match &mut self.bursts {
                    Some(bursts) if bursts.piece == index => bursts.probability_at(at),
                    other => other
                        .insert(Box::new(Bursts::begin(model, from, self.seed, index)))
                        .probability_at(at),
                }
            }
        };
        probability > 0.0 && self.rng.draw() < probability
    }
}

/// State of losses in bursts.
#[derive(Debug)]
struct Bursts {
    model: GilbertElliott,
    /// Index of the schedule's piece with the model.
    piece: usize,
    is_bad: bool,
    /// End of the current period, with [`Switching::InTime`]; [`Instant::NEVER`] otherwise.
    until: Instant,
    rng: LinkRng,
}

impl Bursts {
    /// Begin at `from` in the stationary distribution.
    #[cold]
    fn begin(model: GilbertElliott, from: Instant, seed: u64, piece: usize) -> Self {
        let mut rng = LinkRng::for_loss_states(seed, piece);
        let is_bad = rng.draw() < model.bad_share();
        let mut bursts = Self { model, piece, is_bad, until: Instant::NEVER, rng };
        if let Switching::InTime { good, bad } = model.switching {
            bursts.until = from;
            // The rest of a period that has begun earlier is distributed like a whole one.
            bursts.extend(good, bad);
        }
        bursts
    }

    /// Probability of loss of a packet that leaves the queue at `at`. `at` must not decrease from call to call.
    #[inline]
    fn probability_at(&mut self, at: Instant) -> f64 {
        let is_bad = match self.model.switching {
            Switching::PerPacket { p, r } => {
                let is_bad = self.is_bad;
                let leaves = if is_bad { r } else { p };
                self.is_bad ^= self.rng.draw() < leaves.fraction();
                is_bad
            }
            Switching::InTime { good, bad } => {
                // A packet that never leaves meets no state.
                while self.until <= at && at != Instant::NEVER {
                    self.is_bad = !self.is_bad;
                    self.extend(good, bad);
                }
                self.is_bad
            }
        };
        let GilbertElliott { bad_loss, good_loss, .. } = self.model;
        if is_bad { bad_loss.fraction() } else { good_loss.fraction() }
    }

    /// Draw the length of the period that begins at `until`.
    fn extend(&mut self, good: Duration, bad: Duration) {
        let mean = if self.is_bad { bad } else { good };
        let length_ns = mean.as_nanos() as f64 * self.rng.draw_exponential();
        self.until += Duration::from_nanos(length_ns.round() as u64);
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
