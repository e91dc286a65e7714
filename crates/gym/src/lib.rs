//! Runs in virtual time as episodes of learning: an agent decides for each flow whose congestion control is `policy` and
//! names no card, and gets a reward for each interval.
//!
//! Nothing here draws worlds or learns: an [`Episode`] is one [`Experiment`](skyhop_experiment::Experiment), [`Episodes`]
//! are several that go on side by side. The same experiment with the same outputs is the same episode to the last bit, and
//! the same run as that of a network with these outputs.

mod episode;
mod episodes;
mod error;
mod interval;
mod rewards;

pub use episode::{Ended, Episode, Step};
pub use episodes::Episodes;
pub use error::GymError;
pub use interval::{FIGURES, Interval};
pub use rewards::{REWARDS, Reward};
