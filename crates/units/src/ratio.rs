//! Fractions that text gives in per cent.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{QuantityError, parse_scaled, text_quantity};

const EXPECTED: &str = "a percentage from 0 to 100 such as \"0.1 %\"";

/// A fraction from 0 to 1, in per cent in text.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Ratio(f64);

impl Ratio {
    /// Fraction 0, that is 0 %.
    pub const ZERO: Self = Self(0.0);

    /// Convert from a fraction; `None` outside 0 to 1.
    pub fn new(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then_some(Self(fraction))
    }

    /// Value as a fraction from 0 to 1.
    pub const fn fraction(self) -> f64 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fraction = parse_scaled(text, &[("%", 0.01)], EXPECTED)?;
        Self::new(fraction)
            .ok_or_else(|| QuantityError::OutOfRange { text: text.to_owned(), expected: EXPECTED })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Twelve decimals hide that 0.1 % times 100 is not exactly 0.1 in binary.
        let percent = format!("{:.12}", self.0 * 100.0);
        write!(f, "{} %", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}

text_quantity!(Ratio, "Ratio", "a fraction in per cent", "0.1 %");
