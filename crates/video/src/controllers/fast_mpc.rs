//! FastMPC (Yin et al., SIGCOMM 2015): plans with the harmonic mean of the throughput of past chunks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Mpc, Ties, fault_of};
use super::{ArrivedChunk, Choice, Controller, Parameters, View};
use crate::Film;
use crate::qoe::Qoe;

/// Parameters of `fast-mpc`; the defaults are the paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FastMpcConfig {
    /// Number of chunks planned ahead, 1 to 10.
    pub horizon: u32,
    /// Number of past chunks whose harmonic mean is the estimate, 1 to 1000.
    pub window: u32,
    /// Choice among equally good plans: "last" (higher tracks first) or "first" (lower tracks first).
    pub ties: Ties,
}

impl Default for FastMpcConfig {
    fn default() -> Self {
        Self { horizon: 5, window: 5, ties: Ties::Last }
    }
}

impl Parameters for FastMpcConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(FastMpc(Mpc::new(self.horizon, self.window, self.ties)))
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        fault_of(self.horizon, self.window)
    }
}

#[derive(Debug)]
struct FastMpc(Mpc);

impl Controller for FastMpc {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        self.0.plan_by_past(view, |_| 1.0)
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.0.on_chunk(arrived);
    }
}
