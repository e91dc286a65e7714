//! Throughput of past chunks, and errors of its estimates.

use std::collections::VecDeque;

/// The most recent values of a series, up to a fixed number.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    capacity: usize,
    values: VecDeque<f64>,
}

impl Window {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), values: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, value: f64) {
        if self.values.len() == self.capacity {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Harmonic mean of the values; `None` if there are none.
    pub(crate) fn harmonic_mean(&self) -> Option<f64> {
        let inverse: f64 = self.values.iter().map(|value| 1.0 / value).sum();
        (inverse > 0.0).then(|| self.values.len() as f64 / inverse)
    }

    /// Largest value; 0 if there are none.
    pub(crate) fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }
}

/// Relative errors of recent throughput estimates, from which RobustMPC derives its discount (Yin
/// et al. 2015, section 5).
#[derive(Debug, Clone)]
pub(crate) struct EstimateErrors {
    estimate_bps: Option<f64>,
    errors: Window,
}

impl EstimateErrors {
    pub(crate) fn new(chunks: usize) -> Self {
        Self { estimate_bps: None, errors: Window::new(chunks) }
    }

    /// Set the estimate of the next chunk's throughput, without discount.
    pub(crate) fn set_estimate(&mut self, bps: f64) {
        self.estimate_bps = Some(bps);
    }

    /// Add the error of the last estimate, given the throughput at which the chunk arrived.
    pub(crate) fn add_error(&mut self, bps: f64) {
        let estimate = self.estimate_bps.take();
        self.errors.push(estimate.map_or(0.0, |estimate| (estimate - bps).abs() / bps));
    }

    /// Divisor by which estimates are discounted: 1 + the largest recent error.
    pub(crate) fn divisor(&self) -> f64 {
        1.0 + self.errors.max()
    }
}
