//! Stationary random processes with a given distribution and memory, and the streams of their random numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution as _, Exp1, OpenClosed01, StandardNormal};
use serde::{Deserialize, Serialize};
use skyhop_units::Duration;

/// Ranks of the values in a table of quantiles: the shares of the distribution below each value.
pub const RANKS: [f64; 23] = [
    0.001, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9,
    0.95, 0.97, 0.98, 0.99, 0.995, 0.999,
];

/// Quantiles of the standard normal distribution at [`RANKS`].
const NORMAL_SCORES: [f64; 23] = [
    -3.0902, -2.3263, -2.0537, -1.6449, -1.2816, -1.0364, -0.8416, -0.6745, -0.5244, -0.2533, 0.0,
    0.2533, 0.5244, 0.6745, 0.8416, 1.0364, 1.2816, 1.6449, 1.8808, 2.0537, 2.3263, 2.5758, 3.0902,
];

/// Shortest time between two values.
const SHORTEST_STEP: Duration = Duration::from_millis(1);

/// Distribution as a table: its quantiles at [`RANKS`], which do not decrease.
pub type Quantiles = [f64; RANKS.len()];

/// Value of a distribution at the normal score `z`, interpolated between the table's values. Values below the first
/// and above the last rank are the table's first and last.
pub(crate) fn value_at(quantiles: &Quantiles, z: f64) -> f64 {
    let next = NORMAL_SCORES.partition_point(|score| *score <= z);
    if next == 0 || next == NORMAL_SCORES.len() {
        return quantiles[next.min(NORMAL_SCORES.len() - 1)];
    }
    let [low, high] = [next - 1, next].map(|rank| (NORMAL_SCORES[rank], quantiles[rank]));
    low.1 + (high.1 - low.1) * (z - low.0) / (high.0 - low.0)
}

/// Stationary process that takes a new value in equal steps of time.
///
/// Each value is the quantile of a normal score. The score is a sum of three independent parts: one that holds for a
/// slot of the grid, one that forgets exponentially, and one that is new at each step. The distribution of the values
/// is therefore exactly that of the table, and the parts' shares of the variance are its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Quantiles of the values at [`RANKS`].
    pub quantiles: Quantiles,
    /// Time between two values.
    pub every: Duration,
    /// Share of the score's variance that is constant in a slot and independent of other slots.
    #[serde(default)]
    pub slot: f64,
    /// Share of the score's variance that forgets exponentially.
    #[serde(default)]
    pub slow: f64,
    /// Time in which the autocorrelation of the slow share falls to 1/e.
    #[serde(default)]
    pub slow_time: Duration,
}

impl Process {
    /// Check the values; the error says what is wrong.
    ///
    /// # Errors
    /// The name of the key, and what was expected.
    pub fn check(&self, lowest: f64) -> Result<(), String> {
        check_quantiles(&self.quantiles, lowest)?;
        if self.every < SHORTEST_STEP {
            return Err(format!("every is {}; expected at least {SHORTEST_STEP}", self.every));
        }
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        if !is_share(self.slot) || !is_share(self.slow) || self.slot + self.slow > 1.0 {
            return Err(format!(
                "slot is {} and slow is {}; expected shares whose sum is at most 1",
                self.slot, self.slow
            ));
        }
        if self.slow > 0.0 && self.slow_time == Duration::ZERO {
            return Err("slow_time is missing, although slow is above 0".to_owned());
        }
        Ok(())
    }

    /// Largest value that can be drawn: the table's last quantile.
    pub(crate) fn largest(&self) -> f64 {
        self.quantiles[RANKS.len() - 1]
    }

    /// Draw the first `steps` values, of which `steps_of_a_slot` belong to each slot.
    pub fn drawn(&self, steps: u64, steps_of_a_slot: u64, seed: u64) -> Vec<f64> {
        let slot_of = |step| (step / steps_of_a_slot.max(1)) as i64;
        self.values(&mut Stream::new(seed, 0), steps, slot_of)
    }

    /// Draw the value of each step until `steps`; `slot_of` is the number of the slot at a step, which does not
    /// decrease.
    pub(crate) fn values(
        &self,
        stream: &mut Stream,
        steps: u64,
        slot_of: impl Fn(u64) -> i64,
    ) -> Vec<f64> {
        let scores = self.scores(stream, steps, slot_of);
        scores.into_iter().map(|score| value_at(&self.quantiles, score)).collect()
    }

    /// Draw the normal score of each step until `steps`, as [`Self::values`] does.
    pub(crate) fn scores(
        &self,
        stream: &mut Stream,
        steps: u64,
        slot_of: impl Fn(u64) -> i64,
    ) -> Vec<f64> {
        let kept = match self.slow_time {
            Duration::ZERO => 0.0,
            time => (-self.every.as_secs_f64() / time.as_secs_f64()).exp(),
        };
        let [slot_part, slow_part, new_part] =
            [self.slot, self.slow, 1.0 - self.slot - self.slow].map(|share| share.max(0.0).sqrt());
        let (mut slot, mut slot_score, mut slow_score) = (None, 0.0, stream.normal());
        let scores = (0..steps).map(|step| {
            if slot != Some(slot_of(step)) {
                slot = Some(slot_of(step));
                slot_score = stream.normal();
            }
            if step > 0 {
                slow_score = kept * slow_score + (1.0 - kept * kept).sqrt() * stream.normal();
            }
            slot_part * slot_score + slow_part * slow_score + new_part * stream.normal()
        });
        scores.collect()
    }
}

/// Check that a table of quantiles does not decrease and begins at `lowest` or above.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_quantiles(quantiles: &Quantiles, lowest: f64) -> Result<(), String> {
    let rises = quantiles.windows(2).all(|pair| pair[0] <= pair[1]);
    if !rises || quantiles[0] < lowest || !quantiles[RANKS.len() - 1].is_finite() {
        return Err(format!(
            "expected {} quantiles in rising order, from {lowest} on",
            RANKS.len()
        ));
    }
    Ok(())
}

/// Random numbers of one part of a profile: a stream of its own, so that one part does not change the draws of
/// another.
#[derive(Debug)]
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    /// Stream number `part` of the draw with `seed`.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(part);
        Self(rng)
    }

    /// Number from the standard normal distribution.
    pub(crate) fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// Number uniform in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        OpenClosed01.sample(&mut self.0)
    }

    /// Exponential number with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }

    /// Value drawn from a table of quantiles.
    pub(crate) fn value(&mut self, quantiles: &Quantiles) -> f64 {
        value_at(quantiles, self.normal())
    }
}
