//! One rate for all that comes.

use super::Ahead;

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constant {
    /// The rate.
    pub bps: f64,
}

impl Ahead for Constant {
    #[inline]
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        from_s + bytes * 8.0 / self.bps
    }

    fn bps(&self, _from_s: f64, seconds: usize) -> Vec<f64> {
        vec![self.bps; seconds]
    }
}
