//! FESTIVE (Jiang, Sekar and Zhang, CoNEXT 2012): a harmonic mean as estimate, changes by one track at a time and the later the higher,
//! a balance of stability and efficiency, and a buffer target that is drawn, so that players do not synchronise.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Choice, Come, Controller, Parameters, View, within};
use crate::Film;
use crate::history::Window;
use crate::qoe::Qoe;

/// The parameters of `festive`; the defaults are the paper's: 20 chunks, p = 0.85, alpha = 12, changes of 20 s, 30 s of buffer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FestiveConfig {
    /// The estimate is the harmonic mean of so many chunks.
    pub window: u32,
    /// The share of the estimate that the bitrate may be (p).
    pub safety: f64,
    /// How much efficiency counts beside stability (alpha).
    pub alpha: f64,
    /// Changes of the last so many seconds count against stability.
    pub remembered_s: f64,
    /// Above so much in the buffer, give or take a chunk, the player waits.
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
            past: Window::of(self.window as usize),
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
    /// When tracks changed.
    changed_s: VecDeque<f64>,
    /// Chunks in this track.
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
        Choice { track, believed_bps: Some(bps), wait_s: self.wait_s(view) }
    }

    fn on_chunk(&mut self, come: &Come) {
        self.past.push(come.bps());
    }
}

impl Festive {
    /// Section 4.3: a track down at once, a track up only after as many chunks as its number.
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

    /// Section 4.4: whichever of both has the lower sum of scores. With a change more the score of stability doubles, so that another
    /// change costs the more the more there were; others have read it as 2^n + 1.
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

    /// Section 4.2: the buffer's target is drawn anew for each chunk.
    fn wait_s(&mut self, view: &View<'_>) -> f64 {
        let chunk_s = view.film.chunk.as_secs_f64();
        let share = self.rng.next_u32() as f64 / f64::from(u32::MAX);
        let target_s = self.config.target_buffer_s + chunk_s * (2.0 * share - 1.0);
        (view.buffer_s - target_s).max(0.0)
    }
}
