//! Round trips of a log without conversion to a path, for example for the blind estimation of the
//! handover grid.

use std::io::BufRead;

use skyhop_units::Duration;

use super::lines::ImportError;
use super::{MeasuredOptions, csv, irtt, ping};

/// Names of the formats that [`parse_round_trips`] supports.
pub const ROUND_TRIP_FORMATS: [&str; 3] = ["ping", "irtt", "csv"];

/// Round trip of an answered probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// Arrival time of the answer: ns since 1970, or since the log's start if the log has no times.
    pub arrived_ns: i64,
    /// Duration of the round trip.
    pub rtt: Duration,
}

/// Parse a log in one of [`ROUND_TRIP_FORMATS`].
///
/// # Errors
/// The format is unknown, or a line of the log is invalid; the error states its number.
pub fn parse_round_trips(log: impl BufRead, format: &str) -> Result<Vec<RoundTrip>, ImportError> {
    let series = match format {
        "ping" => ping::series(log, &MeasuredOptions::default())?,
        "irtt" => irtt::series(log)?,
        "csv" => csv::series(log)?,
        _ => {
            let known = ROUND_TRIP_FORMATS.join(", ");
            return Err(ImportError::whole(format!("\"{format}\": expected {known}")));
        }
    };
    let arrived = |sent_ns: i64, rtt: Duration| sent_ns.saturating_add_unsigned(rtt.as_nanos());
    let round_trips = series.probes.iter().map(|probe| RoundTrip {
        arrived_ns: arrived(probe.sent_ns, probe.rtt()),
        rtt: probe.rtt(),
    });
    Ok(round_trips.collect())
}
