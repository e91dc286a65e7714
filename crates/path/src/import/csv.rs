//! Rows of numbers. What they are follows from the first line:
//!
//! - the names of columns, a time and a round trip among them: round trips;
//! - `unix_ns,rtt_ms`, or two numbers: likewise; the time is that of the answer's arrival, as ping prints it;
//! - seven columns, by number or by name: rates and delays of an access line, see `throughput`;
//! - `# skyhop path …`: a whole path as `skyhop path export --format csv` writes it, see `table`.

use std::io::BufRead;

use skyhop_model::one_line;
use skyhop_units::{Duration, Quoted};

use super::columns::{Column, Columns};
use super::lines::{ImportError, Line, Lines, parse_between};
use super::probes::{LONGEST_RTT_MS, LOST_IN_A_ROW, Probe, Series, typical_spacing_ns};
use super::{MeasuredOptions, table, throughput};
use crate::trace::PathTrace;

const RTT_COLUMNS: &str = "unix_ns,rtt_ms";
/// What stands in place of a round trip that never ended.
const LOST: [&str; 9] = ["", "-", "*", "lost", "timeout", "none", "null", "na", "nan"];
/// Times from then on, 1973, are of 1970; earlier ones of the measurement's own clock.
const SINCE_1970_NS: i64 = 100_000_000_000_000_000;

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
    let text = first.text.to_owned();
    match Columns::named_by(&text) {
        Some(named) if throughput::is_in(&named) => {
            throughput::parse(Rows { columns: named, first: None, lines }, options)
        }
        Some(named) => round_trips(named, None, lines)?.into_trace("csv", options),
        None => match text.split(',').count() {
            2 => {
                round_trips(Columns::of(RTT_COLUMNS), Some(text), lines)?.into_trace("csv", options)
            }
            throughput::COLUMN_COUNT => {
                let columns = Columns::of(throughput::COLUMNS);
                throughput::parse(Rows { columns, first: Some(text), lines }, options)
            }
            _ => Err(not_numbers(&text)),
        },
    }
}

/// The round trips alone.
pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let mut lines = Lines::new(file);
    let first = lines.next()?.map(|line| line.text.to_owned()).unwrap_or_default();
    match Columns::named_by(&first) {
        Some(named) => round_trips(named, None, lines),
        None if first.split(',').count() == 2 => {
            round_trips(Columns::of(RTT_COLUMNS), Some(first), lines)
        }
        None => Err(ImportError::Line { line: 1, what: format!("expected {RTT_COLUMNS}") }),
    }
}

fn not_numbers(first: &str) -> ImportError {
    let what = format!("{} is not a row of numbers; {}", Quoted(first), expected());
    ImportError::Line { line: 1, what }
}

fn expected() -> String {
    format!("expected {RTT_COLUMNS}, or {}, or a csv that skyhop wrote", throughput::COLUMNS)
}

/// The rows of a table: the first line too, where that names no columns.
pub(super) struct Rows<R> {
    pub columns: Columns,
    first: Option<String>,
    lines: Lines<R>,
}

impl<R: BufRead> Rows<R> {
    /// Gives each row's line and its cells to `take`.
    pub fn each(
        mut self,
        mut take: impl FnMut(Line<'_>, &[&str]) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        if let Some(first) = &self.first {
            let line = Line { number: 1, text: first };
            take(line, &self.columns.row(first).map_err(|what| line.wrong(what))?)?;
        }
        while let Some(line) = self.lines.next()? {
            if !line.text.is_empty() {
                take(line, &self.columns.row(line.text).map_err(|what| line.wrong(what))?)?;
            }
        }
        Ok(())
    }
}

fn round_trips(
    columns: Columns,
    first: Option<String>,
    lines: Lines<impl BufRead>,
) -> Result<Series, ImportError> {
    let Some((time, rtt)) = columns.round_trips() else {
        let what = format!(
            "{} names no time (time, timestamp, unix, … with _s, _ms, _us or _ns) beside a round trip (rtt, \
             latency or ping, in ms unless it says); {}",
            Quoted(&columns.names()),
            expected()
        );
        return Err(ImportError::Line { line: 1, what });
    };
    let mut log = Log { columns: columns.clone(), time, rtt, ..Log::default() };
    Rows { columns, first, lines }.each(|line, cells| {
        line.has_room(log.probes.len())?;
        log.take(cells).map_err(|what| line.wrong(what))
    })?;
    let losses_known = log.has_lost;
    if !losses_known {
        infer_losses(&mut log.probes);
    }
    Ok(Series { probes: log.probes, lost_after: log.lost, losses_known, unix: log.unix })
}

#[derive(Default)]
struct Log {
    columns: Columns,
    time: Column,
    rtt: Column,
    probes: Vec<Probe>,
    /// The last row's time, as it stands there and in ns.
    last: (String, i64),
    /// Since the last answer.
    lost: u64,
    has_lost: bool,
    unix: bool,
}

impl Log {
    fn take(&mut self, cells: &[&str]) -> Result<(), String> {
        let rtt = cells[self.rtt.place];
        if LOST.contains(&rtt.to_lowercase().as_str()) && !self.is_plain() {
            self.lost += 1;
            self.has_lost = true;
            return Ok(());
        }
        let time = self.columns.number(cells[self.time.place]);
        let (name, at_ns) = (&self.time.name, self.time.time_ns(&time)?);
        if at_ns < self.last.1 {
            let last = &self.last.0;
            let (time, last) = (one_line(&time), one_line(last));
            return Err(format!("{name} {time} is before {last} of the row above; sort them"));
        }
        let per_ms = self.rtt.per_ms();
        let bounds = (0.0, LONGEST_RTT_MS * per_ms);
        let value = parse_between(&self.columns.number(rtt), &self.rtt.name, bounds)?;
        let rtt = Duration::from_secs_f64(value / per_ms / 1e3);
        let sent_ns = match self.time.is_sending() {
            true => at_ns,
            false => at_ns.saturating_sub_unsigned(rtt.as_nanos()),
        };
        self.unix |= self.is_plain() || at_ns >= SINCE_1970_NS;
        self.last = (time, at_ns);
        self.probes.push(Probe::halved(sent_ns, rtt, std::mem::take(&mut self.lost)));
        Ok(())
    }

    /// Whether it is the table of `unix_ns,rtt_ms`, in which every row is an answer.
    fn is_plain(&self) -> bool {
        self.columns == Columns::of(RTT_COLUMNS)
    }
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
