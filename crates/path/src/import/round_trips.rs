//! The round trips of a log as they are, for who looks for something else in them than a path.

use std::io::BufRead;

use skyhop_units::Duration;

use super::lines::ImportError;
use super::{MeasuredOptions, csv, irtt, ping};

/// The formats that [`parse_round_trips`] reads.
pub const ROUND_TRIP_FORMATS: [&str; 3] = ["ping", "irtt", "csv"];

/// A probe that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the answer arrived: ns since 1970, or since the log's start where it tells no time.
    pub arrived_ns: i64,
    /// How long it took.
    pub rtt: Duration,
}

/// Reads a log in one of [`ROUND_TRIP_FORMATS`].
///
/// # Errors
/// Another format, or what is wrong with the log, with its line.
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
