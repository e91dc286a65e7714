//! The truth: what transfers over a rate trace take. The same object is the path of sessions in virtual time, and the oracle of those
//! who may know it.

use std::sync::Arc;

use super::Ahead;
use crate::RateTrace;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct OverPath {
    /// The rate over time.
    pub trace: Arc<RateTrace>,
    /// Where in the trace the session begins.
    pub offset_s: f64,
    /// The share of the rate that is the film's: headers take the rest.
    pub payload_share: f64,
    /// What each request takes beside its transfer.
    pub delay_s: f64,
}

impl OverPath {
    /// What of `bytes` asked for at `from_s` has come by `now_s`.
    pub fn come_by(&self, from_s: f64, now_s: f64, bytes: f64) -> f64 {
        let transferring_s = now_s - from_s - self.delay_s;
        if transferring_s <= 0.0 {
            return 0.0;
        }
        let from_s = from_s + self.offset_s;
        let mean = self.trace.mean_bps(from_s, from_s + transferring_s);
        (mean / 8.0 * transferring_s * self.payload_share).min(bytes)
    }
}

impl Ahead for OverPath {
    #[inline]
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        let passed_s = self.trace.passes_at(from_s + self.offset_s, bytes, self.payload_share);
        passed_s - self.offset_s + self.delay_s
    }

    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64> {
        let at = |second: usize| from_s + self.offset_s + second as f64;
        let mean = |second| self.trace.mean_bps(at(second), at(second + 1));
        (0..seconds).map(|second| mean(second) * self.payload_share).collect()
    }
}
