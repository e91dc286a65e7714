//! Quality of experience (QoE) metrics: one file each, all named in the one table below.
//!
//! Each metric has a quality per track, a cost per second of stall, and a cost per change of quality. The
//! same object serves controllers that plan and the scores of sessions.

mod pensieve_hd;
mod pensieve_linear;
mod pensieve_log;
mod satpipe_hd;
mod satpipe_linear;
mod satpipe_log;

use thiserror::Error;

use skyhop_units::{Quoted, did_you_mean};

use crate::Film;

/// Generate the list of metrics from the table.
macro_rules! table {
    ($($name:literal = $terms:expr, $summary:literal;)+) => {
        /// All QoE metrics, by name.
        pub const QOES: &[QoeEntry] =
            &[$(QoeEntry { name: $name, summary: $summary, terms: $terms },)+];
    };
}

table! {
    "pensieve-linear" = pensieve_linear::terms,
        "bitrate in Mbit/s; a second of stall costs the top bitrate (4.3 for Pensieve's film), a change its amount";
    "pensieve-log" = pensieve_log::terms,
        "log of bitrate over the lowest; a second of stall costs the top's log (2.66 for Pensieve's film)";
    "pensieve-hd" = pensieve_hd::terms, "1, 2, 3, 12, 15, 20 for six tracks; a second of stall costs 8";
    "satpipe-linear-balance" = |film| satpipe_linear::terms(film, BALANCE), "SatPipe's: bitrate in Mbit/s; a second of stall costs the top bitrate, a change its amount";
    "satpipe-linear-rp" = |film| satpipe_linear::terms(film, FEW_STALLS), "satpipe-linear-balance with twice the cost of stalls";
    "satpipe-linear-sp" = |film| satpipe_linear::terms(film, SMOOTH), "satpipe-linear-balance with twice the cost of changes";
    "satpipe-log-balance" = |film| satpipe_log::terms(film, BALANCE), "SatPipe's: log of bitrate over the lowest";
    "satpipe-log-rp" = |film| satpipe_log::terms(film, FEW_STALLS), "satpipe-log-balance with stalls as at twice the top bitrate";
    "satpipe-log-sp" = |film| satpipe_log::terms(film, SMOOTH), "satpipe-log-balance with twice the cost of changes";
    "satpipe-hd-balance" = |film| satpipe_hd::terms(film, BALANCE), "SatPipe's: bitrate times the log of bitrate over the lowest";
    "satpipe-hd-rp" = |film| satpipe_hd::terms(film, FEW_STALLS), "satpipe-hd-balance with twice the cost of stalls";
    "satpipe-hd-sp" = |film| satpipe_hd::terms(film, SMOOTH), "satpipe-hd-balance with twice the cost of changes";
}

/// Preference of SatPipe's metrics: factors of the cost of stalls (which is proportional to the top
/// bitrate) and of the cost of changes.
#[derive(Debug, Clone, Copy)]
struct Preference {
    stalls: f64,
    changes: f64,
}

const BALANCE: Preference = Preference { stalls: 1.0, changes: 1.0 };
const FEW_STALLS: Preference = Preference { stalls: 2.0, changes: 1.0 };
const SMOOTH: Preference = Preference { stalls: 1.0, changes: 2.0 };

/// Entry of a QoE metric in lists.
#[derive(Debug, Clone, Copy)]
pub struct QoeEntry {
    /// Name of the metric in files.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    terms: fn(&Film) -> Result<Terms, String>,
}

/// Terms of a metric for one film.
#[derive(Debug, Clone, PartialEq)]
struct Terms {
    qualities: Vec<f64>,
    stall_per_s: f64,
    change: f64,
}

/// Reasons for which a metric cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QoeError {
    /// No metric has this name.
    #[error("unknown QoE {}{}; expected {expected}", Quoted(name), did_you_mean(name, expected.split(", ")))]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of the metrics.
        expected: String,
    },
    /// The metric is not defined for films like the given one.
    #[error("the QoE {name} {what}")]
    Film {
        /// Name of the metric.
        name: &'static str,
        /// Requirement that the film does not meet.
        what: String,
    },
}

/// Quality of experience metric for one film.
#[derive(Debug, Clone, PartialEq)]
pub struct Qoe {
    name: &'static str,
    terms: Terms,
}

impl Qoe {
    /// Create the metric called `name` for `film`.
    ///
    /// # Errors
    /// No metric has this name, or it is not defined for the film.
    pub fn new(name: &str, film: &Film) -> Result<Self, QoeError> {
        let Some(entry) = QOES.iter().find(|entry| entry.name == name) else {
            let known: Vec<&str> = QOES.iter().map(|entry| entry.name).collect();
            return Err(QoeError::Unknown { name: name.to_owned(), expected: known.join(", ") });
        };
        let terms =
            (entry.terms)(film).map_err(|what| QoeError::Film { name: entry.name, what })?;
        Ok(Self { name: entry.name, terms })
    }

    /// Name of the metric, as in files.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Quality of a chunk in a track.
    #[inline]
    pub fn quality(&self, track: usize) -> f64 {
        self.terms.qualities[track]
    }

    /// Qualities of all tracks, from the lowest on.
    pub fn qualities(&self) -> &[f64] {
        &self.terms.qualities
    }

    /// Cost of a second of stall.
    #[inline]
    pub fn stall_per_s(&self) -> f64 {
        self.terms.stall_per_s
    }

    /// Cost of a change of quality, per unit of the change.
    #[inline]
    pub fn change(&self) -> f64 {
        self.terms.change
    }

    /// Contribution of a chunk to a session's sum.
    #[inline]
    pub fn reward(&self, quality: f64, stall_s: f64, change: f64) -> f64 {
        quality - self.terms.stall_per_s * stall_s - self.terms.change * change
    }
}

/// Bitrates in Mbit/s, by track.
fn megabits(film: &Film) -> Vec<f64> {
    (0..film.tracks.len()).map(|track| film.bitrate_bps(track) as f64 / 1e6).collect()
}

/// Last of the values: that of the top track.
fn top(values: &[f64]) -> f64 {
    values.last().copied().unwrap_or_default()
}

/// Natural logarithms of the ratios of the bitrates to the lowest one, by track.
fn logs(film: &Film) -> Vec<f64> {
    let megabits = megabits(film);
    megabits.iter().map(|rate| (rate / megabits[0]).ln()).collect()
}
