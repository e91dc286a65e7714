//! Logs and captures for blind estimation: opens the file, chooses the reader.

use std::io::{BufRead, Read};
use std::path::Path;

use skyhop_signal::blind::{Estimate, Sample, estimate};
use skyhop_signal::capture::busiest_conversation;
use skyhop_units::{Duration, UtcInstant};

use crate::ScenarioError;
use crate::import::open;

/// The formats that [`estimate_grid`] reads.
pub const FORMATS: [&str; 2] = ["csv", "pcap"];

/// The first bytes of pcap (micro- and nanoseconds, either byte order) and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// What was looked at, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct BlindEstimate {
    /// The part of the file that says it: a stream of a capture.
    pub stream: Option<String>,
    /// What it says.
    pub estimate: Estimate,
}

/// Looks for handovers every `period` in a log or capture, plain or gzipped; `format` is one of [`FORMATS`],
/// or found out from the file.
///
/// # Errors
/// An unknown format, a file that cannot be read, and whatever is wrong with it.
pub fn estimate_grid(
    path: &Path,
    format: Option<&str>,
    period: Duration,
) -> Result<BlindEstimate, ScenarioError> {
    let origin = path.display().to_string();
    let mut file = open(path)?;
    let format = match format {
        Some(format) => format,
        None => guess(&mut file).map_err(|source| unreadable(path, source))?,
    };
    match format {
        "csv" => {
            let estimate = estimate(&round_trips(file, path)?, period);
            Ok(BlindEstimate { stream: None, estimate })
        }
        "pcap" => {
            let wrong = |error: skyhop_signal::capture::CaptureError| ScenarioError::Log {
                origin,
                what: error.to_string(),
            };
            best_stream(file, period).map_err(wrong)
        }
        _ => {
            let known = FORMATS.join(", ");
            let what = format!("\"{format}\" is not a format of this version; expected {known}");
            Err(ScenarioError::key(&origin, "--format", what))
        }
    }
}

fn guess(file: &mut impl BufRead) -> Result<&'static str, std::io::Error> {
    let start = file.fill_buf()?;
    Ok(if CAPTURES.iter().any(|magic| start.starts_with(magic)) { "pcap" } else { "csv" })
}

/// The stream of the busiest conversation that shows the grid most clearly.
fn best_stream(
    capture: impl Read + Send,
    period: Duration,
) -> Result<BlindEstimate, skyhop_signal::capture::CaptureError> {
    let estimates = busiest_conversation(capture)?.into_iter().map(|stream| BlindEstimate {
        estimate: estimate(&stream.samples, period),
        stream: Some(stream.name),
    });
    let clarity = |one: &BlindEstimate| (one.estimate.grid.is_some(), one.estimate.confidence);
    estimates
        .max_by(|a, b| clarity(a).partial_cmp(&clarity(b)).unwrap_or(std::cmp::Ordering::Equal))
        .ok_or(skyhop_signal::capture::CaptureError::Empty)
}

/// Rows of `unix_ns,rtt_ms`.
fn round_trips(file: impl BufRead, path: &Path) -> Result<Vec<Sample>, ScenarioError> {
    let mut samples = Vec::new();
    for (number, line) in file.lines().enumerate() {
        let line = line.map_err(|source| unreadable(path, source))?;
        match sample(&line) {
            Some(sample) => samples.push(sample),
            // The names of the columns.
            None if number == 0 => {}
            None => {
                let what = format!("line {}: expected unix_ns,rtt_ms", number + 1);
                return Err(ScenarioError::Log { origin: path.display().to_string(), what });
            }
        }
    }
    Ok(samples)
}

fn sample(line: &str) -> Option<Sample> {
    let (at, rtt_ms) = line.split_once(',')?;
    let rtt_ms: f64 = rtt_ms.trim().parse().ok()?;
    let rtt = (rtt_ms > 0.0 && rtt_ms.is_finite()).then(|| Duration::from_secs_f64(rtt_ms / 1e3));
    Some(Sample { at: UtcInstant::from_unix_nanos(at.trim().parse().ok()?), rtt })
}

fn unreadable(path: &Path, source: std::io::Error) -> ScenarioError {
    crate::error::unreadable(path, source)
}
