//! Outages at handovers: models of those of an end that changes its satellite, and the duration of those in the middle.

use std::fmt;
use std::str::FromStr;

use skyhop_model::Compat;
use skyhop_units::{Duration, Instant, QuantityError, did_you_mean};

/// Model of the duration of an end handover's outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageModel {
    /// Sum of 1.5 RTT to the old satellite and 1.5 RTT to the new one, as in LeoEM (SaTCP section III): three times
    /// the sum of the one-way delays.
    Leoem,
    /// Random for each event, uniform from 30 to 100 ms: the range that measurements of Starlink's reconfigurations
    /// report (SatPipe, section III); the distribution within it is not known.
    Starlink,
    /// Handovers without an outage.
    None,
    /// Constant duration of all outages.
    Constant(Duration),
}

/// Time for which LeoEM's emulator takes a link in the middle of the path down: it runs `ifconfig` for the interface at
/// either end, twice, and the paper does not say how long that takes. docs/results/validation.md has measurements; with
/// this value CUBIC has its published share of the link next to SaTCP (Table II).
const LEOEM_INTERMEDIATE: Duration = Duration::from_millis(25);

/// Outage of a link in the middle of the path, by default: that of LeoEM's emulator with its compatibility mode, none
/// otherwise, because gateways have several antennas and join a link before they leave the old one (SaTCP section III).
pub fn default_intermediate_outage(compat: Compat) -> Duration {
    match compat {
        Compat::Leoem => LEOEM_INTERMEDIATE,
        Compat::None | Compat::Hypatia => Duration::ZERO,
    }
}

/// Bounds of Starlink's outages, ns.
const STARLINK_NS: [u64; 2] = [30_000_000, 100_000_000];

impl OutageModel {
    /// Outage at a handover of an end whose one-way delay to its satellite changes from `old` to `new`.
    pub fn handover(self, old: Duration, new: Duration, draw: Draw) -> Duration {
        match self {
            Self::Leoem => (old + new) * 3,
            other => other.independent_of_delay(draw),
        }
    }

    /// Outage that follows the restoration of a lost path; `ends` are the one-way delays of both
    /// ends to their satellites.
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

/// Random number of one event, independent of how many other numbers are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// Random number of the event at time `at` and end `end`, on a path with `seed`.
    pub const fn new(seed: u64, at: Instant, end: u64) -> Self {
        Self(splitmix64(splitmix64(splitmix64(seed) ^ at.as_nanos()) ^ end))
    }

    /// Uniform number from 0 to less than 1.
    pub fn unit(self) -> f64 {
        const STEPS: u64 = 1 << f64::MANTISSA_DIGITS;
        self.between([0, STEPS - 1]) as f64 / STEPS as f64
    }

    /// Uniform number of 64 bits.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Uniform integer from `low` to `high`, both included.
    const fn between(self, [low, high]: [u64; 2]) -> u64 {
        low + ((self.0 as u128 * (high - low + 1) as u128) >> 64) as u64
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014) from `state`.
const fn splitmix64(state: u64) -> u64 {
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

    /// Parse the name of a model, or a duration.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "leoem" => Ok(Self::Leoem),
            "starlink" => Ok(Self::Starlink),
            "none" => Ok(Self::None),
            _ => text.parse().map(Self::Constant).map_err(with_names),
        }
    }
}

/// Add the names of the models to the error of parsing a duration.
fn with_names(error: QuantityError) -> QuantityError {
    const EXPECTED: &str = "\"leoem\", \"starlink\", \"none\" or a duration such as \"80 ms\"";
    match error {
        QuantityError::NoNumber { text, .. } => {
            let hint = did_you_mean(&text, ["leoem", "starlink", "none"]);
            QuantityError::NoNumber { text, hint, expected: EXPECTED }
        }
        QuantityError::WrongUnit { text, unit, hint, .. } => {
            QuantityError::WrongUnit { text, unit, hint, expected: EXPECTED }
        }
        QuantityError::OutOfRange { text, .. } | QuantityError::NoTime { text, .. } => {
            QuantityError::OutOfRange { text, expected: EXPECTED }
        }
    }
}
