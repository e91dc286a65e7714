//! Python bindings of the blind estimation of the handover grid, and of the kinds of files that are not read.

use std::path::Path;

use pyo3::prelude::*;
use skyhop_convert::blind::{BlindEstimate, estimate_grid};
use skyhop_signal::blind::Period;
use skyhop_units::Duration;

use crate::errors::{Fallible, input_error};
use crate::progress::PyProgress;

/// Estimate of the handover grid from a log.
#[pyclass(frozen, get_all)]
pub(crate) struct GridEstimate {
    offset_s: Option<f64>,
    period_s: Option<f64>,
    confidence: f64,
    samples: usize,
    evidence: &'static str,
    stream: Option<String>,
    cut_after: Option<usize>,
    is_cut: bool,
}

/// Estimate the handover grid from a log or capture. `period` is the time between handovers;
/// "search" estimates the period too.
#[pyfunction]
#[pyo3(signature = (path, log_format, period))]
pub(crate) fn estimate_blindly(
    py: Python<'_>,
    path: &str,
    log_format: Option<&str>,
    period: &str,
) -> Fallible<GridEstimate> {
    let period = parse_period(period)?;
    let found = estimated(py, Path::new(path), log_format, period)?;
    let grid = found.estimate.grid;
    Ok(GridEstimate {
        offset_s: grid.map(|grid| grid.offset.as_secs_f64()),
        period_s: grid.map(|grid| grid.period.as_secs_f64()),
        confidence: found.estimate.confidence,
        samples: found.estimate.samples,
        evidence: found.estimate.evidence.name(),
        stream: found.stream,
        cut_after: found.cut_after,
        is_cut: found.is_cut,
    })
}

/// Estimate the grid of a file; Ctrl-C ends the search.
pub(crate) fn estimated(
    py: Python<'_>,
    path: &Path,
    log_format: Option<&str>,
    period: Period,
) -> Fallible<BlindEstimate> {
    let progress = PyProgress::new(py.None());
    let interrupted = || progress.interrupted();
    let found = py.detach(|| estimate_grid(path, log_format, period, &interrupted));
    match progress.take_raised() {
        Some(raised) => Err(raised.into()),
        None => Ok(found?),
    }
}

/// Parse the option `--period`: "search", or a duration of at least 1 s.
pub(crate) fn parse_period(text: &str) -> Fallible<Period> {
    if text == "search" {
        return Ok(Period::Searched);
    }
    let period: Duration = text.parse().map_err(|error| {
        input_error(&format!("--period: {error}, or \"search\" to estimate it"))
    })?;
    if period < Duration::from_secs(1) {
        return Err(input_error(&format!("--period {period}: expected at least 1 s")));
    }
    Ok(Period::Known(period))
}

/// Description of a file that begins with these bytes, for messages; `None` if a reader may read it.
#[pyfunction]
pub(crate) fn other_kind(beginning: &[u8]) -> Option<&'static str> {
    skyhop_model::other_kind(beginning)
}
