//! Blind estimation of the handover grid from a log or a packet capture: opens the file and chooses its reader.

use std::io::{BufRead, Read};
use std::path::Path;

use skyhop_path::import::{Outcome, parse_round_trips};
use skyhop_signal::blind::{Estimate, Period, Sample, estimate};
use skyhop_signal::capture::busiest_conversation;
use skyhop_units::UtcInstant;

use crate::ConvertError;
use crate::import::{detect, open};

/// Formats that [`estimate_grid`] reads.
pub const FORMATS: [&str; 4] = ["ping", "irtt", "csv", "pcap"];

/// Estimate of the handover grid, and the data from which it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct BlindEstimate {
    /// Name of the capture's stream that shows the grid; `None` for logs.
    pub stream: Option<String>,
    /// Estimate from the stream or the log.
    pub estimate: Estimate,
    /// Number of whole packets in a capture that ends in the middle of another.
    pub cut_after: Option<usize>,
    /// Arrival time of the last sample, by the clock of the capture or log.
    pub last: Option<UtcInstant>,
}

/// Estimate the handover grid from a log or capture, plain or gzipped; `format` is one of [`FORMATS`], or
/// detected from the file.
///
/// # Errors
/// An unknown format, a file that cannot be read, or an error in its content.
pub fn estimate_grid(
    path: &Path,
    format: Option<&str>,
    period: Period,
) -> Result<BlindEstimate, ConvertError> {
    let wrong = |what: String| ConvertError::Content { origin: path.display().to_string(), what };
    let mut file = open(path)?;
    let format = match format {
        Some(format) => format,
        None => detect(&mut file, path)?,
    };
    match format {
        "pcap" => best_stream(file, period).map_err(|error| wrong(error.to_string())),
        _ if FORMATS.contains(&format) => {
            let samples = round_trips(file, format).map_err(|error| wrong(error.to_string()))?;
            Ok(BlindEstimate::of(None, &samples, period))
        }
        _ => {
            let known = FORMATS.join(", ");
            let what = format!("\"{format}\" is not a format of this version; expected {known}");
            Err(ConvertError::option(&path.display().to_string(), "--format", what))
        }
    }
}

impl BlindEstimate {
    fn of(stream: Option<String>, samples: &[Sample], period: Period) -> Self {
        let last = samples.iter().map(|sample| sample.at).max();
        Self { stream, estimate: estimate(samples, period), cut_after: None, last }
    }
}

/// Estimate the grid from each stream of the busiest conversation, and return the estimate of the
/// stream that shows it most clearly.
fn best_stream(
    capture: impl Read + Send,
    period: Period,
) -> Result<BlindEstimate, skyhop_signal::capture::CaptureError> {
    let found = busiest_conversation(capture)?;
    let estimates = found
        .streams
        .into_iter()
        .map(|stream| BlindEstimate::of(Some(stream.name), &stream.samples, period));
    estimates
        .max_by(|a, b| Estimate::by_clarity(&a.estimate, &b.estimate))
        .map(|best| BlindEstimate { cut_after: found.cut_after, ..best })
        .ok_or(skyhop_signal::capture::CaptureError::Empty)
}

fn round_trips(
    log: impl BufRead,
    format: &str,
) -> Result<Vec<Sample>, skyhop_path::import::ImportError> {
    let sample = |one: Outcome| {
        one.rtt.map(|rtt| Sample { at: UtcInstant::from_unix_nanos(one.at_ns), delay: Some(rtt) })
    };
    Ok(parse_round_trips(log, format)?.outcomes.into_iter().filter_map(sample).collect())
}
