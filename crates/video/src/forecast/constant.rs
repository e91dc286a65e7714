//! Forecast of one constant rate.

use super::RateForecast;

/// Constant rate at all times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constant {
    /// The rate in bits per second.
    pub bps: f64,
}

impl RateForecast for Constant {
    #[inline]
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        from_s + bytes * 8.0 / self.bps
    }

    fn bps(&self, _from_s: f64, seconds: usize) -> Vec<f64> {
        vec![self.bps; seconds]
    }
}
