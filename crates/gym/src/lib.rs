//! Runs in virtual time as reinforcement-learning episodes: an agent decides for each flow whose congestion control is
//! `policy` without a card, and gets a reward for each interval.
//!
//! The crate neither samples experiments nor trains: an [`Episode`] runs one
//! [`Experiment`](skyhop_experiment::Experiment), [`Episodes`] runs several in parallel. Episodes with the same
//! experiment and the same outputs are equal to the last bit, and equal to the run of a network with these outputs.

mod episode;
mod episodes;
mod error;
mod interval;
mod rewards;

pub use episode::{Episode, EpisodeStatus, Step};
pub use episodes::Episodes;
pub use error::GymError;
pub use interval::{FIGURES, Interval};
pub use rewards::{REWARDS, Reward};
