//! BOLA (Spiteri, Urgaonkar and Sitaraman, INFOCOM 2016): chooses the track with the highest score per bit;
//! the score combines utility and buffer level. In the form of dash.js 5.2.1 (BolaRule.js), the throughput
//! decides until the buffer contains a chunk; a switch up goes no further than the throughput allows
//! (BOLA-O); a virtual "placeholder" buffer represents time that the player waited of its own accord; and the
//! player waits rather than fill its buffer with low tracks. The basic form is algorithm 1 alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArrivedChunk, Choice, Controller, Parameters, RateConfig, View, within};
use crate::Film;
use crate::estimate::Ewma;
use crate::qoe::Qoe;

/// Factor by which the placeholder buffer shrinks from chunk to chunk (PLACEHOLDER_BUFFER_DECAY).
const PLACEHOLDER_KEPT: f64 = 0.99;

/// Parameters of `bola`; the defaults are those of dash.js.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BolaConfig {
    /// Form of BOLA: "dash" (dash.js) or "basic" (algorithm 1 of the paper alone).
    pub form: BolaForm,
    /// Buffer level in seconds that the player aims at (bufferTimeDefault), 0.1 to 3600; for form "dash".
    pub stable_buffer_s: f64,
    /// Buffer level in seconds below which the lowest track is chosen (MINIMUM_BUFFER_S), 0.1 to 3600; for
    /// form "dash".
    pub minimum_buffer_s: f64,
    /// Seconds that each track of the film adds to the buffer level that the player aims at
    /// (MINIMUM_BUFFER_PER_BITRATE_LEVEL_S), 0.01 to 3600; for form "dash".
    pub per_track_s: f64,
    /// Largest share of the throughput that the bitrate may take, 0.01 to 10; for form "dash".
    pub safety: f64,
    /// Weight of the avoidance of stalls relative to utility (gamma p of the paper), 0.01 to 1000;
    /// for form "basic".
    pub gp: f64,
    /// Buffer size in seconds, from which V follows, 0.1 to 3600; for form "basic".
    pub buffer_s: f64,
}

/// Form of the BOLA algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BolaForm {
    /// BOLA as dash.js implements it.
    Dash,
    /// Algorithm 1 of the paper alone; gamma p and V are parameters.
    Basic,
}

impl Default for BolaConfig {
    fn default() -> Self {
        Self {
            form: BolaForm::Dash,
            stable_buffer_s: 18.0,
            minimum_buffer_s: 10.0,
            per_track_s: 2.0,
            safety: 0.9,
            gp: 5.0,
            buffer_s: 25.0,
        }
    }
}

impl Parameters for BolaConfig {
    fn controller(&self, film: &Film, _qoe: &Qoe, _seed: u64) -> Box<dyn Controller> {
        match self.form {
            BolaForm::Dash => Box::new(Bola::new(self, film)),
            BolaForm::Basic => Box::new(Basic(Weights::basic(self, film))),
        }
    }

    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        within("stable_buffer_s", self.stable_buffer_s, 0.1..=3600.0, "0.1 to 3600")
            .or_else(|| {
                within("minimum_buffer_s", self.minimum_buffer_s, 0.1..=3600.0, "0.1 to 3600")
            })
            .or_else(|| within("per_track_s", self.per_track_s, 0.01..=3600.0, "0.01 to 3600"))
            .or_else(|| within("safety", self.safety, 0.01..=10.0, "0.01 to 10"))
            .or_else(|| within("gp", self.gp, 0.01..=1000.0, "0.01 to 1000"))
            .or_else(|| within("buffer_s", self.buffer_s, 0.1..=3600.0, "0.1 to 3600"))
    }
}

/// Utilities of the tracks, and the parameters that weigh them.
#[derive(Debug, Clone)]
struct Weights {
    bitrates: Vec<f64>,
    utilities: Vec<f64>,
    /// Parameters of the paper: gamma p, and V in seconds.
    gp: f64,
    vp: f64,
}

impl Weights {
    /// Weights of dash.js. The utilities start at 1; the lowest track is best at the minimum buffer level,
    /// the highest at the stable buffer level.
    fn dash(config: &BolaConfig, film: &Film) -> Self {
        let (bitrates, utilities) = bitrates_and_utilities(film, 1.0);
        let least_s = config.minimum_buffer_s + config.per_track_s * bitrates.len() as f64;
        let stable_s = config.stable_buffer_s.max(least_s);
        let top = utilities[film.top()];
        // With a single track the numerator is 0; the floor avoids a division by zero.
        let gp = ((top - 1.0) / (stable_s / config.minimum_buffer_s - 1.0)).max(f64::MIN_POSITIVE);
        Self { bitrates, utilities, gp, vp: config.minimum_buffer_s / gp }
    }

    /// Weights of the basic form. The utilities start at 0; V follows from the buffer's size
    /// (section V of the paper, Q_max in seconds).
    fn basic(config: &BolaConfig, film: &Film) -> Self {
        let (bitrates, utilities) = bitrates_and_utilities(film, 0.0);
        let room_s = (config.buffer_s - film.chunk.as_secs_f64()).max(film.chunk.as_secs_f64());
        let vp = room_s / (utilities[film.top()] + config.gp);
        Self { bitrates, utilities, gp: config.gp, vp }
    }

    /// Track with the highest score per bit; of tracks with equal scores the highest.
    fn best(&self, buffer_s: f64) -> usize {
        let score = |track: usize| {
            (self.vp * (self.utilities[track] + self.gp) - buffer_s) / self.bitrates[track]
        };
        (1..self.bitrates.len()).fold(
            0,
            |best, track| {
                if score(track) >= score(best) { track } else { best }
            },
        )
    }

    /// Lowest buffer level in seconds at which a track is preferred to all lower tracks.
    fn least_buffer_s(&self, track: usize) -> f64 {
        let (bitrate, utility) = (self.bitrates[track], self.utilities[track]);
        (0..track).rev().fold(0.0, |least: f64, below| {
            let (other, others) = (self.bitrates[below], self.utilities[below]);
            let level =
                self.vp * (self.gp + (bitrate * others - other * utility) / (bitrate - other));
            least.max(level)
        })
    }

    /// Buffer level in seconds above which the player waits instead of requesting the track.
    fn most_buffer_s(&self, track: usize) -> f64 {
        self.vp * (self.utilities[track] + self.gp)
    }
}

fn bitrates_and_utilities(film: &Film, from: f64) -> (Vec<f64>, Vec<f64>) {
    let bitrates: Vec<f64> =
        (0..film.tracks.len()).map(|track| film.bitrate_bps(track) as f64).collect();
    let utilities = bitrates.iter().map(|bitrate| (bitrate / bitrates[0]).ln() + from).collect();
    (bitrates, utilities)
}

/// Algorithm 1 of the paper with natural logarithms as utilities.
#[derive(Debug)]
struct Basic(Weights);

impl Controller for Basic {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::at_once(self.0.best(view.buffer_s), None)
    }
}

/// BOLA with the additions of dash.js.
#[derive(Debug)]
pub(super) struct Bola {
    weights: Weights,
    safety: f64,
    ewma: Ewma,
    /// Whether the controller is starting up; during start-up the throughput decides.
    is_starting: bool,
    placeholder_s: f64,
}

impl Bola {
    pub(super) fn new(config: &BolaConfig, film: &Film) -> Self {
        Self {
            weights: Weights::dash(config, film),
            safety: config.safety,
            ewma: RateConfig::default().ewma(),
            is_starting: true,
            placeholder_s: 0.0,
        }
    }

    fn choose_by_rate(&mut self, view: &View<'_>, within_rate: usize) -> usize {
        let least_s = self.weights.least_buffer_s(within_rate);
        self.placeholder_s = (least_s - view.buffer_s).max(0.0);
        self.is_starting = view.buffer_s < view.film.chunk.as_secs_f64();
        within_rate
    }

    fn choose_by_buffer(&mut self, view: &View<'_>, within_rate: usize) -> (usize, f64) {
        let mut track = self.weights.best(view.buffer_s + self.placeholder_s);
        let before = view.last_track.unwrap_or(0);
        if track > before && track > within_rate {
            track = within_rate.max(before);
        }
        let over_s =
            (view.buffer_s + self.placeholder_s - self.weights.most_buffer_s(track)).max(0.0);
        // The placeholder is used up first. At the top track only the buffer's cap makes the player wait.
        let from_placeholder_s = over_s.min(self.placeholder_s);
        self.placeholder_s -= from_placeholder_s;
        let wait_s = if track == view.film.top() { 0.0 } else { over_s - from_placeholder_s };
        (track, wait_s)
    }
}

impl Controller for Bola {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let estimate_bps = self.ewma.bps();
        let within_rate = estimate_bps.map_or(0, |bps| view.film.track_within(bps * self.safety));
        self.placeholder_s *= PLACEHOLDER_KEPT;
        let (track, wait_s) = if self.is_starting {
            (self.choose_by_rate(view, within_rate), 0.0)
        } else {
            self.choose_by_buffer(view, within_rate)
        };
        Choice { track, estimate_bps, wait_s }
    }

    fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.ewma.add(arrived.bps(), arrived.took_s);
        self.placeholder_s += arrived.waited_s;
    }
}
