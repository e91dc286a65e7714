//! Dates and times in UTC.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};

use crate::Duration;
use crate::quantity::{QuantityError, text_quantity};

const EXPECTED: &str =
    "a UTC time such as \"2019-12-01T00:00:00Z\" or \"2019-12-01\", or --start now";

/// Time in UTC, as nanoseconds since 1970-01-01T00:00:00Z without leap seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcInstant(i64);

impl UtcInstant {
    /// Convert from nanoseconds since 1970-01-01T00:00:00Z.
    pub const fn from_unix_nanos(ns: i64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z, without leap seconds.
    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// Time that is `duration` later.
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add_unsigned(duration.as_nanos()))
    }

    /// Days since the J2000 epoch (2000-01-01T12:00:00Z), including the fraction of the day.
    pub fn days_since_j2000(self) -> f64 {
        const J2000_UNIX_NS: i64 = 946_728_000_000_000_000;
        self.0.saturating_sub(J2000_UNIX_NS) as f64 / 86_400e9
    }
}

impl FromStr for UtcInstant {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (given, expected) = (text, EXPECTED);
        let text = text.trim();
        // ISO 8601's basic offsets (-0400, +09) are as good as those with a colon, also after a blank.
        let with_offset =
            ["%Y-%m-%dT%H:%M:%S%.f %#z", "%Y-%m-%d %H:%M:%S%.f %#z", "%Y-%m-%dT%H:%M %#z"];
        let parse = |form: &&str| DateTime::parse_from_str(text, form).ok();
        let time = DateTime::parse_from_rfc3339(text)
            .ok()
            .or_else(|| with_offset.iter().find_map(parse))
            .map(|time| time.to_utc());
        // A time without an offset is UTC, and a date alone means its first instant.
        let plain = || {
            let forms = [
                "%Y-%m-%dT%H:%M:%S%.f",
                "%Y-%m-%d %H:%M:%S%.f",
                "%Y-%m-%dT%H:%M",
                "%Y-%m-%d %H:%M",
            ];
            let digits = text.trim_end_matches(" UTC").trim_end_matches(['Z', 'z']);
            let found =
                forms.iter().find_map(|form| NaiveDateTime::parse_from_str(digits, form).ok());
            let day = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
            found.or_else(day).map(|time| time.and_utc())
        };
        let no_time = || QuantityError::NoTime { text: given.to_owned(), expected };
        let out_of_range = || QuantityError::OutOfRange { text: given.to_owned(), expected };
        let time = time.or_else(plain).ok_or_else(no_time)?;
        time.timestamp_nanos_opt().map(Self).ok_or_else(out_of_range)
    }
}

impl fmt::Display for UtcInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_nanos(self.0);
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

text_quantity!(UtcInstant, "UtcInstant", "a moment of UTC", "2019-12-01T00:00:00Z");
