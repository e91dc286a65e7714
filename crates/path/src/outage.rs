//! How long a link is down when an end of the path changes its satellite.

use std::fmt;
use std::str::FromStr;

use skyhop_units::{Duration, Instant, QuantityError};

/// How long an end handover takes the link down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageModel {
    /// 1.5 RTT to the satellite that is left and 1.5 RTT to the new one, as LeoEM does (SaTCP
    /// section III): three times the sum of the one-way delays.
    Leoem,
    /// Drawn for each event, evenly from 30 to 100 ms: the range that measurements of Starlink's
    /// reconfigurations report (SatPipe, section III); how it is spread within is not known.
    Starlink,
    /// Not at all.
    None,
    /// Always this long.
    Constant(Duration),
}

/// The bounds of Starlink's outages.
const STARLINK_NS: [u64; 2] = [30_000_000, 100_000_000];

impl OutageModel {
    /// The outage of an end whose one-way delay to its satellite was `old` and is `new`.
    pub fn handover(self, old: Duration, new: Duration, draw: Draw) -> Duration {
        match self {
            Self::Leoem => (old + new) * 3,
            other => other.independent_of_delay(draw),
        }
    }

    /// The outage when there is a path again, by the one-way delays of both ends.
    pub fn restored(self, ends: [Duration; 2], draw: Draw) -> Duration {
        match self {
            Self::Leoem => ends[0].max(ends[1]) * 3,
            other => other.independent_of_delay(draw),
        }
    }

    fn independent_of_delay(self, draw: Draw) -> Duration {
        match self {
            Self::Leoem | Self::None => Duration::ZERO,
            Self::Starlink => Duration::from_nanos(draw.between(STARLINK_NS)),
            Self::Constant(outage) => outage,
        }
    }
}

/// A random number that belongs to one event, whatever else is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// The number of the event that happens to an end `at` some time, in a path with `seed`.
    pub const fn new(seed: u64, at: Instant, end: u64) -> Self {
        Self(mixed(mixed(mixed(seed) ^ at.as_nanos()) ^ end))
    }

    /// A number from 0 to less than 1, all equally likely.
    pub fn unit(self) -> f64 {
        const STEPS: u64 = 1 << f64::MANTISSA_DIGITS;
        self.between([0, STEPS - 1]) as f64 / STEPS as f64
    }

    /// A number from `low` to `high`, all equally likely.
    const fn between(self, [low, high]: [u64; 2]) -> u64 {
        low + ((self.0 as u128 * (high - low + 1) as u128) >> 64) as u64
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): one step from `state`.
const fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for OutageModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leoem => f.write_str("leoem"),
            Self::Starlink => f.write_str("starlink"),
            Self::None => f.write_str("none"),
            Self::Constant(outage) => outage.fmt(f),
        }
    }
}

impl FromStr for OutageModel {
    type Err = QuantityError;

    /// A model's name, or a duration.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "leoem" => Ok(Self::Leoem),
            "starlink" => Ok(Self::Starlink),
            "none" => Ok(Self::None),
            _ => text.parse().map(Self::Constant).map_err(with_names),
        }
    }
}

/// The duration's error, with the names that would have done as well.
fn with_names(error: QuantityError) -> QuantityError {
    const EXPECTED: &str = "\"leoem\", \"starlink\", \"none\" or a duration such as \"80 ms\"";
    match error {
        QuantityError::NoNumber { text, .. } => {
            QuantityError::NoNumber { text, expected: EXPECTED }
        }
        QuantityError::WrongUnit { text, unit, .. } => {
            QuantityError::WrongUnit { text, unit, expected: EXPECTED }
        }
        QuantityError::OutOfRange { text, .. } => {
            QuantityError::OutOfRange { text, expected: EXPECTED }
        }
    }
}
