//! Importers of other tools' files: one file per format.
//!
//! Measurements of round trips (ping, irtt, csv) become paths by the rules of `probes`; measurements
//! of rates (throughput csv, mahimahi, LeoCC) by the rules of their importers.

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

/// Properties of the path that a measurement does not contain.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredOptions {
    /// End that sends; for round trips the one that sent the probes.
    pub from: Endpoint,
    /// End that receives; for round trips the one that answered.
    pub to: Endpoint,
    /// Round trip, for formats that contain only rates; `None` is zero.
    pub rtt: Option<Duration>,
    /// Time between probes, for ping logs without times.
    pub interval: Option<Duration>,
    /// Direction of an access line that becomes the path's `from -> to`.
    pub direction: AccessDirection,
}

/// Direction of an access line from the user's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessDirection {
    /// Download, to the user.
    #[default]
    Down,
    /// Upload, from the user.
    Up,
}

impl Default for MeasuredOptions {
    /// Default options: ends named "from" and "to", other values unknown, direction down.
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

/// Header of a measured path: without a constellation, and each frame's values hold until the next frame.
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
