//! What lies ahead: how long transfers will take, as far as somebody claims to know; one file each.

mod constant;
mod erring;
mod made;
mod over_path;
mod predictions;

use std::fmt;

pub use constant::Constant;
pub use erring::Errors;
pub use made::Made;
pub use over_path::OverPath;
pub use predictions::Predictions;

/// A claim about the rate at instants to come. Times are seconds since the session's beginning.
pub trait Ahead: fmt::Debug + Send + Sync {
    /// When `bytes` that are asked for at `from_s` will have arrived; never: infinity.
    fn arrives_s(&self, from_s: f64, bytes: f64) -> f64;

    /// The mean rate of the seconds that follow, one by one, that a controller may average as it likes.
    fn bps(&self, from_s: f64, seconds: usize) -> Vec<f64>;
}
