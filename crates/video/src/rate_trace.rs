//! Piecewise constant rate over time, and the duration of transfers over it.

use skyhop_units::Quoted;
use thiserror::Error;

/// Rate over time, repeated from its beginning after its end.
#[derive(Debug, Clone, PartialEq)]
pub struct RateTrace {
    /// Start of each step in seconds, ascending from 0, and the end of the trace as the last element.
    times_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
    /// Bytes delivered from the trace's beginning until each of `times_s`.
    cumulative_bytes: Vec<f64>,
}

/// Reasons for which a series of rates is not a trace.
#[derive(Debug, Clone, PartialEq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RateTraceError {
    /// The series is empty.
    #[error("the rate trace {} is empty; expected at least one rate", Quoted(origin))]
    Empty { origin: String },
    /// The number of times differs from the number of rates.
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
    /// A rate is negative or not a number.
    #[error("the rate trace {}: step {step} has {bps} bit/s; expected 0 or more", Quoted(origin))]
    Rate { origin: String, step: usize, bps: f64 },
    /// All rates are zero, so that no data ever arrives.
    #[error(
        "the rate trace {}: its rate is 0 bit/s throughout, so that nothing ever arrives",
        Quoted(origin)
    )]
    Zeros { origin: String },
}

/// Highest valid rate, in bit/s; sums of bytes remain exact enough up to this rate.
const MOST_BPS: f64 = 1e15;
/// Latest valid end of a trace, in seconds.
const MOST_S: f64 = 1e7;

impl RateTrace {
    /// Create a trace of rates in bit/s that begin at these times and end at `end_s`; `origin` names it in
    /// errors.
    ///
    /// # Errors
    /// The list is empty, times do not ascend from 0, a rate is negative or not a number, or all rates are 0.
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
        let mut cumulative_bytes = vec![0.0];
        for (pair, rate) in times_s.windows(2).zip(&bytes_per_s) {
            let before = cumulative_bytes[cumulative_bytes.len() - 1];
            cumulative_bytes.push(before + (pair[1] - pair[0]) * rate);
        }
        if cumulative_bytes[cumulative_bytes.len() - 1] <= 0.0 {
            return Err(RateTraceError::Zeros { origin: origin() });
        }
        Ok(Self { times_s, bytes_per_s, cumulative_bytes })
    }

    /// Length in seconds, after which the trace repeats.
    pub fn length_s(&self) -> f64 {
        self.times_s[self.bytes_per_s.len()]
    }

    /// Rate at a time, in bit/s.
    pub fn bps_at(&self, at_s: f64) -> f64 {
        self.bytes_per_s[self.step_at(at_s % self.length_s())] * 8.0
    }

    /// Mean rate between two times, in bit/s.
    pub fn mean_bps(&self, from_s: f64, until_s: f64) -> f64 {
        8.0 * (self.bytes_until(until_s) - self.bytes_until(from_s)) / (until_s - from_s)
    }

    /// Time at which a transfer of `bytes` ends that starts at `from_s` and gets the share `share` of the rate.
    pub fn transfer_end_s(&self, from_s: f64, bytes: f64, share: f64) -> f64 {
        let bytes = bytes / share;
        let length_s = self.length_s();
        let round = (from_s / length_s).floor();
        let offset_s = from_s - round * length_s;
        let step = self.step_at(offset_s);
        // Fast path: most transfers end within the step in which they start.
        let within_s = bytes / self.bytes_per_s[step];
        if offset_s + within_s <= self.times_s[step + 1] {
            return from_s + within_s;
        }
        let target = self.cumulative_bytes[step]
            + (offset_s - self.times_s[step]) * self.bytes_per_s[step]
            + bytes;
        let whole = self.cumulative_bytes[self.bytes_per_s.len()];
        let (mut rounds, mut rest) = (0.0, target);
        if target > whole {
            rounds = (target / whole).ceil() - 1.0;
            rest = target - rounds * whole;
        }
        (round + rounds) * length_s + self.time_of(rest)
    }

    /// Bytes delivered between two times; 0 if `until_s` is earlier than `from_s`.
    pub fn bytes_between(&self, from_s: f64, until_s: f64) -> f64 {
        (self.bytes_until(until_s) - self.bytes_until(from_s)).max(0.0)
    }

    /// Highest rate of the trace, in bytes per second.
    pub fn most_bytes_per_s(&self) -> f64 {
        self.bytes_per_s.iter().copied().fold(0.0, f64::max)
    }

    fn bytes_until(&self, at_s: f64) -> f64 {
        let rounds = (at_s / self.length_s()).floor();
        let offset_s = at_s - rounds * self.length_s();
        let step = self.step_at(offset_s);
        let in_step = (offset_s - self.times_s[step]) * self.bytes_per_s[step];
        rounds * self.cumulative_bytes[self.bytes_per_s.len()]
            + self.cumulative_bytes[step]
            + in_step
    }

    /// Time within a repetition of the trace at which `cumulative_bytes` have been delivered since
    /// the repetition's beginning.
    fn time_of(&self, cumulative_bytes: f64) -> f64 {
        let last = self.bytes_per_s.len();
        let step =
            self.cumulative_bytes[1..last].partition_point(|until| *until < cumulative_bytes);
        let rest = (cumulative_bytes - self.cumulative_bytes[step]).max(0.0);
        let rate = self.bytes_per_s[step];
        let into_s = if rate > 0.0 { rest / rate } else { 0.0 };
        (self.times_s[step] + into_s).min(self.times_s[step + 1])
    }

    fn step_at(&self, offset_s: f64) -> usize {
        let last = self.bytes_per_s.len();
        self.times_s[1..last].partition_point(|begins| *begins <= offset_s)
    }
}
