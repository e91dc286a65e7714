//! Traces of LeoCC, in two files: deliveries in mahimahi's format, and one-way delays in ms, with a
//! line per 10 ms.
//!
//! A delay holds for 10 ms, in both directions. The path ends with the shorter of the two files.

use std::io::BufRead;

use skyhop_units::{Duration, Instant};

use super::lines::{ImportError, Lines, parse_between};
use super::mahimahi::Deliveries;
use super::{Imported, MeasuredOptions, measured_header};
use crate::trace::{Frame, PathTrace};

/// Time between two delays. Deliveries are averaged over the same time to a rate.
const STEP: Duration = Duration::from_millis(10);
const DELAYS_MS: (f64, f64) = (0.0, 60_000.0);

/// Parse the file of delays.
///
/// # Errors
/// A line is not a delay (the error states its number), or the file is empty.
pub fn parse_leocc_delays(file: impl BufRead) -> Result<Vec<Duration>, ImportError> {
    let mut lines = Lines::new(file);
    let mut delays = Vec::new();
    while let Some(line) = lines.next()? {
        let ms = parse_between(line.text, "the one-way delay in ms", DELAYS_MS)
            .map_err(|what| line.wrong(what))?;
        line.has_room(delays.len())?;
        delays.push(Duration::from_secs_f64(ms / 1e3));
    }
    if delays.is_empty() {
        return Err(ImportError::whole("it is empty; expected a one-way delay in ms per 10 ms"));
    }
    Ok(delays)
}

/// Parse the file of deliveries and combine it with `delays`.
///
/// # Errors
/// The errors of `parse_mahimahi`.
pub fn parse_leocc(
    deliveries: impl BufRead,
    delays: &[Duration],
    options: &MeasuredOptions,
) -> Result<Imported, ImportError> {
    let rates = Deliveries::parse(deliveries)?.rates(STEP);
    let steps = rates.into_iter().zip(delays).enumerate();
    let frames: Vec<Frame> = steps
        .map(|(index, (rate, delay))| Frame {
            at: Instant::START + STEP * index as u64,
            delay: Some(*delay),
            delay_back: Some(*delay),
            rate: Some(rate),
            ..Frame::default()
        })
        .collect();
    let duration = STEP * frames.len() as u64;
    let header = measured_header("leocc", options, None, duration, STEP);
    let trace = PathTrace { header, frames };
    trace.validate()?;
    Ok(Imported::whole(trace, "rates with delays"))
}
