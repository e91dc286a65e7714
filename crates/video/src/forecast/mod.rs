//! Forecasts of the rate (exact, erroneous or predicted) for controllers that look ahead; one file for each
//! kind.

mod constant;
mod oracle_errors;
mod prediction_history;
mod predictions;
mod transfer_path;

use std::fmt;

pub use constant::Constant;
pub use oracle_errors::Errors;
pub use prediction_history::PredictionHistory;
pub use predictions::Predictions;
pub use transfer_path::TransferPath;

/// Forecast of the rate. Times are in seconds since the session's start.
pub trait RateForecast: fmt::Debug + Send + Sync {
    /// Time at which `bytes` requested at `from_s` will have arrived; infinity if they never arrive.
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64;

    /// Mean rates in bit/s of each of the next `seconds` seconds, for controllers that average them.
    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64>;
}
