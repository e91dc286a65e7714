//! Importers of other tools' files: one file per format.
//!
//! Measurements of round trips (ping, irtt, atlas, csv) become paths by the rules of `probes`; measurements
//! of rates (throughput csv, mahimahi, LeoCC) by the rules of their importers.

mod account;
mod atlas;
mod columns;
mod csv;
mod documents;
mod iperf3;
mod irtt;
mod leocc;
mod leoem;
mod level_shifts;
mod lines;
mod mahimahi;
mod ping;
mod probes;
mod rates;
mod round_trips;
mod stamps;
mod table;
mod throughput;
mod windows_ping;

use skyhop_model::End;
use skyhop_units::{Duration, UtcInstant};

use crate::trace::{Endpoint, PathHeader, PathTrace};

pub use account::Account;
pub use atlas::parse_atlas;
pub use csv::parse_csv;
pub use iperf3::{Interval, Intervals, parse_iperf3, parse_iperf3_intervals};
pub use irtt::parse_irtt;
pub use leocc::{parse_leocc, parse_leocc_delays};
pub use leoem::{LeoemLogOptions, parse_leoem_log};
pub use lines::ImportError;
pub use mahimahi::{parse_mahimahi, parse_mahimahi_packets};
pub use ping::parse_ping;
pub use probes::{Outcome, Outcomes};
pub use round_trips::{ROUND_TRIP_FORMATS, parse_round_trips};
pub(crate) use table::{
    BACK_COLUMNS as TABLE_BACK_COLUMNS, COLUMNS as TABLE_COLUMNS, MARK as TABLE_MARK,
};

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
    /// Outages that are known otherwise than by lost probes, for csv with round trips: begins and ends on the clock of the
    /// probes, ns, in order and disjoint.
    pub outages: Vec<(i64, i64)>,
    /// Direction of an access line that becomes the path's `from -> to`; `None` if the user gave none, which is down.
    pub direction: Option<AccessDirection>,
}

/// Path that was read from a file, and what was taken from the file and what was left.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Path of the measurement.
    pub trace: PathTrace,
    /// Account of the file, in a line for the user.
    pub account: Account,
}

impl Imported {
    /// Path of a file of which every line was taken.
    pub fn whole(trace: PathTrace, kind: &str) -> Self {
        let span = Duration::from_nanos(trace.header.duration_ns);
        let account = Account::of(trace.frames.len(), kind, span);
        Self { trace, account }
    }
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

impl AccessDirection {
    /// Opposite direction of the access line.
    fn other(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// End of the user's terminal on a path whose `from -> to` is this direction.
    fn dish(self) -> End {
        match self {
            Self::Down => End::To,
            Self::Up => End::From,
        }
    }
}

impl Default for MeasuredOptions {
    /// Default options: ends named "from" and "to", other values unknown, direction down.
    fn default() -> Self {
        Self {
            from: Endpoint::named("from"),
            to: Endpoint::named("to"),
            rtt: None,
            interval: None,
            outages: Vec::new(),
            direction: None,
        }
    }
}

/// Header of a measured path: without a constellation, and each frame's values hold until the next frame. It states
/// the terminal's end if the user gave a direction.
fn measured_header(
    format: &str,
    options: &MeasuredOptions,
    start: Option<UtcInstant>,
    duration: Duration,
    step: Duration,
) -> PathHeader {
    let ends = [options.from.clone(), options.to.clone()];
    let dish = options.direction.map(AccessDirection::dish);
    PathHeader {
        start,
        dish,
        ..PathHeader::plain(format!("import {format}"), ends, duration, step)
    }
}
