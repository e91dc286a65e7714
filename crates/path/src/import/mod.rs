//! Paths from other tools' files: one file per format.
//!
//! Measurements of round trips (ping, irtt, csv) become paths by the rules of `probes`; measurements
//! of rates (throughput csv, mahimahi, LeoCC) by those of their own files.

mod columns;
mod csv;
mod irtt;
mod leocc;
mod leoem;
mod level_shifts;
mod lines;
mod mahimahi;
mod ping;
mod probes;
mod round_trips;
mod table;
mod throughput;
mod windows_ping;

use skyhop_units::{Duration, UtcInstant};

use crate::trace::{Endpoint, PathHeader};

pub use csv::parse_csv;
pub use irtt::parse_irtt;
pub use leocc::{parse_leocc, parse_leocc_delays};
pub use leoem::{LeoemLogOptions, parse_leoem_log};
pub use lines::ImportError;
pub use mahimahi::parse_mahimahi;
pub use ping::parse_ping;
pub use round_trips::{ROUND_TRIP_FORMATS, RoundTrip, parse_round_trips};
pub(crate) use table::{COLUMNS as TABLE_COLUMNS, MARK as TABLE_MARK};

/// What a measurement does not say itself.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredOptions {
    /// The end that sends: for round trips the one that probed.
    pub from: Endpoint,
    /// The other end.
    pub to: Endpoint,
    /// The round trip, for formats that hold rates alone; zero where not given.
    pub rtt: Option<Duration>,
    /// The time between probes, for logs of ping that do not tell.
    pub interval: Option<Duration>,
    /// Which direction of an access line the path's `from -> to` is.
    pub direction: AccessDirection,
}

/// A direction of an access line, as its user sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessDirection {
    /// To the user.
    #[default]
    Down,
    /// From the user.
    Up,
}

impl Default for MeasuredOptions {
    /// Two nameless ends; nothing else known.
    fn default() -> Self {
        Self {
            from: Endpoint::named("from"),
            to: Endpoint::named("to"),
            rtt: None,
            interval: None,
            direction: AccessDirection::default(),
        }
    }
}

/// The header of a measured path: no constellation, and each value holds until the next.
fn measured_header(
    format: &str,
    options: &MeasuredOptions,
    start: Option<UtcInstant>,
    duration: Duration,
    step: Duration,
) -> PathHeader {
    let ends = [options.from.clone(), options.to.clone()];
    PathHeader { start, ..PathHeader::plain(format!("import {format}"), ends, duration, step) }
}
