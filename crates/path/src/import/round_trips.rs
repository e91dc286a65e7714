//! Answered and lost probes of a log without conversion to a path, for telemetry and for the blind estimation of the
//! handover grid.

use std::io::BufRead;

use super::lines::ImportError;
use super::probes::Outcomes;
use super::{MeasuredOptions, atlas, csv, irtt, ping};

/// Names of the formats that [`parse_round_trips`] supports.
pub const ROUND_TRIP_FORMATS: [&str; 4] = ["ping", "irtt", "atlas", "csv"];

/// Parse a log in one of [`ROUND_TRIP_FORMATS`].
///
/// # Errors
/// The format is unknown, or a line of the log is invalid; the error states its number.
pub fn parse_round_trips(log: impl BufRead, format: &str) -> Result<Outcomes, ImportError> {
    let series = match format {
        "ping" => ping::series(log, &MeasuredOptions::default())?,
        "irtt" => irtt::series(log)?,
        "atlas" => atlas::series(log)?,
        "csv" => csv::series(log)?,
        _ => {
            let known = ROUND_TRIP_FORMATS.join(", ");
            return Err(ImportError::whole(format!("\"{format}\": expected {known}")));
        }
    };
    Ok(series.into_outcomes())
}
