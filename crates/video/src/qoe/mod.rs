//! Qualities of experience: one file each, all named in the one table below.
//!
//! Each is a quality per track, what a second of standing still costs, and what a change of quality costs. The same object plans
//! and scores.

mod pensieve_hd;
mod pensieve_linear;
mod pensieve_log;
mod satpipe_hd;
mod satpipe_linear;
mod satpipe_log;

use thiserror::Error;

use skyhop_units::Quoted;

use crate::Film;

/// Makes of the table a list of what there is.
macro_rules! table {
    ($($name:literal = $terms:expr, $summary:literal;)+) => {
        /// Every quality of experience there is.
        pub const QOES: &[QoeEntry] =
            &[$(QoeEntry { name: $name, summary: $summary, terms: $terms },)+];
    };
}

table! {
    "pensieve-linear" = pensieve_linear::terms,
        "bitrate in Mbit/s; a second of stall costs the top bitrate (4.3 for Pensieve's film), a change its size";
    "pensieve-log" = pensieve_log::terms,
        "log of bitrate over the lowest; a second of stall costs the top's log (2.66 for Pensieve's film)";
    "pensieve-hd" = pensieve_hd::terms, "1, 2, 3, 12, 15, 20 for six tracks; a second of stall costs 8";
    "satpipe-linear-balance" = |film| satpipe_linear::terms(film, BALANCE), "SatPipe's: bitrate in Mbit/s";
    "satpipe-linear-rp" = |film| satpipe_linear::terms(film, FEW_STALLS), "the same, stalls cost twice as much";
    "satpipe-linear-sp" = |film| satpipe_linear::terms(film, SMOOTH), "the same, changes cost twice as much";
    "satpipe-log-balance" = |film| satpipe_log::terms(film, BALANCE), "SatPipe's: log of bitrate over the lowest";
    "satpipe-log-rp" = |film| satpipe_log::terms(film, FEW_STALLS), "the same, stalls cost as at twice the top bitrate";
    "satpipe-log-sp" = |film| satpipe_log::terms(film, SMOOTH), "the same, changes cost twice as much";
    "satpipe-hd-balance" = |film| satpipe_hd::terms(film, BALANCE), "SatPipe's: bitrate times that log";
    "satpipe-hd-rp" = |film| satpipe_hd::terms(film, FEW_STALLS), "the same, stalls cost twice as much";
    "satpipe-hd-sp" = |film| satpipe_hd::terms(film, SMOOTH), "the same, changes cost twice as much";
}

/// SatPipe's preferences: times the top bitrate that stalls cost, and times its size that a change costs.
#[derive(Debug, Clone, Copy)]
struct Preference {
    stalls: f64,
    changes: f64,
}

const BALANCE: Preference = Preference { stalls: 1.0, changes: 1.0 };
const FEW_STALLS: Preference = Preference { stalls: 2.0, changes: 1.0 };
const SMOOTH: Preference = Preference { stalls: 1.0, changes: 2.0 };

/// A quality of experience, as lists show it.
#[derive(Debug, Clone, Copy)]
pub struct QoeEntry {
    /// Its name in files.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    terms: fn(&Film) -> Result<Terms, String>,
}

/// What it says of a film.
#[derive(Debug, Clone, PartialEq)]
struct Terms {
    qualities: Vec<f64>,
    stall_per_s: f64,
    change: f64,
}

/// Why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QoeError {
    /// There is none of this name.
    #[error("unknown QoE {}; expected {expected}", Quoted(name))]
    Unknown {
        /// The name given.
        name: String,
        /// Those that there are.
        expected: String,
    },
    /// It says nothing of such a film.
    #[error("the QoE {name} {what}")]
    Film {
        /// Its name.
        name: &'static str,
        /// What it needs.
        what: String,
    },
}

/// A quality of experience of a film.
#[derive(Debug, Clone, PartialEq)]
pub struct Qoe {
    name: &'static str,
    terms: Terms,
}

impl Qoe {
    /// The one called `name`, for `film`.
    ///
    /// # Errors
    /// There is none, or it says nothing of such a film.
    pub fn new(name: &str, film: &Film) -> Result<Self, QoeError> {
        let Some(entry) = QOES.iter().find(|entry| entry.name == name) else {
            let known: Vec<&str> = QOES.iter().map(|entry| entry.name).collect();
            return Err(QoeError::Unknown { name: name.to_owned(), expected: known.join(", ") });
        };
        let terms =
            (entry.terms)(film).map_err(|what| QoeError::Film { name: entry.name, what })?;
        Ok(Self { name: entry.name, terms })
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What a chunk of a track is worth.
    #[inline]
    pub fn quality(&self, track: usize) -> f64 {
        self.terms.qualities[track]
    }

    /// The same of all tracks.
    pub fn qualities(&self) -> &[f64] {
        &self.terms.qualities
    }

    /// What a second without a moving picture costs.
    #[inline]
    pub fn stall_per_s(&self) -> f64 {
        self.terms.stall_per_s
    }

    /// What a change of quality costs, per unit of its size.
    #[inline]
    pub fn change(&self) -> f64 {
        self.terms.change
    }

    /// What a chunk adds to a session's sum.
    #[inline]
    pub fn reward(&self, quality: f64, stall_s: f64, change: f64) -> f64 {
        quality - self.terms.stall_per_s * stall_s - self.terms.change * change
    }
}

/// Bitrates in Mbit/s, by track.
fn megabits(film: &Film) -> Vec<f64> {
    (0..film.tracks.len()).map(|track| film.bitrate_bps(track) as f64 / 1e6).collect()
}

/// The last of them.
fn top(values: &[f64]) -> f64 {
    values.last().copied().unwrap_or_default()
}

/// The natural logarithms of bitrates over the lowest.
fn logs(film: &Film) -> Vec<f64> {
    let megabits = megabits(film);
    megabits.iter().map(|rate| (rate / megabits[0]).ln()).collect()
}
