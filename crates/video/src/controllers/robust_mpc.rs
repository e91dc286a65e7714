//! RobustMPC (Yin et al., SIGCOMM 2015, as implemented in Pensieve): plans with the harmonic mean of the
//! throughput of past chunks, divided by 1 + the largest recent error of that estimate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Mpc, Ties, fault_of};
use super::{ArrivedChunk, Choice, Controller, Parameters, View};
use crate::Film;
use crate::qoe::Qoe;

/// Parameters of `robust-mpc`; the defaults are the paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RobustMpcConfig {
    /// Number of chunks planned ahead, 1 to 10.
    pub horizon: u32,
    /// Number of past chunks from which the harmonic mean and its errors are computed, 1 to 1000.
    pub window: u32,
    /// Choice among equally good plans: "last" (higher tracks first) or "first" (lower tracks first).
    pub ties: Ties,
}

impl Default for RobustMpcConfig {
    fn default() -> Self {
        Self { horizon: 5, window: 5, ties: Ties::Last }
    }
}

impl Parameters for RobustMpcConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(RobustMpc(Mpc::new(self.horizon, self.window, self.ties)))
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        fault_of(self.horizon, self.window)
    }
}

#[derive(Debug)]
struct RobustMpc(Mpc);

impl Controller for RobustMpc {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        self.0.plan_by_past(view, |estimate_errors| estimate_errors.divisor())
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.0.on_chunk(arrived);
    }
}
