//! A rate that is constant between instants, and how long transfers take over it.

use skyhop_units::Quoted;
use thiserror::Error;

/// A rate over time, again from its beginning once it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct RateTrace {
    /// When each rate begins, and at last when the trace is over; ascending from 0.
    times_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
    /// What has passed until each of the times.
    passed: Vec<f64>,
}

/// Why a series of rates is none.
#[derive(Debug, Clone, PartialEq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RateTraceError {
    /// There is no rate.
    #[error("the rate trace {} is empty; expected at least one rate", Quoted(origin))]
    Empty { origin: String },
    /// Times and rates do not match.
    #[error(
        "the rate trace {} has {times} times and {rates} rates; expected as many",
        Quoted(origin)
    )]
    Lengths { origin: String, times: usize, rates: usize },
    /// A time is not after the one before it.
    #[error(
        "the rate trace {}: step {step} is at {at_s} s; expected 0 s at first, then later than the step before, and the end \
         last",
        Quoted(origin)
    )]
    Time { origin: String, step: usize, at_s: f64 },
    /// A rate is no rate.
    #[error("the rate trace {}: step {step} has {bps} bit/s; expected 0 or more", Quoted(origin))]
    Rate { origin: String, step: usize, bps: f64 },
    /// Nothing ever passes.
    #[error(
        "the rate trace {}: its rate is 0 bit/s throughout, so that nothing ever arrives",
        Quoted(origin)
    )]
    Zeros { origin: String },
}

/// The highest rate there is: sums over it stay numbers.
const MOST_BPS: f64 = 1e15;
/// A trace ends before so many seconds.
const MOST_S: f64 = 1e7;

impl RateTrace {
    /// A trace whose rates begin at these times and which is over at `end_s`; `origin` names it in errors.
    ///
    /// # Errors
    /// There is no rate, times do not ascend from 0, a rate is negative or no number, or all of them are 0.
    pub fn new(
        origin: &str,
        starts_s: &[f64],
        rates_bps: &[f64],
        end_s: f64,
    ) -> Result<Self, RateTraceError> {
        let origin = || origin.to_owned();
        if rates_bps.is_empty() {
            return Err(RateTraceError::Empty { origin: origin() });
        }
        if starts_s.len() != rates_bps.len() {
            let (times, rates) = (starts_s.len(), rates_bps.len());
            return Err(RateTraceError::Lengths { origin: origin(), times, rates });
        }
        let mut times_s = starts_s.to_vec();
        times_s.push(end_s);
        for (step, at_s) in times_s.iter().copied().enumerate() {
            let follows = step.checked_sub(1).map_or(at_s == 0.0, |before| at_s > times_s[before]);
            if !follows || at_s > MOST_S {
                return Err(RateTraceError::Time { origin: origin(), step, at_s });
            }
        }
        if let Some(step) = rates_bps.iter().position(|bps| !(0.0..=MOST_BPS).contains(bps)) {
            return Err(RateTraceError::Rate { origin: origin(), step, bps: rates_bps[step] });
        }
        let bytes_per_s: Vec<f64> = rates_bps.iter().map(|bps| bps / 8.0).collect();
        let mut passed = vec![0.0];
        for (pair, rate) in times_s.windows(2).zip(&bytes_per_s) {
            let before = passed[passed.len() - 1];
            passed.push(before + (pair[1] - pair[0]) * rate);
        }
        if passed[passed.len() - 1] <= 0.0 {
            return Err(RateTraceError::Zeros { origin: origin() });
        }
        Ok(Self { times_s, bytes_per_s, passed })
    }

    /// How long it is before it begins again.
    pub fn length_s(&self) -> f64 {
        self.times_s[self.bytes_per_s.len()]
    }

    /// The rate at a time.
    pub fn bps_at(&self, at_s: f64) -> f64 {
        self.bytes_per_s[self.step_at(at_s % self.length_s())] * 8.0
    }

    /// The mean rate from one time until another.
    pub fn mean_bps(&self, from_s: f64, until_s: f64) -> f64 {
        8.0 * (self.passed_until(until_s) - self.passed_until(from_s)) / (until_s - from_s)
    }

    /// When `bytes` that begin to pass at `from_s`, over this share of the rate, have all passed.
    pub fn passes_at(&self, from_s: f64, bytes: f64, share: f64) -> f64 {
        let bytes = bytes / share;
        let length_s = self.length_s();
        let round = (from_s / length_s).floor();
        let offset_s = from_s - round * length_s;
        let step = self.step_at(offset_s);
        // Mostly it is over within the step in which it begins.
        let within_s = bytes / self.bytes_per_s[step];
        if offset_s + within_s <= self.times_s[step + 1] {
            return from_s + within_s;
        }
        let target =
            self.passed[step] + (offset_s - self.times_s[step]) * self.bytes_per_s[step] + bytes;
        let whole = self.passed[self.bytes_per_s.len()];
        let (mut rounds, mut rest) = (0.0, target);
        if target > whole {
            rounds = (target / whole).ceil() - 1.0;
            rest = target - rounds * whole;
        }
        (round + rounds) * length_s + self.time_of(rest)
    }

    /// What passes from one time until another, in bytes; nothing where that is earlier.
    pub fn bytes_between(&self, from_s: f64, until_s: f64) -> f64 {
        (self.passed_until(until_s) - self.passed_until(from_s)).max(0.0)
    }

    /// The highest rate, in bytes per second.
    pub fn most_bytes_per_s(&self) -> f64 {
        self.bytes_per_s.iter().copied().fold(0.0, f64::max)
    }

    fn passed_until(&self, at_s: f64) -> f64 {
        let rounds = (at_s / self.length_s()).floor();
        let offset_s = at_s - rounds * self.length_s();
        let step = self.step_at(offset_s);
        let in_step = (offset_s - self.times_s[step]) * self.bytes_per_s[step];
        rounds * self.passed[self.bytes_per_s.len()] + self.passed[step] + in_step
    }

    /// When so much has passed since the beginning of a round.
    fn time_of(&self, passed: f64) -> f64 {
        let last = self.bytes_per_s.len();
        let step = self.passed[1..last].partition_point(|until| *until < passed);
        let rest = (passed - self.passed[step]).max(0.0);
        let rate = self.bytes_per_s[step];
        let into_s = if rate > 0.0 { rest / rate } else { 0.0 };
        (self.times_s[step] + into_s).min(self.times_s[step + 1])
    }

    fn step_at(&self, offset_s: f64) -> usize {
        let last = self.bytes_per_s.len();
        self.times_s[1..last].partition_point(|begins| *begins <= offset_s)
    }
}
