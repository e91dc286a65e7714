//! The throughput of past chunks, and how wrong an estimate of it was.

use std::collections::VecDeque;

/// The last few of a series.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    kept: usize,
    values: VecDeque<f64>,
}

impl Window {
    pub(crate) fn of(kept: usize) -> Self {
        Self { kept: kept.max(1), values: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, value: f64) {
        if self.values.len() == self.kept {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// `None` where there are none.
    pub(crate) fn harmonic_mean(&self) -> Option<f64> {
        let inverse: f64 = self.values.iter().map(|value| 1.0 / value).sum();
        (inverse > 0.0).then(|| self.values.len() as f64 / inverse)
    }

    /// 0 where there are none.
    pub(crate) fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }
}

/// How wrong estimates of the next chunk's throughput were: RobustMPC's discount (Yin et al. 2015, 5).
#[derive(Debug, Clone)]
pub(crate) struct Doubt {
    believed_bps: Option<f64>,
    errors: Window,
}

impl Doubt {
    pub(crate) fn over(chunks: usize) -> Self {
        Self { believed_bps: None, errors: Window::of(chunks) }
    }

    /// What the next chunk's throughput is believed to be, before any discount.
    pub(crate) fn believe(&mut self, bps: f64) {
        self.believed_bps = Some(bps);
    }

    /// A chunk has come at this throughput.
    pub(crate) fn learn(&mut self, bps: f64) {
        let believed = self.believed_bps.take();
        self.errors.push(believed.map_or(0.0, |believed| (believed - bps).abs() / bps));
    }

    /// What estimates are divided by.
    pub(crate) fn divisor(&self) -> f64 {
        1.0 + self.errors.max()
    }
}
