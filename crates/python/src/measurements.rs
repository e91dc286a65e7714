//! Python bindings of the readers of measurements that telemetry shares with paths.

use std::path::Path;

use pyo3::prelude::*;
use skyhop_convert::kind;
use skyhop_path::import::{
    ImportError, parse_iperf3_intervals, parse_leocc_delays, parse_mahimahi_packets,
    parse_round_trips,
};

use crate::errors::{Fallible, input_error};

/// Answered and lost probes of a log.
#[pyclass(frozen, get_all)]
pub(crate) struct RoundTrips {
    /// Time in ns, round trip in ms (None for lost probes) and number of probes of each outcome.
    outcomes: Vec<(i64, Option<f64>, u64)>,
    losses_known: bool,
    /// Whether times count from 1970.
    unix: bool,
    account: String,
}

/// Read the round trips of a log in one of [`skyhop_path::import::ROUND_TRIP_FORMATS`]; `origin` names it in errors.
#[pyfunction]
pub(crate) fn read_round_trips(
    py: Python<'_>,
    content: &[u8],
    log_format: &str,
    origin: &str,
) -> Fallible<RoundTrips> {
    let read = py.detach(|| parse_round_trips(content, log_format));
    let read = read.map_err(|error| wrong(origin, &error))?;
    let outcome = |one: &skyhop_path::import::Outcome| {
        (one.at_ns, one.rtt.map(|rtt| rtt.as_nanos() as f64 / 1e6), one.times)
    };
    Ok(RoundTrips {
        outcomes: read.outcomes.iter().map(outcome).collect(),
        losses_known: read.losses_known,
        unix: read.unix,
        account: read.account.to_string(),
    })
}

/// Begin and end in ns since 1970, and rates down and up in bit/s, of an interval.
type Interval = (i64, i64, Option<f64>, Option<f64>);

/// Read reports of iperf3; return their intervals and the account of the file.
#[pyfunction]
pub(crate) fn read_iperf3(content: &[u8], origin: &str) -> Fallible<(Vec<Interval>, String)> {
    let read = parse_iperf3_intervals(content).map_err(|error| wrong(origin, &error))?;
    let intervals = read.intervals.iter();
    let plain = intervals.map(|one| (one.begin_ns, one.end_ns, one.down_bps, one.up_bps)).collect();
    Ok((plain, read.account.to_string()))
}

/// Read a trace of mahimahi; return the number of packets in each of its milliseconds.
#[pyfunction]
pub(crate) fn read_mahimahi(content: &[u8], origin: &str) -> Fallible<Vec<u32>> {
    parse_mahimahi_packets(content).map_err(|error| wrong(origin, &error))
}

/// Read LeoCC's file of delays; return the one-way delay of each 10 ms in ms.
#[pyfunction]
pub(crate) fn read_leocc_delays(content: &[u8], origin: &str) -> Fallible<Vec<f64>> {
    let delays = parse_leocc_delays(content).map_err(|error| wrong(origin, &error))?;
    Ok(delays.into_iter().map(|delay| delay.as_nanos() as f64 / 1e6).collect())
}

/// Return the format of a log, told by its first bytes.
#[pyfunction]
pub(crate) fn log_format(start: &[u8]) -> &'static str {
    kind::format_of(start, Path::new(""))
}

fn wrong(origin: &str, error: &ImportError) -> crate::errors::Failure {
    input_error(&format!("{origin}: {error}"))
}
