//! Blind estimation of the handover grid from a log or a packet capture: opens the file and chooses its reader.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use skyhop_path::import::{Outcome, parse_round_trips};
use skyhop_signal::blind::{Estimate, Interrupted, MIN_MOMENTS, Period, Sample, estimate_unless};
use skyhop_signal::capture::{CaptureError, busiest_conversation};
use skyhop_units::{Duration, UtcInstant, did_you_mean};

use crate::ConvertError;
use crate::import::{detect, open};

/// Formats that [`estimate_grid`] reads.
pub const FORMATS: [&str; 5] = ["ping", "irtt", "atlas", "csv", "pcap"];

/// Estimate of the handover grid, and the data from which it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct BlindEstimate {
    /// Name of the capture's stream that shows the grid; `None` for logs.
    pub stream: Option<String>,
    /// Estimate from the stream or the log.
    pub estimate: Estimate,
    /// Number of whole packets in a capture that ends in the middle of another.
    pub cut_after: Option<usize>,
    /// Whether a compressed file ends early, so that only what stands before its end counts.
    pub is_cut: bool,
    /// Arrival time of the last sample, by the clock of the capture or log.
    pub last: Option<UtcInstant>,
}

/// Longest period for which a grid is estimated; the work grows with it.
const LONGEST_PERIOD: Duration = Duration::from_secs(3600);

/// Longest pause between two samples, ns: a longer one means that the clock was set in between.
const LONGEST_PAUSE_NS: i64 = 366 * 86_400 * 1_000_000_000;

/// Estimate the handover grid from a log or capture, plain or gzipped; `format` is one of [`FORMATS`], or
/// detected from the file. Once `interrupted` returns true, the call soon returns an error or a result without
/// meaning.
///
/// # Errors
/// An unknown format, a file that cannot be read, an error in its content, or a period longer than the log.
pub fn estimate_grid(
    path: &Path,
    format: Option<&str>,
    period: Period,
    interrupted: &Interrupted<'_>,
) -> Result<BlindEstimate, ConvertError> {
    let origin = path.display().to_string();
    let mut opened = open(path)?;
    let cut = opened.cut.clone();
    let wrong = |what: String| cut.explain(ConvertError::Content { origin: origin.clone(), what });
    let format = match format {
        Some(format) => format,
        None => detect(&mut opened.file, path)?,
    };
    let file = BufReader::new(Interruptible { file: opened.whole_part(format), interrupted });
    let mut cut_after = None;
    let streams = match format {
        "pcap" => {
            let found = busiest_conversation(file).map_err(|error| wrong(error.to_string()))?;
            cut_after = found.cut_after;
            found.streams.into_iter().map(|one| (Some(one.name), one.samples)).collect()
        }
        _ if FORMATS.contains(&format) => {
            let samples = round_trips(file, format).map_err(|error| wrong(error.to_string()))?;
            vec![(None, samples)]
        }
        _ => {
            let known = FORMATS.join(", ");
            let hint = did_you_mean(format, FORMATS);
            let what =
                format!("\"{format}\" is not a format of this version{hint}; expected {known}");
            return Err(ConvertError::option(&origin, "--format", what));
        }
    };
    check(&origin, &streams, period)?;
    let estimates = streams
        .into_iter()
        .map(|(stream, samples)| BlindEstimate::of(stream, &samples, period, interrupted));
    estimates
        .max_by(|a, b| Estimate::by_clarity(&a.estimate, &b.estimate))
        .map(|best| BlindEstimate { cut_after, is_cut: cut.is_cut(), ..best })
        .ok_or_else(|| wrong(CaptureError::Empty.to_string()))
}

/// Check that the times are of one clock, and that the period is not longer than the log.
fn check(
    origin: &str,
    streams: &[(Option<String>, Vec<Sample>)],
    period: Period,
) -> Result<(), ConvertError> {
    let mut span_ns = 0;
    for (_, samples) in streams {
        let mut times: Vec<UtcInstant> = samples.iter().map(|sample| sample.at).collect();
        times.sort_unstable();
        let ns = |a: UtcInstant, b: UtcInstant| b.unix_nanos().saturating_sub(a.unix_nanos());
        let jump = times.windows(2).find(|pair| ns(pair[0], pair[1]) > LONGEST_PAUSE_NS);
        if let Some([before, after]) = jump {
            let what = format!(
                "its times jump from {before} to {after}: the clock was set in between; keep one part of the log"
            );
            return Err(ConvertError::Content { origin: origin.to_owned(), what });
        }
        if let [first, .., last] = times[..] {
            span_ns = span_ns.max(ns(first, last));
        }
    }
    match period {
        Period::Known(period) if period > LONGEST_PERIOD => {
            let what = format!("{period} is longer than {LONGEST_PERIOD}, the longest of a grid");
            Err(ConvertError::option(origin, "--period", what))
        }
        Period::Known(period) if u128::from(period.as_nanos()) > span_ns as u128 => {
            let seconds = span_ns / 1_000_000_000;
            let what = format!(
                "{period} is longer than the log of {seconds} s; a grid shows in {MIN_MOMENTS} periods or more"
            );
            Err(ConvertError::option(origin, "--period", what))
        }
        _ => Ok(()),
    }
}

impl BlindEstimate {
    fn of(
        stream: Option<String>,
        samples: &[Sample],
        period: Period,
        interrupted: &Interrupted<'_>,
    ) -> Self {
        let last = samples.iter().map(|sample| sample.at).max();
        let estimate = estimate_unless(samples, period, interrupted);
        Self { stream, estimate, cut_after: None, is_cut: false, last }
    }
}

/// Reader that ends with an error once the user has stopped it.
struct Interruptible<'i, R> {
    file: R,
    interrupted: &'i Interrupted<'i>,
}

impl<R: Read> Read for Interruptible<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if (self.interrupted)() {
            return Err(std::io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
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
