//! MPC-O of T3P (LEOScope): plans with the truth, so that it is what its horizon can come to. With `looking = "mean"` as in the
//! artefact of Narayanan et al. (SIGCOMM 2021): the harmonic mean of three seconds, still discounted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mpc::{Looking, Mpc, Ties, fault_of};
use super::{Choice, Come, Controller, Parameters, View, within};
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
        let mpc = Mpc::new(self.horizon, self.window, self.ties);
        Box::new(MpcO { mpc, looking: self.looking, mean_s: self.mean_s as usize })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        fault_of(self.horizon, self.window)
            .or_else(|| within("mean_s", self.mean_s.into(), 1.0..=600.0, "1 to 600"))
    }

    fn looks_ahead(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct MpcO {
    mpc: Mpc,
    looking: Looking,
    mean_s: usize,
}

impl Controller for MpcO {
    /// Where nobody claims to know what lies ahead it plans as `robust-mpc`.
    fn choose(&mut self, view: &View<'_>) -> Choice {
        match (view.ahead, self.looking) {
            (None, _) => self.mpc.by_past(view, |doubt| doubt.divisor()),
            (Some(ahead), Looking::Along) => self.mpc.along(view, ahead, |_| 1.0),
            (Some(ahead), Looking::Mean) => {
                self.mpc.by_mean_ahead(view, ahead, self.mean_s, |doubt| doubt.divisor())
            }
        }
    }

    fn on_chunk(&mut self, come: &Come) {
        self.mpc.on_chunk(come);
    }
}
