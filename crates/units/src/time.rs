//! Instants of a run and the durations between them, in whole nanoseconds.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

use crate::quantity::{QuantityError, format_whole, parse_whole, text_quantity};

const EXPECTED: &str = "a duration such as \"20 ms\", \"60 s\" or \"1 h\"";
pub(crate) const DURATION_UNITS: [(&str, f64); 27] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("nsec", 1.0),
    ("nsecs", 1.0),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("sec", 1e9),
    ("secs", 1e9),
    ("millisecond", 1e6),
    ("milliseconds", 1e6),
    ("second", 1e9),
    ("seconds", 1e9),
    ("min", 60e9),
    ("m", 60e9),
    ("minute", 60e9),
    ("minutes", 60e9),
    ("h", 3600e9),
    ("hour", 3600e9),
    ("hours", 3600e9),
    ("d", 86_400e9),
    ("day", 86_400e9),
    ("days", 86_400e9),
];
const PRINTED: [(&str, u64); 4] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// A duration in nanoseconds; never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Duration {
    /// Duration of zero nanoseconds.
    pub const ZERO: Self = Self(0);
    /// Longest duration that can be represented, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Convert from a number of nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Convert from a number of microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// Convert from a number of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Convert from a whole number of seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// Convert from seconds, rounded to a nanosecond; negative values and NaN give zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).round() as u64)
    }

    /// Value as a number of nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Value in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Value as a number of seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Difference `self - other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Product `self * factor`, rounded to a nanosecond.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        debug_assert!(self >= other, "a duration is never negative");
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(durations: I) -> Self {
        durations.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Duration {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(text, &DURATION_UNITS, EXPECTED).map(Self)
    }
}

/// Exact text, which [`FromStr`] reads. With a precision, `{:.3}`, for messages: at most so many decimals of the largest
/// unit up to seconds that fits.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0 s");
        }
        if let Some(decimals) = f.precision() {
            let fits = PRINTED.iter().rev().find(|(_, factor)| self.0 >= *factor);
            let (name, factor) = fits.unwrap_or(&PRINTED[0]);
            let text = format!("{:.decimals$}", self.0 as f64 / *factor as f64);
            let is_whole = !text.contains('.');
            let shown =
                if is_whole { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
            return write!(f, "{shown} {name}");
        }
        f.write_str(&format_whole(self.0, &PRINTED))
    }
}

text_quantity!(Duration, "Duration", "a length of time: ns, us, ms, s, min, h or d", "20 ms");

/// An instant of a run, as nanoseconds since the run began.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Instant(u64);

impl Instant {
    /// Instant at which the run began.
    pub const START: Self = Self(0);
    /// Instant that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Convert from nanoseconds since the run began.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the run began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since `earlier`, or zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        debug_assert!(self >= earlier, "time is monotonic");
        self.saturating_since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Duration(self.0))
    }
}
