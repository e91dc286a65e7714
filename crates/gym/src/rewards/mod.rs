//! What an agent gets for an interval. Each is one file, and its row here.

mod astraea;
mod leo;
mod orca;
mod power;

use crate::error::GymError;
use crate::interval::Interval;

/// What an agent gets for an interval.
#[derive(Debug, Clone, Copy)]
pub struct Reward {
    /// What it is called.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Finite, whatever the interval.
    pub of: fn(&Interval<'_>) -> f64,
}

/// All of them.
pub const REWARDS: &[Reward] = &[
    Reward {
        name: "astraea",
        about: "throughput, delay and loss of the flow, fairness among agents, steadiness",
        of: astraea::reward,
    },
    Reward {
        name: "leo",
        about: "shares of the link, of all flows that send, less delay and loss of its own",
        of: leo::reward,
    },
    Reward {
        name: "orca",
        about: "throughput less five times what was lost, less where the delay grows",
        of: orca::reward,
    },
    Reward { name: "power", about: "throughput over delay, of what there is", of: power::reward },
];

impl Reward {
    /// The one of this name.
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
