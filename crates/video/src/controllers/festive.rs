//! FESTIVE (Jiang, Sekar and Zhang, CoNEXT 2012): the estimate is a harmonic mean; the track changes by one
//! at a time, and upwards the later the higher the track; stability and efficiency are balanced; and the
//! buffer target is random, so that players do not synchronise.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArrivedChunk, Choice, Controller, Parameters, View, within};
use crate::Film;
use crate::history::Window;
use crate::qoe::Qoe;

/// Parameters of `festive`; the defaults are the paper's: 20 chunks, p = 0.85, alpha = 12, track changes
/// remembered for 20 s, 30 s of buffer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FestiveConfig {
    /// Number of past chunks whose harmonic mean is the estimate, 1 to 1000.
    pub window: u32,
    /// Largest share of the estimate that the bitrate may take (p), 0.01 to 10.
    pub safety: f64,
    /// Weight of efficiency against stability (alpha), 0 to 1000000.
    pub alpha: f64,
    /// Time in seconds for which changes of the track count against stability, 0 to 3600.
    pub remembered_s: f64,
    /// Buffer level in seconds, plus or minus a random part of a chunk, above which the player waits; 0 to
    /// 3600.
    pub target_buffer_s: f64,
}

impl Default for FestiveConfig {
    fn default() -> Self {
        Self { window: 20, safety: 0.85, alpha: 12.0, remembered_s: 20.0, target_buffer_s: 30.0 }
    }
}

impl Parameters for FestiveConfig {
    fn controller(&self, _film: &Film, _qoe: &Qoe, seed: u64) -> Box<dyn Controller> {
        Box::new(Festive {
            config: self.clone(),
            past: Window::new(self.window as usize),
            changed_s: VecDeque::new(),
            stayed: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        })
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        within("window", self.window.into(), 1.0..=1000.0, "1 to 1000")
            .or_else(|| within("safety", self.safety, 0.01..=10.0, "0.01 to 10"))
            .or_else(|| within("alpha", self.alpha, 0.0..=1e6, "0 to 1000000"))
            .or_else(|| within("remembered_s", self.remembered_s, 0.0..=3600.0, "0 to 3600"))
            .or_else(|| within("target_buffer_s", self.target_buffer_s, 0.0..=3600.0, "0 to 3600"))
    }
}

#[derive(Debug)]
struct Festive {
    config: FestiveConfig,
    past: Window,
    /// Times of recent track changes, in seconds.
    changed_s: VecDeque<f64>,
    /// Number of chunks since the last track change.
    stayed: usize,
    rng: ChaCha8Rng,
}

impl Controller for Festive {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let (before, Some(bps)) = (view.last_track.unwrap_or(0), self.past.harmonic_mean()) else {
            return Choice::at_once(0, None);
        };
        let remembered_s = self.config.remembered_s;
        self.changed_s.retain(|at_s| view.now_s - at_s <= remembered_s);
        let reference = self.reference(view, before, bps);
        let track = self.balanced(view, before, reference, bps);
        if track == before {
            self.stayed += 1;
        } else {
            self.stayed = 1;
            self.changed_s.push_back(view.now_s);
        }
        Choice { track, estimate_bps: Some(bps), wait_s: self.wait_s(view) }
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.past.push(arrived.bps());
    }
}

impl Festive {
    /// Reference track (section 4.3): one track down without delay, or one track up after as many chunks in
    /// the current track as its number, counted from 1.
    fn reference(&self, view: &View<'_>, before: usize, bps: f64) -> usize {
        let within = |track: usize| view.film.bitrate_bps(track) as f64 <= self.config.safety * bps;
        if !within(before) {
            before.saturating_sub(1)
        } else if before < view.film.top() && within(before + 1) && self.stayed > before {
            before + 1
        } else {
            before
        }
    }

    /// Choose the reference track or the former track, whichever has the lower sum of scores (section 4.4).
    /// The stability score doubles with each recent change, so that further changes cost more; other
    /// implementations use 2^n + 1.
    fn balanced(&self, view: &View<'_>, before: usize, reference: usize, bps: f64) -> usize {
        let rate = |track: usize| view.film.bitrate_bps(track) as f64;
        let right = (self.config.safety * bps).min(rate(reference));
        let score = |track: usize| {
            let changes = self.changed_s.len() + usize::from(track != before);
            let efficiency = (rate(track) / right - 1.0).abs();
            2.0_f64.powi(changes.min(1000) as i32) + self.config.alpha * efficiency
        };
        if score(reference) < score(before) { reference } else { before }
    }

    /// Wait in seconds (section 4.2): the buffer's target is drawn again for each chunk.
    fn wait_s(&mut self, view: &View<'_>) -> f64 {
        let chunk_s = view.film.chunk.as_secs_f64();
        let share = self.rng.next_u32() as f64 / f64::from(u32::MAX);
        let target_s = self.config.target_buffer_s + chunk_s * (2.0 * share - 1.0);
        (view.buffer_s - target_s).max(0.0)
    }
}
