//! Throughput rule of dash.js 5.2.1 (ThroughputRule.js): chooses the highest track whose bitrate is within
//! a share of the estimate. The estimate is the lower of two weighted means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArrivedChunk, Choice, Controller, Parameters, View, within};
use crate::Film;
use crate::estimate::Ewma;
use crate::qoe::Qoe;

/// Parameters of `rate`; the defaults are those of dash.js.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateConfig {
    /// Largest share of the throughput that the bitrate may take (bandwidthSafetyFactor), 0.01 to 10.
    pub safety: f64,
    /// Half-life of the fast mean, in seconds of transfers, 0.001 to 3600.
    pub fast_half_life_s: f64,
    /// Half-life of the slow mean, in seconds of transfers, 0.001 to 3600.
    pub slow_half_life_s: f64,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self { safety: 0.9, fast_half_life_s: 3.0, slow_half_life_s: 8.0 }
    }
}

impl RateConfig {
    pub(super) fn ewma(&self) -> Ewma {
        Ewma::new(self.fast_half_life_s, self.slow_half_life_s)
    }

    /// Return the first invalid parameter of those given; other controllers with these parameters
    /// use this function too.
    pub(super) fn fault_of(
        safety: f64,
        fast_half_life_s: f64,
        slow_half_life_s: f64,
    ) -> Option<(&'static str, String, &'static str)> {
        within("safety", safety, 0.01..=10.0, "0.01 to 10")
            .or_else(|| {
                within("fast_half_life_s", fast_half_life_s, 0.001..=3600.0, "0.001 to 3600")
            })
            .or_else(|| {
                within("slow_half_life_s", slow_half_life_s, 0.001..=3600.0, "0.001 to 3600")
            })
    }
}

impl Parameters for RateConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        Box::new(Rate { safety: self.safety, ewma: self.ewma() })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        Self::fault_of(self.safety, self.fast_half_life_s, self.slow_half_life_s)
    }
}

#[derive(Debug)]
struct Rate {
    safety: f64,
    ewma: Ewma,
}

impl Controller for Rate {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let bps = self.ewma.bps();
        let track = bps.map_or(0, |bps| view.film.track_within(bps * self.safety));
        Choice::at_once(track, bps)
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.ewma.add(arrived.bps(), arrived.took_s);
    }
}
