//! MPC-O of T3P (LEOScope): plans with the true rate, and so shows the best result that is possible with its
//! horizon. With `looking = "mean"` it is the controller of the artefact of Narayanan et al. (SIGCOMM 2021),
//! which uses the harmonic mean of three seconds, discounted like an estimate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lookahead::{
    DISCOUNTED, LookaheadController, LookaheadMode, UNDISCOUNTED, fault_of_lookahead,
};
use super::mpc::{Mpc, Ties};
use super::{Controller, Parameters};
use crate::Film;
use crate::qoe::Qoe;

/// Parameters of `mpc-o`, which plans with the true rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MpcOConfig {
    /// Number of chunks planned ahead, 1 to 10.
    pub horizon: u32,
    /// Number of past chunks whose errors discount the mean, with looking = "mean", 1 to 1000.
    pub window: u32,
    /// Choice among equally good plans: "last" (higher tracks first) or "first" (lower tracks first).
    pub ties: Ties,
    /// Use of the forecast: "along" (the rate at the time of each chunk) or "mean" (one mean rate).
    pub looking: LookaheadMode,
    /// Number of seconds averaged with looking = "mean", 1 to 600.
    pub mean_s: u32,
}

impl Default for MpcOConfig {
    fn default() -> Self {
        Self { horizon: 5, window: 5, ties: Ties::Last, looking: LookaheadMode::Along, mean_s: 3 }
    }
}

impl Parameters for MpcOConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(LookaheadController {
            mpc: Mpc::new(self.horizon, self.window, self.ties),
            looking: self.looking,
            mean_s: self.mean_s,
            along: UNDISCOUNTED,
            mean: DISCOUNTED,
        })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        fault_of_lookahead(self.horizon, self.window, self.mean_s)
    }

    fn looks_ahead(&self) -> bool {
        true
    }
}
