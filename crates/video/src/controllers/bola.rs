//! BOLA (Spiteri, Urgaonkar and Sitaraman, INFOCOM 2016): the track whose utility, with what is left of the buffer, is worth most per
//! bit. As dash.js 5.2.1 has it (BolaRule.js): the throughput decides until the buffer holds a chunk, a raise goes no further than the
//! throughput allows (BOLA-O), a virtual "placeholder" buffer stands for time that the player waited on its own account, and the
//! player waits rather than fill its buffer with low tracks. The basic form is algorithm 1 alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Choice, Come, Controller, Parameters, RateConfig, View, within};
use crate::Film;
use crate::estimate::Ewma;
use crate::qoe::Qoe;

/// What remains of the placeholder buffer from chunk to chunk (PLACEHOLDER_BUFFER_DECAY).
const PLACEHOLDER_KEPT: f64 = 0.99;

/// The parameters of `bola`; the defaults are dash.js's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BolaConfig {
    /// dash.js's, or algorithm 1 of the paper alone.
    pub form: BolaForm,
    /// dash.js's: what the player wants to have in its buffer (bufferTimeDefault).
    pub stable_buffer_s: f64,
    /// dash.js's: below so much the lowest track is chosen (MINIMUM_BUFFER_S).
    pub minimum_buffer_s: f64,
    /// dash.js's: per track so much more is wanted (MINIMUM_BUFFER_PER_BITRATE_LEVEL_S).
    pub per_track_s: f64,
    /// dash.js's: the share of the throughput that the bitrate may be.
    pub safety: f64,
    /// The basic form's: how much avoiding stalls is worth beside utility (gamma p).
    pub gp: f64,
    /// The basic form's: the buffer's size, of which V is made.
    pub buffer_s: f64,
}

/// Which BOLA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BolaForm {
    /// As the player.
    Dash,
    /// As algorithm 1 of the paper; gamma p and V are parameters.
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

/// What tracks are worth.
#[derive(Debug, Clone)]
struct Weights {
    bitrates: Vec<f64>,
    utilities: Vec<f64>,
    /// gamma p, and V in seconds.
    gp: f64,
    vp: f64,
}

impl Weights {
    /// Utilities from 1 on; the lowest track is right at the minimum buffer, the highest at the stable one.
    fn dash(config: &BolaConfig, film: &Film) -> Self {
        let (bitrates, utilities) = bitrates_and_utilities(film, 1.0);
        let least_s = config.minimum_buffer_s + config.per_track_s * bitrates.len() as f64;
        let stable_s = config.stable_buffer_s.max(least_s);
        let top = utilities[film.top()];
        // A single track has nothing to choose from.
        let gp = ((top - 1.0) / (stable_s / config.minimum_buffer_s - 1.0)).max(f64::MIN_POSITIVE);
        Self { bitrates, utilities, gp, vp: config.minimum_buffer_s / gp }
    }

    /// Utilities from 0 on; the buffer's size makes V (section V of the paper, Q_max in seconds).
    fn basic(config: &BolaConfig, film: &Film) -> Self {
        let (bitrates, utilities) = bitrates_and_utilities(film, 0.0);
        let room_s = (config.buffer_s - film.chunk.as_secs_f64()).max(film.chunk.as_secs_f64());
        let vp = room_s / (utilities[film.top()] + config.gp);
        Self { bitrates, utilities, gp: config.gp, vp }
    }

    /// The track whose worth per bit is largest; the higher one of equals.
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

    /// The least buffer at which a track is preferred to those below.
    fn least_buffer_s(&self, track: usize) -> f64 {
        let (bitrate, utility) = (self.bitrates[track], self.utilities[track]);
        (0..track).rev().fold(0.0, |least: f64, below| {
            let (other, others) = (self.bitrates[below], self.utilities[below]);
            let level =
                self.vp * (self.gp + (bitrate * others - other * utility) / (bitrate - other));
            least.max(level)
        })
    }

    /// Above so much the player waits rather than ask for the track.
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

/// Algorithm 1 with natural logarithms as utilities.
#[derive(Debug)]
struct Basic(Weights);

impl Controller for Basic {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::at_once(self.0.best(view.buffer_s), None)
    }
}

/// dash.js's.
#[derive(Debug)]
pub(super) struct Bola {
    weights: Weights,
    safety: f64,
    ewma: Ewma,
    /// Whether the throughput decides.
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

    fn start(&mut self, view: &View<'_>, within_rate: usize) -> usize {
        let least_s = self.weights.least_buffer_s(within_rate);
        self.placeholder_s = (least_s - view.buffer_s).max(0.0);
        self.is_starting = view.buffer_s < view.film.chunk.as_secs_f64();
        within_rate
    }

    fn go_on(&mut self, view: &View<'_>, within_rate: usize) -> (usize, f64) {
        let mut track = self.weights.best(view.buffer_s + self.placeholder_s);
        let before = view.last_track.unwrap_or(0);
        if track > before && track > within_rate {
            track = within_rate.max(before);
        }
        let over_s =
            (view.buffer_s + self.placeholder_s - self.weights.most_buffer_s(track)).max(0.0);
        // The placeholder goes first. At the top track the buffer's cap is what makes the player wait.
        let from_placeholder_s = over_s.min(self.placeholder_s);
        self.placeholder_s -= from_placeholder_s;
        let wait_s = if track == view.film.top() { 0.0 } else { over_s - from_placeholder_s };
        (track, wait_s)
    }
}

impl Controller for Bola {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let believed_bps = self.ewma.bps();
        let within_rate = believed_bps.map_or(0, |bps| view.film.track_within(bps * self.safety));
        self.placeholder_s *= PLACEHOLDER_KEPT;
        let (track, wait_s) = if self.is_starting {
            (self.start(view, within_rate), 0.0)
        } else {
            self.go_on(view, within_rate)
        };
        Choice { track, believed_bps, wait_s }
    }

    fn on_chunk(&mut self, come: &Come) {
        self.ewma.add(come.bps(), come.took_s);
        self.placeholder_s += come.waited_s;
    }
}
