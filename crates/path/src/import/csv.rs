//! Rows of numbers. What they are follows from the first line:
//!
//! - `unix_ns,rtt_ms`: round trips; the time is that of the answer's arrival, as ping prints it;
//! - seven columns: rates and delays of an access line, see `throughput`;
//! - `# skyhop path …`: a whole path as `skyhop path export --format csv` writes it, see `table`.
//!
//! A line of column names may come first.

use std::io::BufRead;

use skyhop_units::Duration;

use super::lines::{ImportError, Line, Lines, parse_between, parse_number, shortened};
use super::probes::{LONGEST_RTT_MS, LOST_IN_A_ROW, Probe, Series, typical_spacing_ns};
use super::{MeasuredOptions, table, throughput};
use crate::trace::PathTrace;

const RTT_COLUMNS: &str = "unix_ns,rtt_ms";

/// Reads rows of numbers, of whichever of the kinds above.
///
/// # Errors
/// A row that is not like the first ones, out of order or impossible, with its line.
pub fn parse_csv(file: impl BufRead, options: &MeasuredOptions) -> Result<PathTrace, ImportError> {
    let mut lines = Lines::new(file);
    let Some(first) = lines.next()? else {
        return Err(ImportError::whole(format!("it is empty; {}", expected())));
    };
    if let Some(header) = first.text.strip_prefix(table::MARK) {
        let header = table::parse_header(header).map_err(|what| first.wrong(what))?;
        return table::parse(lines, header);
    }
    match first.text.split(',').count() {
        2 => round_trips(first.text.to_owned(), lines)?.into_trace("csv", options),
        throughput::COLUMN_COUNT => throughput::parse(first.text.to_owned(), lines, options),
        _ => Err(first.wrong(format!(
            "{} is not a row of numbers; {}",
            shortened(first.text),
            expected()
        ))),
    }
}

/// The round trips alone.
pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let mut lines = Lines::new(file);
    let first = lines.next()?.map(|line| (line.text.to_owned(), line.text.split(',').count()));
    match first {
        Some((first, 2)) => round_trips(first, lines),
        _ => Err(ImportError::Line { line: 1, what: format!("expected {RTT_COLUMNS}") }),
    }
}

fn expected() -> String {
    format!("expected {RTT_COLUMNS}, or {}, or a csv that skyhop wrote", throughput::COLUMNS)
}

/// Whether the first line is the names of the columns.
pub(super) fn is_column_names(first: &str, names: &str) -> bool {
    let plain = |text: &str| text.replace(' ', "").to_ascii_lowercase();
    plain(first) == plain(names)
}

fn round_trips(first: String, mut lines: Lines<impl BufRead>) -> Result<Series, ImportError> {
    let mut probes = Vec::new();
    let mut last_unix_ns = 0;
    if !is_column_names(&first, RTT_COLUMNS) {
        let line = Line { number: 1, text: &first };
        last_unix_ns = push_round_trip(line, last_unix_ns, &mut probes)?;
    }
    while let Some(line) = lines.next()? {
        if !line.text.is_empty() {
            last_unix_ns = push_round_trip(line, last_unix_ns, &mut probes)?;
        }
    }
    infer_losses(&mut probes);
    Ok(Series { probes, lost_after: 0, losses_known: false, unix: true })
}

/// Adds the probe of a row, and returns the row's time.
fn push_round_trip(
    line: Line<'_>,
    last_unix_ns: i64,
    probes: &mut Vec<Probe>,
) -> Result<i64, ImportError> {
    let (unix_ns, rtt) = parse_round_trip(line.text).map_err(|what| line.wrong(what))?;
    if unix_ns < last_unix_ns {
        let what =
            format!("unix_ns {unix_ns} is before {last_unix_ns} of the row above; sort them");
        return Err(line.wrong(what));
    }
    line.has_room(probes.len())?;
    let sent_ns = unix_ns.saturating_sub_unsigned(rtt.as_nanos());
    probes.push(Probe::halved(sent_ns, rtt, 0));
    Ok(unix_ns)
}

fn parse_round_trip(text: &str) -> Result<(i64, Duration), String> {
    let Some((unix_ns, rtt_ms)) = text.split_once(',').filter(|(_, rtt)| !rtt.contains(',')) else {
        return Err(format!("{} is not {RTT_COLUMNS}", shortened(text)));
    };
    let unix_ns: i64 = parse_number(unix_ns, "unix_ns")?;
    if unix_ns < 0 {
        return Err(format!("unix_ns is {unix_ns}; expected a time since 1970"));
    }
    let rtt_ms = parse_between(rtt_ms, "rtt_ms", (0.0, LONGEST_RTT_MS))?;
    Ok((unix_ns, Duration::from_secs_f64(rtt_ms / 1e3)))
}

/// Rows have no sequence numbers: where several probes in a row are missing from the usual spacing,
/// they were lost. One or two may have been sent late.
fn infer_losses(probes: &mut [Probe]) {
    let Some(spacing_ns) = typical_spacing_ns(probes) else { return };
    for next in 1..probes.len() {
        let gap_ns = probes[next].sent_ns.abs_diff(probes[next - 1].sent_ns);
        let missing = ((gap_ns + spacing_ns / 2) / spacing_ns).saturating_sub(1);
        if missing >= LOST_IN_A_ROW {
            probes[next].lost_before = missing;
        }
    }
}
