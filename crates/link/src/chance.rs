//! What a link leaves to chance: a stream of its own for each of its parts, from the link's one seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
#[derive(Debug)]
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    /// That of random loss.
    pub(crate) fn of_loss(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// That of the queue.
    pub(crate) fn of_queue(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        Self(rng)
    }

    /// Uniform in [0, 1), in steps of 2^-53, which an f64 holds exactly.
    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
}
