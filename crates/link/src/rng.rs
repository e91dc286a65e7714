//! Random numbers of a link: a separate stream for each of its parts, all from the link's one seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Exp1, Poisson, StandardNormal};

/// Stream of random numbers (ChaCha8), the same on every machine.
#[derive(Debug)]
pub(crate) struct LinkRng(ChaCha8Rng);

impl LinkRng {
    /// Stream of the random loss.
    pub(crate) fn for_loss(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Stream of the states of a loss in bursts, which begins with the piece of this index in the schedule. Each
    /// piece has its own stream, so that its states do not depend on the packets of earlier pieces.
    pub(crate) fn for_loss_states(seed: u64, piece: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 + piece as u64);
        Self(rng)
    }

    /// Stream of the queue discipline.
    pub(crate) fn for_queue(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        Self(rng)
    }

    /// Stream of the background load.
    pub(crate) fn for_background(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Numbers of pieces of a schedule are far below.
        rng.set_stream(u64::MAX);
        Self(rng)
    }

    /// Draw a number uniform in [0, 1), in steps of 2^-53, which an f64 holds exactly.
    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }

    /// Draw a number with an exponential distribution of mean 1.
    pub(crate) fn draw_exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }

    /// Draw a number with the standard normal distribution.
    pub(crate) fn draw_normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// Draw a whole number with a Poisson distribution of the mean; 0 if the mean is not above 0.
    pub(crate) fn draw_poisson(&mut self, mean: f64) -> f64 {
        Poisson::new(mean).map_or(0.0, |distribution| distribution.sample(&mut self.0))
    }

    /// Draw 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
}
