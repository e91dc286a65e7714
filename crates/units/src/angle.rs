//! Angles, in degrees in text.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{QuantityError, parse_scaled, text_quantity};

const EXPECTED: &str = "an angle such as \"25 deg\"";

/// An angle in degrees, not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Angle(f64);

impl Angle {
    /// Value as a number of degrees.
    pub const fn degrees(self) -> f64 {
        self.0
    }
}

impl FromStr for Angle {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_scaled(text, &[("deg", 1.0), ("°", 1.0)], EXPECTED).map(Self)
    }
}

impl fmt::Display for Angle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deg", self.0)
    }
}

text_quantity!(Angle, "Angle", "an angle in degrees", "25 deg");
