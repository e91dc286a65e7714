//! Common part of the controllers that look ahead: the use of a forecast. The controllers differ in the
//! source of the forecast and in how much they discount it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Mpc, fault_of};
use super::{ArrivedChunk, Choice, Controller, View, within};
use crate::history::EstimateErrors;

/// Use of a forecast by a planning controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LookaheadMode {
    /// The transfer time of each chunk is computed from the forecast rates at the time of the transfer.
    #[default]
    Along,
    /// One rate for the whole plan: the harmonic mean of the forecast rates of the next few seconds
    /// (Narayanan et al., SIGCOMM 2021).
    Mean,
}

/// Divisor of rate estimates, as a function of past estimation errors.
pub(super) type Divisor = fn(&EstimateErrors) -> f64;

/// Divisor 1: forecasts are used without discount.
pub(super) const UNDISCOUNTED: Divisor = |_| 1.0;
/// Divisor 1 + the largest recent error, as in RobustMPC.
pub(super) const DISCOUNTED: Divisor = EstimateErrors::divisor;

/// Planning controller that uses a forecast.
#[derive(Debug)]
pub(super) struct LookaheadController {
    pub(super) mpc: Mpc,
    pub(super) looking: LookaheadMode,
    /// Number of seconds over which the mean is computed.
    pub(super) mean_s: u32,
    /// Divisors of the forecast rates: for plans along the forecast (`along`), and for plans with
    /// the mean of the forecast.
    pub(super) along: Divisor,
    pub(super) mean: Divisor,
}

impl Controller for LookaheadController {
    /// Choose the track by the forecast; without a forecast, plan as `robust-mpc` does.
    fn choose(&mut self, view: &View<'_>) -> Choice {
        match (view.forecast, self.looking) {
            (None, _) => self.mpc.plan_by_past(view, DISCOUNTED),
            (Some(forecast), LookaheadMode::Along) => {
                self.mpc.plan_along(view, forecast, self.along)
            }
            (Some(forecast), LookaheadMode::Mean) => {
                self.mpc.plan_by_mean(view, forecast, self.mean_s as usize, self.mean)
            }
        }
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.mpc.on_chunk(arrived);
    }
}

/// Return the first invalid parameter, of those that all controllers that look ahead have.
pub(super) fn fault_of_lookahead(
    horizon: u32,
    window: u32,
    mean_s: u32,
) -> Option<(&'static str, String, &'static str)> {
    fault_of(horizon, window).or_else(|| within("mean_s", mean_s.into(), 1.0..=600.0, "1 to 600"))
}
