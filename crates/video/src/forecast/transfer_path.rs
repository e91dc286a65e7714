//! Transfers over a rate trace. The same object is the path of sessions in virtual time, and the oracle of
//! controllers to which the true rate of that path is revealed.

use std::sync::Arc;

use super::RateForecast;
use crate::RateTrace;

/// Path between server and player: a rate trace, with overhead and request delay.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferPath {
    /// Rate over time, headers included.
    pub trace: Arc<RateTrace>,
    /// Time of the trace at which the session starts, in seconds.
    pub offset_s: f64,
    /// Share of the rate that is available to the film; headers take the rest.
    pub payload_share: f64,
    /// Delay of each request in addition to its transfer, in seconds.
    pub delay_s: f64,
}

impl TransferPath {
    /// Bytes of a chunk that have arrived by `now_s`; the chunk has `bytes` and was requested at `from_s`.
    pub fn received_by(&self, from_s: f64, now_s: f64, bytes: f64) -> f64 {
        let transferring_s = now_s - from_s - self.delay_s;
        if transferring_s <= 0.0 {
            return 0.0;
        }
        let from_s = from_s + self.offset_s;
        let mean = self.trace.mean_bps(from_s, from_s + transferring_s);
        (mean / 8.0 * transferring_s * self.payload_share).min(bytes)
    }
}

impl RateForecast for TransferPath {
    #[inline]
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64 {
        let passed_s = self.trace.transfer_end_s(from_s + self.offset_s, bytes, self.payload_share);
        passed_s - self.offset_s + self.delay_s
    }

    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64> {
        let at = |second: usize| from_s + self.offset_s + second as f64;
        let mean = |second| self.trace.mean_bps(at(second), at(second + 1));
        (0..seconds).map(|second| mean(second) * self.payload_share).collect()
    }
}
