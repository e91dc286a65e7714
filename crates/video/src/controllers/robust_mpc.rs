//! RobustMPC (Yin et al., SIGCOMM 2015, as implemented in Pensieve): the harmonic mean of past chunks, divided by 1 + the largest of the
//! last errors of that mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Mpc, Ties, fault_of};
use super::{Choice, Come, Controller, Parameters, View};
use crate::Film;
use crate::qoe::Qoe;

/// The parameters of `robust-mpc`; the defaults are the paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RobustMpcConfig {
    /// How many chunks are planned.
    pub horizon: u32,
    /// How many past chunks the estimate is made of.
    pub window: u32,
    /// Which of equally good plans wins.
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
        self.0.by_past(view, |doubt| doubt.divisor())
    }

    fn on_chunk(&mut self, come: &Come) {
        self.0.on_chunk(come);
    }
}
