//! MPC-O of T3P (LEOScope): plans with the truth, so that it is what its horizon can come to. With `looking = "mean"` as in the
//! artefact of Narayanan et al. (SIGCOMM 2021): the harmonic mean of three seconds, still discounted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::looking::{DOUBTED, Looker, Looking, NO_DOUBT, fault_of_looking};
use super::mpc::{Mpc, Ties};
use super::{Controller, Parameters};
use crate::Film;
use crate::qoe::Qoe;

/// The parameters of `mpc-o`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MpcOConfig {
    /// How many chunks are planned.
    pub horizon: u32,
    /// How many past chunks doubts are made of.
    pub window: u32,
    /// Which of equally good plans wins.
    pub ties: Ties,
    /// How what lies ahead is used.
    pub looking: Looking,
    /// Of how many seconds `mean` is.
    pub mean_s: u32,
}

impl Default for MpcOConfig {
    fn default() -> Self {
        Self { horizon: 5, window: 5, ties: Ties::Last, looking: Looking::Along, mean_s: 3 }
    }
}

impl Parameters for MpcOConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(Looker {
            mpc: Mpc::new(self.horizon, self.window, self.ties),
            looking: self.looking,
            mean_s: self.mean_s,
            along: NO_DOUBT,
            mean: DOUBTED,
        })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        fault_of_looking(self.horizon, self.window, self.mean_s)
    }

    fn looks_ahead(&self) -> bool {
        true
    }
}
