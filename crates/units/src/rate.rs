//! Transmission rates in bits per second.

use std::fmt;
use std::str::FromStr;

use crate::quantity::{QuantityError, format_whole, parse_whole, text_quantity};
use crate::{Bytes, Duration};

const EXPECTED: &str = "a rate such as \"150 Mbit/s\"";
/// Units as this project writes them, in other usual forms, and as tc(8) writes them.
const UNITS: [(&str, f64); 23] = [
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("b/s", 1.0),
    ("kb/s", 1e3),
    ("Mb/s", 1e6),
    ("Gb/s", 1e9),
    ("B/s", 8.0),
    ("kB/s", 8e3),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
    ("bit", 1.0),
    ("kbit", 1e3),
    ("Kbit", 1e3),
    ("mbit", 1e6),
    ("Mbit", 1e6),
    ("gbit", 1e9),
    ("Gbit", 1e9),
];
const PRINTED: [(&str, u64); 4] =
    [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// A transmission rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Rate at which nothing is transmitted.
    pub const ZERO: Self = Self(0);

    /// Convert from a number of bits per second.
    pub const fn from_bits_per_second(bps: u64) -> Self {
        Self(bps)
    }

    /// Value as a number of bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Transmission time of `size` at this rate, rounded up to a nanosecond; [`Duration::MAX`] at rate zero.
    pub const fn transmit_time(self, size: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let bit_ns = size.as_u64() as u128 * 8 * 1_000_000_000;
        Duration::from_nanos(bit_ns.div_ceil(self.0 as u128) as u64)
    }

    /// Bytes transmitted in `duration`, rounded down.
    pub const fn bytes_in(self, duration: Duration) -> Bytes {
        let bits = self.0 as u128 * duration.as_nanos() as u128 / 1_000_000_000;
        Bytes::new((bits / 8) as u64)
    }

    /// Rate that transmits `size` in `duration`, rounded down; zero if `duration` is zero.
    pub const fn of(size: Bytes, duration: Duration) -> Self {
        if duration.as_nanos() == 0 {
            return Self::ZERO;
        }
        let bit_ns = size.as_u64() as u128 * 8 * 1_000_000_000;
        Self((bit_ns / duration.as_nanos() as u128) as u64)
    }
}

impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(text, &UNITS, EXPECTED).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_whole(self.0, &PRINTED))
    }
}

text_quantity!(Rate, "Rate", "a rate: bit/s, kbit/s, Mbit/s or Gbit/s", "150 Mbit/s");
