//! Sizes in bytes, and limits of queues.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use crate::quantity::{QuantityError, format_whole, parse_whole, split, text_quantity};
use crate::time::DURATION_UNITS;
use crate::{Duration, did_you_mean};

const EXPECTED: &str = "a size such as \"64 B\" or \"1.5 MB\"";
const UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("byte", 1.0),
    ("bytes", 1.0),
];
const PRINTED: [(&str, u64); 4] =
    [("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// Size of zero bytes.
    pub const ZERO: Self = Self(0);

    /// Convert from a number of bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Value as a number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(text, &UNITS, EXPECTED).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_whole(self.0, &PRINTED))
    }
}

text_quantity!(Bytes, "Bytes", "a size: B, kB, MB, GB, KiB, MiB or GiB", "1.5 MB");

const QUEUE_EXPECTED: &str =
    "a queue limit such as \"1 BDP\", \"1000 packets\", \"1.5 MB\" or \"260 ms\"";

/// Limit of a queue as a scenario gives it; the planner resolves it to packets or bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueLimit {
    /// Number of packets, whatever their size.
    Packets(u64),
    /// Number of bytes on the wire.
    Bytes(Bytes),
    /// Time that the link takes to transmit a full queue.
    Time(Duration),
    /// Multiple of the bandwidth-delay product.
    Bdp(f64),
}

impl FromStr for QueueLimit {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split(text, QUEUE_EXPECTED)?;
        let out_of_range =
            || QuantityError::OutOfRange { text: text.to_owned(), expected: QUEUE_EXPECTED };
        if !(number.is_finite() && number > 0.0) {
            return Err(out_of_range());
        }
        match unit {
            "BDP" | "bdp" => Ok(Self::Bdp(number)),
            "packets" | "packet" if (1.0..=1e12).contains(&number) => {
                Ok(Self::Packets(number.round() as u64))
            }
            "packets" | "packet" => Err(out_of_range()),
            _ => match (text.parse(), text.parse()) {
                // The number is positive, but less than half a byte or nanosecond.
                (Ok(Bytes::ZERO), _) | (_, Ok(Duration::ZERO)) => Err(out_of_range()),
                (Ok(bytes), _) => Ok(Self::Bytes(bytes)),
                (_, Ok(time)) => Ok(Self::Time(time)),
                _ => Err(QuantityError::WrongUnit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    hint: did_you_mean(unit, queue_units()),
                    expected: QUEUE_EXPECTED,
                }),
            },
        }
    }
}

fn queue_units() -> impl Iterator<Item = &'static str> {
    let of_quantities = UNITS.iter().chain(&DURATION_UNITS).map(|(name, _)| *name);
    ["BDP", "packets"].into_iter().chain(of_quantities)
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(n) => write!(f, "{n} packets"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Time(time) => time.fmt(f),
            Self::Bdp(factor) => write!(f, "{factor} BDP"),
        }
    }
}

text_quantity!(QueueLimit, "QueueLimit", "a queue limit: BDP, packets, bytes or time", "1 BDP");
