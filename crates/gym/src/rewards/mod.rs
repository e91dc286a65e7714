//! Reward functions: one file each, and a row in [`REWARDS`].

mod astraea;
mod leo;
mod orca;
mod power;

use crate::error::GymError;
use crate::interval::Interval;

/// Reward function: computes an agent's reward for one interval.
#[derive(Debug, Clone, Copy)]
pub struct Reward {
    /// Name by which users choose the function.
    pub name: &'static str,
    /// One-line summary of the behaviour that the function rewards.
    pub about: &'static str,
    /// The function itself; its result is finite for every interval.
    pub compute: fn(&Interval<'_>) -> f64,
}

/// Table of all reward functions, by name.
pub const REWARDS: &[Reward] = &[
    Reward {
        name: "astraea",
        about: "throughput, delay and loss of the flow, fairness among agents, steadiness",
        compute: astraea::reward,
    },
    Reward {
        name: "leo",
        about: "shares of the link of all flows that send, less the flow's own delay and loss",
        compute: leo::reward,
    },
    Reward {
        name: "orca",
        about: "throughput less five times the lost rate, reduced as the delay grows",
        compute: orca::reward,
    },
    Reward {
        name: "power",
        about: "throughput over delay, relative to link rate and base round trip",
        compute: power::reward,
    },
];

impl Reward {
    /// Look up a reward function by its name.
    ///
    /// # Errors
    /// [`GymError::UnknownReward`].
    pub fn named(name: &str) -> Result<Self, GymError> {
        REWARDS.iter().find(|reward| reward.name == name).copied().ok_or_else(|| {
            let known: Vec<&str> = REWARDS.iter().map(|reward| reward.name).collect();
            GymError::UnknownReward { name: name.to_owned(), known: known.join(", ") }
        })
    }
}
