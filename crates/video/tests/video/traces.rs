//! Random traces, and the setup of sessions over them.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use skyhop_video::controllers::ControllerChoice;
use skyhop_video::over_rate::{Environment, ForecastSource, Setting};
use skyhop_video::qoe::Qoe;
use skyhop_video::session::PlayerSettings;
use skyhop_video::{Film, RateTrace};

/// Random number generator of the tests, from one seed.
pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn of(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform draw from 0 (included) to 1 (excluded).
    pub fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.share() * count as f64) as usize
    }
}

/// Steps of about a second around a mean that wanders, with occasional rates of zero.
pub struct Steps {
    pub starts_s: Vec<f64>,
    pub rates_bps: Vec<f64>,
    pub end_s: f64,
}

impl Steps {
    pub fn random(dice: &mut Dice, top_bps: f64) -> Self {
        let (mut starts_s, mut rates_bps, mut at_s) = (Vec::new(), Vec::new(), 0.0);
        let mut mean = dice.between(0.05, 1.5) * top_bps;
        for _ in 0..60 + dice.below(200) {
            starts_s.push(at_s);
            mean = (mean * dice.between(0.8, 1.25)).clamp(0.02 * top_bps, 2.0 * top_bps);
            let is_out = dice.share() < 0.02;
            rates_bps.push(if is_out { 0.0 } else { mean * dice.between(0.3, 1.7) });
            at_s += dice.between(0.3, 2.0);
        }
        Self { starts_s, rates_bps, end_s: at_s }
    }

    pub fn trace(&self) -> Arc<RateTrace> {
        Arc::new(RateTrace::new("random", &self.starts_s, &self.rates_bps, self.end_s).unwrap())
    }
}

pub fn setting(film: Film, controller: &str, qoe: &str) -> Setting {
    let qoe = Arc::new(Qoe::new(qoe, &film).unwrap());
    Setting {
        film: Arc::new(film),
        controller: ControllerChoice::named(controller).unwrap(),
        qoe,
        player: PlayerSettings::default(),
        environment: Environment::default(),
        forecast: ForecastSource::Truth,
        without_first: false,
    }
}

/// Pensieve's film with a different size for every chunk.
pub fn varied_film(seed: u64) -> Film {
    let text = format!(
        "chunk = \"4 s\"\nchunks = 48\nladder = {{ top = \"4300 kbit/s\", ratio = 1.7, tracks = 6 }}\nvariation = {{ relative_sd = 0.2, seed = {seed} }}"
    );
    Film::of_toml(&text, "varied.toml").unwrap()
}
