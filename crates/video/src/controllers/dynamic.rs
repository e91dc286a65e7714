//! DYNAMIC of dash.js (AbrController.js of dash.js 5.2.1): the throughput rule decides while the buffer
//! is short, and BOLA once it is long, with hysteresis in between. A track whose chunk would not arrive
//! before the buffer is empty is never chosen (InsufficientBufferRule.js).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bola::{Bola, BolaConfig};
use super::{ArrivedChunk, Choice, Controller, Parameters, RateConfig, View, within};
use crate::Film;
use crate::estimate::Ewma;
use crate::qoe::Qoe;

/// Parameters of `dynamic`; the defaults are those of dash.js.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicConfig {
    /// Buffer level in seconds from which on BOLA decides (hybridSwitchBufferTime), 0.1 to 3600.
    pub switch_buffer_s: f64,
    /// Share of `switch_buffer_s` below which the throughput rule decides again, 0 to 1.
    pub back_share: f64,
    /// Buffer level in seconds that BOLA aims at (bufferTimeDefault), 0.1 to 3600.
    pub stable_buffer_s: f64,
    /// Largest share of the throughput that the bitrate may take (bandwidthSafetyFactor), 0.01 to 10.
    pub safety: f64,
    /// Factor of the throughput with which a chunk must arrive before the buffer is empty
    /// (throughputSafetyFactor), 0.01 to 10.
    pub buffer_safety: f64,
    /// Number of chunks at the beginning for which `buffer_safety` does not apply (segmentIgnoreCount).
    pub ignored_chunks: u32,
}

impl Default for DynamicConfig {
    fn default() -> Self {
        Self {
            switch_buffer_s: 12.0,
            back_share: 0.5,
            stable_buffer_s: 18.0,
            safety: 0.9,
            buffer_safety: 0.7,
            ignored_chunks: 2,
        }
    }
}

impl Parameters for DynamicConfig {
    fn controller(&self, film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        let bola = BolaConfig {
            stable_buffer_s: self.stable_buffer_s,
            safety: self.safety,
            ..BolaConfig::default()
        };
        Box::new(Dynamic {
            config: self.clone(),
            ewma: RateConfig::default().ewma(),
            bola: Bola::new(&bola, film),
            by_buffer: false,
            arrived: 0,
        })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        within("switch_buffer_s", self.switch_buffer_s, 0.1..=3600.0, "0.1 to 3600")
            .or_else(|| within("back_share", self.back_share, 0.0..=1.0, "0 to 1"))
            .or_else(|| {
                within("stable_buffer_s", self.stable_buffer_s, 0.1..=3600.0, "0.1 to 3600")
            })
            .or_else(|| within("safety", self.safety, 0.01..=10.0, "0.01 to 10"))
            .or_else(|| within("buffer_safety", self.buffer_safety, 0.01..=10.0, "0.01 to 10"))
    }
}

#[derive(Debug)]
struct Dynamic {
    config: DynamicConfig,
    ewma: Ewma,
    bola: Bola,
    /// Whether BOLA decides, as opposed to the throughput rule.
    by_buffer: bool,
    arrived: u32,
}

impl Controller for Dynamic {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let switch_s = self.config.switch_buffer_s;
        let threshold_s = if self.by_buffer { self.config.back_share * switch_s } else { switch_s };
        self.by_buffer = view.buffer_s >= threshold_s;
        let estimate_bps = self.ewma.bps();
        // Only the rule that decides is called, so that BOLA later continues from its former state.
        let chosen = if self.by_buffer {
            self.bola.choose(view)
        } else {
            let bps = estimate_bps.unwrap_or(0.0) * self.config.safety;
            Choice::at_once(view.film.track_within(bps), estimate_bps)
        };
        match self.most(view) {
            Some(most) if most < chosen.track => Choice::at_once(most, estimate_bps),
            _ => chosen,
        }
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.ewma.add(arrived.bps(), arrived.took_s);
        self.bola.on_chunk(arrived);
        self.arrived += 1;
    }
}

impl Dynamic {
    /// Highest track whose chunk arrives before the buffer is empty; `None` for the first chunks.
    fn most(&self, view: &View<'_>) -> Option<usize> {
        if self.arrived < self.config.ignored_chunks {
            return None;
        }
        let chunks = view.buffer_s / view.film.chunk.as_secs_f64();
        let bps = self.ewma.bps()? * self.config.buffer_safety * chunks;
        Some(view.film.track_within(bps))
    }
}
