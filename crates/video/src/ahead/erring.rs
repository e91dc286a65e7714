//! An oracle with a stated error: the rate of each second of the truth, times a factor drawn for that second.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Distribution as _, Normal};

use super::{Ahead, OverPath};
use crate::{RateTrace, RateTraceError};

/// The least factor: a rate that is believed to be zero throughout would never end.
const LEAST: f64 = 0.01;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Erring(OverPath);

impl Erring {
    /// The truth with errors of this relative standard deviation, normal around 1 and at least 0.01. The same seed errs the same.
    ///
    /// # Errors
    /// Nothing of the trace is left.
    pub fn new(truth: &OverPath, relative_sd: f64, seed: u64) -> Result<Self, RateTraceError> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let factors = Normal::new(1.0, relative_sd.max(0.0));
        let seconds = truth.trace.length_s().ceil().max(1.0) as usize;
        let (mut starts_s, mut rates_bps) = (Vec::new(), Vec::new());
        let end_s = truth.trace.length_s();
        for second in 0..seconds {
            let [from_s, until_s] = [second as f64, ((second + 1) as f64).min(end_s)];
            let factor = factors.map_or(1.0, |factors| factors.sample(&mut rng).max(LEAST));
            if until_s > from_s {
                starts_s.push(from_s);
                rates_bps.push((truth.trace.mean_bps(from_s, until_s) * factor).max(0.0));
            }
        }
        let trace = Arc::new(RateTrace::new("what lies ahead", &starts_s, &rates_bps, end_s)?);
        Ok(Self(OverPath { trace, ..truth.clone() }))
    }
}

impl Ahead for Erring {
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        self.0.arrives_s(from_s, bytes)
    }

    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64> {
        self.0.bps(from_s, seconds)
    }
}
