//! Distances, in metres or kilometres.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{QuantityError, parse_scaled, text_quantity};

const EXPECTED: &str = "a length such as \"550 km\"";

/// A distance in metres, not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Length(f64);

impl Length {
    /// Convert from a number of metres.
    pub const fn from_metres(m: f64) -> Self {
        Self(m)
    }

    /// Convert from a number of kilometres.
    pub const fn from_kilometres(km: f64) -> Self {
        Self(km * 1e3)
    }

    /// Value as a number of metres.
    pub const fn metres(self) -> f64 {
        self.0
    }
}

impl FromStr for Length {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_scaled(text, &[("m", 1.0), ("km", 1e3)], EXPECTED).map(Self)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1e3 { write!(f, "{} km", self.0 / 1e3) } else { write!(f, "{} m", self.0) }
    }
}

text_quantity!(Length, "Length", "a distance: m or km", "550 km");
