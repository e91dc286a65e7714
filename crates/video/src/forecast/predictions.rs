//! Prediction of a model: a rate for each time step, from the time of the prediction on. After the
//! last step, its rate continues to apply.

use std::sync::Arc;

use super::RateForecast;

/// Predicted payload rates of consecutive time steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    from_s: f64,
    every_s: f64,
    bps: Arc<[f64]>,
}

impl Predictions {
    /// Create a prediction from rates in bit/s, each for `every_s` seconds, the first from `from_s` on.
    ///
    /// # Errors
    /// The list is empty, a rate is negative or not a number, or the step is not above 0 s.
    pub fn new(from_s: f64, every_s: f64, bps: Vec<f64>) -> Result<Self, String> {
        if bps.is_empty() {
            return Err("there are no predictions; expected at least one rate".to_owned());
        }
        if !(every_s > 0.0 && every_s.is_finite() && from_s.is_finite()) {
            return Err(format!(
                "predictions every {every_s} s from {from_s} s; expected more than 0 s"
            ));
        }
        if let Some(bad) = bps.iter().find(|bps| !(0.0..=1e15).contains(*bps)) {
            return Err(format!("a prediction of {bad} bit/s; expected 0 or more"));
        }
        Ok(Self { from_s, every_s, bps: bps.into() })
    }

    /// Time at which the prediction was made, in seconds.
    pub const fn from_s(&self) -> f64 {
        self.from_s
    }

    /// Return the prediction with times relative to `began_s`.
    pub fn since(&self, began_s: f64) -> Self {
        Self { from_s: self.from_s - began_s, ..self.clone() }
    }

    fn step_at(&self, at_s: f64) -> usize {
        (((at_s - self.from_s) / self.every_s).max(0.0) as usize).min(self.bps.len() - 1)
    }
}

impl RateForecast for Predictions {
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        let (mut left, mut at_s) = (bytes * 8.0, from_s);
        let first = self.step_at(from_s);
        for step in first..self.bps.len() - 1 {
            let ends_s = self.from_s + (step + 1) as f64 * self.every_s;
            let passes = (ends_s - at_s).max(0.0) * self.bps[step];
            if passes >= left {
                return at_s + left / self.bps[step];
            }
            (left, at_s) = (left - passes, at_s.max(ends_s));
        }
        at_s + left / self.bps[self.bps.len() - 1]
    }

    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64> {
        (0..seconds).map(|second| self.bps[self.step_at(from_s + second as f64)]).collect()
    }
}
