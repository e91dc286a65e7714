//! Report on which records of a file of element sets are used.

use std::collections::BTreeMap;
use std::fmt;

/// Report on which records of a file of element sets are used, and on why the others are skipped.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordReport {
    /// Name of the file.
    pub file: String,
    /// Number of records in the file.
    pub records: usize,
    /// Number of records that are used.
    pub used: usize,
    /// Skipped records in the file's order; those excluded by the choice of shells and planes are at the end.
    pub skipped: Vec<Skipped>,
}

/// Record that is not used, with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    /// Name of the satellite; if it has none, the record's position in the file.
    pub name: String,
    /// Reason for which the record is skipped.
    pub reason: SkipReason,
}

/// Reason for which a record is not used.
#[derive(Debug, Clone, PartialEq)]
pub enum SkipReason {
    /// The other line of a TLE is missing.
    LineMissing,
    /// A line's checksum does not match its digits.
    WrongChecksum,
    /// A field is missing or cannot be parsed.
    Malformed(String),
    /// A number is infinite or NaN, or the orbit is impossible.
    Impossible(String),
    /// The epoch of another element set of the same satellite is nearer to the requested time.
    Duplicate,
    /// The epoch is too far from the requested time.
    Stale {
        /// Age of the element set at the requested start, in days.
        age_days: f64,
    },
    /// The satellite is in the atmosphere or below.
    Decayed,
    /// SGP4 cannot propagate the record to the requested time.
    NotPropagated(String),
    /// The filter excludes the satellite.
    FilteredOut,
}

impl SkipReason {
    /// Kind of the reason in a few words, for messages.
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

impl SkipReason {
    /// Description of the fault in the record, if the reader gives one.
    fn details(&self) -> Option<&str> {
        match self {
            Self::Malformed(what) | Self::Impossible(what) | Self::NotPropagated(what) => {
                Some(what)
            }
            _ => None,
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match (self, self.details()) {
            (Self::Stale { age_days }, _) => write!(f, ": {age_days:.1} days from the start"),
            (_, Some(what)) => write!(f, ": {what}"),
            _ => Ok(()),
        }
    }
}

impl RecordReport {
    /// Number of skipped records for each kind of reason.
    pub fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for skipped in &self.skipped {
            *kinds.entry(skipped.reason.kind()).or_insert(0) += 1;
        }
        kinds
    }
}

impl RecordReport {
    /// Details of the reason, if all skipped records of this kind have the same.
    fn common_reason(&self, kind: &str) -> Option<&str> {
        let mut of_kind = self.skipped.iter().filter(|skipped| skipped.reason.kind() == kind);
        let first = of_kind.next()?.reason.details()?;
        of_kind.all(|skipped| skipped.reason.details() == Some(first)).then_some(first)
    }
}

impl fmt::Display for RecordReport {
    /// Write one line: the number of used records, and the number of skipped ones per kind, with the first names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: usize = 3;
        write!(f, "{}: {} of {} element sets used", self.file, self.used, self.records)?;
        for (index, (kind, count)) in self.kinds().into_iter().enumerate() {
            f.write_str(if index == 0 { "; skipped: " } else { ", " })?;
            let of_kind = self.skipped.iter().filter(|skipped| skipped.reason.kind() == kind);
            let names: Vec<&str> = of_kind.take(NAMES).map(|s| s.name.as_str()).collect();
            let more = if count > NAMES { ", …" } else { "" };
            write!(f, "{count} {kind} ({}{more})", names.join(", "))?;
            if let Some(reason) = self.common_reason(kind) {
                write!(f, ": {reason}")?;
            }
        }
        Ok(())
    }
}
