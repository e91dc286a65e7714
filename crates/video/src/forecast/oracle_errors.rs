//! Oracle with random errors: the true rate of each second times a factor drawn for that second.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Distribution as _, Normal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TransferPath;
use crate::{RateTrace, RateTraceError};

/// Smallest factor of the rate: with a rate of zero throughout, a transfer would never end.
const LEAST: f64 = 0.01;

/// Distribution of an oracle's errors, which are independent from second to second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// Mean error relative to the true rate, -0.99 to 10; 0.1 is a tenth too high.
    pub mean_error: f64,
    /// Standard deviation of the errors relative to the true rate, 0 to 10.
    pub relative_sd: f64,
}

impl Errors {
    /// Check the ranges. The error is the invalid key and the reason.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(-0.99..=10.0).contains(&self.mean_error) {
            let what = format!("is {}; expected -0.99 to 10", self.mean_error);
            return Err(("mean_error", what));
        }
        if !(0.0..=10.0).contains(&self.relative_sd) {
            return Err(("relative_sd", format!("is {}; expected 0 to 10", self.relative_sd)));
        }
        Ok(())
    }
}

impl TransferPath {
    /// Return the path with each second's rate times a normally distributed factor of mean 1 + `mean_error`,
    /// at least 0.01. The same seed gives the same factors.
    ///
    /// # Errors
    /// The resulting trace has no rate above 0.
    pub fn with_errors(&self, errors: Errors, seed: u64) -> Result<Self, RateTraceError> {
        if errors == Errors::default() {
            return Ok(self.clone());
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let factors = Normal::new(1.0 + errors.mean_error, errors.relative_sd.max(0.0));
        let end_s = self.trace.length_s();
        let (mut starts_s, mut rates_bps) = (Vec::new(), Vec::new());
        for second in 0..end_s.ceil().max(1.0) as usize {
            let [from_s, until_s] = [second as f64, ((second + 1) as f64).min(end_s)];
            let factor = factors.map_or(1.0, |factors| factors.sample(&mut rng).max(LEAST));
            if until_s > from_s {
                starts_s.push(from_s);
                rates_bps.push((self.trace.mean_bps(from_s, until_s) * factor).max(0.0));
            }
        }
        let trace = Arc::new(RateTrace::new("the oracle", &starts_s, &rates_bps, end_s)?);
        Ok(Self { trace, ..self.clone() })
    }
}
