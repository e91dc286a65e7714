//! MPC-D of T3P (LEOScope): RobustMPC with its estimate from past chunks, for comparison with controllers
//! that look ahead. It is the same controller as `robust-mpc`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Controller, Parameters, RobustMpcConfig};
use crate::Film;
use crate::qoe::Qoe;

/// Parameters of `mpc-d`: those of `robust-mpc`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MpcDConfig(pub RobustMpcConfig);

impl Parameters for MpcDConfig {
    fn controller(&self, film: &Film, qoe: &Qoe, seed: u64) -> Box<dyn Controller> {
        self.0.controller(film, qoe, seed)
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        self.0.fault()
    }
}
