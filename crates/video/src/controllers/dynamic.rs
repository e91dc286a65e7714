//! dash.js's DYNAMIC (AbrController.js of dash.js 5.2.1): the throughput rule while the buffer is short, BOLA once it is long, with
//! hysteresis in between; and never more than what is left in the buffer can wait for (InsufficientBufferRule.js).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bola::{Bola, BolaConfig};
use super::{Choice, Come, Controller, Parameters, RateConfig, View, within};
use crate::Film;
use crate::estimate::Ewma;
use crate::qoe::Qoe;

/// The parameters of `dynamic`; the defaults are dash.js's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicConfig {
    /// From so much in the buffer on BOLA decides (hybridSwitchBufferTime).
    pub switch_buffer_s: f64,
    /// Below this share of that the throughput does.
    pub back_share: f64,
    /// What the player wants to have in its buffer, for BOLA (bufferTimeDefault).
    pub stable_buffer_s: f64,
    /// The share of the throughput that the bitrate may be (bandwidthSafetyFactor).
    pub safety: f64,
    /// The share of the throughput with which a chunk must come before the buffer is empty (throughputSafetyFactor).
    pub buffer_safety: f64,
    /// The first so many chunks need not (segmentIgnoreCount).
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
            come: 0,
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
    /// Whether BOLA decides.
    by_buffer: bool,
    come: u32,
}

impl Controller for Dynamic {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let switch_s = self.config.switch_buffer_s;
        let threshold_s = if self.by_buffer { self.config.back_share * switch_s } else { switch_s };
        self.by_buffer = view.buffer_s >= threshold_s;
        let believed_bps = self.ewma.bps();
        // Who does not decide is not asked either: BOLA goes on from where it was.
        let chosen = if self.by_buffer {
            self.bola.choose(view)
        } else {
            let bps = believed_bps.unwrap_or(0.0) * self.config.safety;
            Choice::at_once(view.film.track_within(bps), believed_bps)
        };
        match self.most(view) {
            Some(most) if most < chosen.track => Choice::at_once(most, believed_bps),
            _ => chosen,
        }
    }

    fn on_chunk(&mut self, come: &Come) {
        self.ewma.add(come.bps(), come.took_s);
        self.bola.on_chunk(come);
        self.come += 1;
    }
}

impl Dynamic {
    /// The highest track that comes before the buffer is empty.
    fn most(&self, view: &View<'_>) -> Option<usize> {
        if self.come < self.config.ignored_chunks {
            return None;
        }
        let chunks = view.buffer_s / view.film.chunk.as_secs_f64();
        let bps = self.ewma.bps()? * self.config.buffer_safety * chunks;
        Some(view.film.track_within(bps))
    }
}
