//! Quantities with their units in the type: the only place where units are converted.
//!
//! Every quantity is read from text with a unit ("150 Mbit/s", "20 ms", "1 BDP") and written back
//! in the same form. Time is integer nanoseconds throughout, so that two engines that add the same
//! numbers reach the same instant.

mod angle;
mod length;
mod near;
mod quantity;
mod quoted;
mod rate;
mod ratio;
mod size;
mod time;
mod utc;

pub use angle::Angle;
pub use length::Length;
pub use near::did_you_mean;
pub use quantity::QuantityError;
pub use quoted::{Quoted, is_shown, write_plain};
pub use rate::Rate;
pub use ratio::Ratio;
pub use size::{Bytes, QueueLimit};
pub use time::{Duration, Instant};
pub use utc::UtcInstant;
