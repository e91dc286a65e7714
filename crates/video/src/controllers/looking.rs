//! What the controllers that look ahead share: how they use what lies ahead. They differ in whom they believe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Mpc, fault_of};
use super::{Choice, Come, Controller, View, within};
use crate::history::Doubt;

/// How what lies ahead is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Looking {
    /// Each chunk's time is worked out from the rates of the time in which it comes.
    #[default]
    Along,
    /// One rate, the harmonic mean of the next few seconds (Narayanan et al., SIGCOMM 2021).
    Mean,
}

/// What estimates are divided by, by the doubts that there are.
pub(super) type Divisor = fn(&Doubt) -> f64;

/// Believed as it is.
pub(super) const NO_DOUBT: Divisor = |_| 1.0;
/// Discounted by the largest of its last errors, as RobustMPC does.
pub(super) const DOUBTED: Divisor = Doubt::divisor;

/// A controller that looks ahead.
#[derive(Debug)]
pub(super) struct Looker {
    pub(super) mpc: Mpc,
    pub(super) looking: Looking,
    /// Of how many seconds `mean` is.
    pub(super) mean_s: u32,
    /// How far rates are believed along the plan, and how far their mean is.
    pub(super) along: Divisor,
    pub(super) mean: Divisor,
}

impl Controller for Looker {
    /// Where nobody claims to know what lies ahead it plans as `robust-mpc`.
    fn choose(&mut self, view: &View<'_>) -> Choice {
        match (view.ahead, self.looking) {
            (None, _) => self.mpc.by_past(view, DOUBTED),
            (Some(ahead), Looking::Along) => self.mpc.along(view, ahead, self.along),
            (Some(ahead), Looking::Mean) => {
                self.mpc.by_mean_ahead(view, ahead, self.mean_s as usize, self.mean)
            }
        }
    }

    fn on_chunk(&mut self, come: &Come) {
        self.mpc.on_chunk(come);
    }
}

/// The faults of the parameters that all of them have.
pub(super) fn fault_of_looking(
    horizon: u32,
    window: u32,
    mean_s: u32,
) -> Option<(&'static str, String, &'static str)> {
    fault_of(horizon, window).or_else(|| within("mean_s", mean_s.into(), 1.0..=600.0, "1 to 600"))
}
