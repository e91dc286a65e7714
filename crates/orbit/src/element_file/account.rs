//! What became of the records of a file.

use std::collections::BTreeMap;
use std::fmt;

/// What became of every record of a file of element sets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    /// The file's name.
    pub file: String,
    /// How many records the file has.
    pub records: usize,
    /// How many of them are used.
    pub used: usize,
    /// The others, in the file's order; those that were not asked for are at the end.
    pub skipped: Vec<Skipped>,
}

/// A record that is not used.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    /// The satellite's name, or its place in the file where it has none.
    pub name: String,
    /// Why.
    pub reason: SkipReason,
}

/// Why a record is not used.
#[derive(Debug, Clone, PartialEq)]
pub enum SkipReason {
    /// The other line of a TLE is missing.
    LineMissing,
    /// A line's checksum is not that of its digits.
    WrongChecksum,
    /// A field cannot be read or is missing.
    Malformed(String),
    /// A number is infinite or none, or the orbit is impossible.
    Impossible(String),
    /// There is another element set of the same satellite that is nearer in time.
    Duplicate,
    /// Its epoch is too far from the time asked for.
    Stale {
        /// By how many days.
        age_days: f64,
    },
    /// The satellite is in the atmosphere or below.
    Decayed,
    /// SGP4 cannot propagate it to the time asked for.
    NotPropagated(String),
    /// It was not asked for.
    FilteredOut,
}

impl SkipReason {
    /// The kind of reason, in a few words.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::LineMissing => "one line missing",
            Self::WrongChecksum => "wrong checksum",
            Self::Malformed(_) => "malformed",
            Self::Impossible(_) => "impossible",
            Self::Duplicate => "duplicate",
            Self::Stale { .. } => "stale",
            Self::Decayed => "decayed",
            Self::NotPropagated(_) => "not propagated",
            Self::FilteredOut => "not asked for",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Malformed(what) | Self::Impossible(what) | Self::NotPropagated(what) => {
                write!(f, ": {what}")
            }
            Self::Stale { age_days } => write!(f, ": {age_days:.1} days from the start"),
            _ => Ok(()),
        }
    }
}

impl Account {
    /// How many records were skipped for each kind of reason.
    pub fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for skipped in &self.skipped {
            *kinds.entry(skipped.reason.kind()).or_insert(0) += 1;
        }
        kinds
    }
}

impl fmt::Display for Account {
    /// One line: how many were used, and per kind how many were not, with the first names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: usize = 3;
        write!(f, "{}: {} of {} element sets used", self.file, self.used, self.records)?;
        for (index, (kind, count)) in self.kinds().into_iter().enumerate() {
            f.write_str(if index == 0 { "; skipped: " } else { ", " })?;
            let of_kind = self.skipped.iter().filter(|skipped| skipped.reason.kind() == kind);
            let names: Vec<&str> = of_kind.take(NAMES).map(|s| s.name.as_str()).collect();
            let more = if count > NAMES { ", …" } else { "" };
            write!(f, "{count} {kind} ({}{more})", names.join(", "))?;
        }
        Ok(())
    }
}
