//! How long a link is down when an end of the path changes its satellite.

use std::fmt;
use std::str::FromStr;

use skyhop_units::{Duration, QuantityError};

/// How long an end handover takes the link down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageModel {
    /// 1.5 RTT to the satellite that is left and 1.5 RTT to the new one, as LeoEM does (SaTCP
    /// section III): three times the sum of the one-way delays.
    Leoem,
    /// Not at all.
    None,
    /// Always this long.
    Constant(Duration),
}

impl OutageModel {
    /// The outage of an end whose one-way delay to its satellite was `old` and is `new`.
    pub fn handover(self, old: Duration, new: Duration) -> Duration {
        match self {
            Self::Leoem => (old + new) * 3,
            Self::None => Duration::ZERO,
            Self::Constant(outage) => outage,
        }
    }

    /// The outage when there is a path again, by the one-way delays of both ends.
    pub fn restored(self, ends: [Duration; 2]) -> Duration {
        match self {
            Self::Leoem => ends[0].max(ends[1]) * 3,
            Self::None => Duration::ZERO,
            Self::Constant(outage) => outage,
        }
    }
}

impl fmt::Display for OutageModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leoem => f.write_str("leoem"),
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
            "none" => Ok(Self::None),
            _ => text.parse().map(Self::Constant).map_err(with_names),
        }
    }
}

/// The duration's error, with the names that would have done as well.
fn with_names(error: QuantityError) -> QuantityError {
    const EXPECTED: &str = "\"leoem\", \"none\" or a duration such as \"80 ms\"";
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
