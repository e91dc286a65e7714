//! CSV measurements, whose kind follows from the first line:
//!
//! - names of columns, with a time and a round trip among them: round trips;
//! - `unix_ns,rtt_ms`, or two numbers: round trips; the time is that of the answer's arrival, as ping prints it;
//! - seven numbers, or the seven names: rates and delays of an access line, see `throughput`;
//! - `# skyhop path …`: a whole path that `skyhop path export --format csv` has written, see `table`.

use std::io::BufRead;

use skyhop_model::one_line;
use skyhop_units::{Duration, Quoted};

use super::columns::{Column, Columns};
use super::lines::{ImportError, Line, Lines, parse_between};
use super::probes::{LONGEST_RTT_MS, LOST_IN_A_ROW, Probe, Series, typical_spacing_ns};
use super::{MeasuredOptions, table, throughput};
use crate::trace::PathTrace;

const RTT_COLUMNS: &str = "unix_ns,rtt_ms";
/// Values that mark a lost probe in the column of round trips, in lower case.
const LOST: [&str; 9] = ["", "-", "*", "lost", "timeout", "none", "null", "na", "nan"];
/// Lower bound, in 1973, of times that count from 1970, ns; smaller ones are on the measurement's own clock.
const SINCE_1970_NS: i64 = 100_000_000_000_000_000;

/// Parse a CSV measurement of any of the kinds above.
///
/// # Errors
/// A row has the wrong number of columns, is out of order, or has an impossible value; the error
/// states the line number.
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
    match Columns::from_header(&text) {
        Some(named) if throughput::is_in(&named) => {
            throughput::parse(Rows { columns: named, first: None, lines }, options)
        }
        Some(named) => round_trips(named, None, lines)?.into_trace("csv", options),
        None => match text.split(',').count() {
            2 => round_trips(Columns::new(RTT_COLUMNS), Some(text), lines)?
                .into_trace("csv", options),
            throughput::COLUMN_COUNT => {
                let columns = Columns::new(throughput::COLUMNS);
                throughput::parse(Rows { columns, first: Some(text), lines }, options)
            }
            _ => Err(not_numbers(&text)),
        },
    }
}

/// Parse the kinds with round trips only.
pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let mut lines = Lines::new(file);
    let first = lines.next()?.map(|line| line.text.to_owned()).unwrap_or_default();
    match Columns::from_header(&first) {
        Some(named) => round_trips(named, None, lines),
        None if first.split(',').count() == 2 => {
            round_trips(Columns::new(RTT_COLUMNS), Some(first), lines)
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

/// Rows of a table, including the first line if it does not name the columns.
pub(super) struct Rows<R> {
    pub columns: Columns,
    first: Option<String>,
    lines: Lines<R>,
}

impl<R: BufRead> Rows<R> {
    /// Call `take` with the line and the cells of each row.
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
            "{} needs a column for the time (time, timestamp, unix, … with _s, _ms, _us or _ns) and one for the \
             round trip (rtt, latency or ping, in ms unless named otherwise); {}",
            Quoted(&columns.names()),
            expected()
        );
        return Err(ImportError::Line { line: 1, what });
    };
    let mut log = Log { columns: columns.clone(), time, rtt, ..Log::default() };
    Rows { columns, first, lines }.each(|line, cells| {
        line.has_room(log.probes.len())?;
        log.parse_row(cells).map_err(|what| line.wrong(what))
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
    /// Time of the previous row, as written and in ns.
    last: (String, i64),
    /// Probes lost since the last answered one.
    lost: u64,
    has_lost: bool,
    unix: bool,
}

impl Log {
    fn parse_row(&mut self, cells: &[&str]) -> Result<(), String> {
        let rtt = cells[self.rtt.index];
        if LOST.contains(&rtt.to_lowercase().as_str()) && !self.is_plain() {
            self.lost += 1;
            self.has_lost = true;
            return Ok(());
        }
        let time = self.columns.number(cells[self.time.index]);
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
        self.probes.push(Probe::symmetric(sent_ns, rtt, std::mem::take(&mut self.lost)));
        Ok(())
    }

    /// Whether the table is `unix_ns,rtt_ms`, in which every row is an answered probe.
    fn is_plain(&self) -> bool {
        self.columns == Columns::new(RTT_COLUMNS)
    }
}

/// Infer losses from the spacing of rows, which have no sequence numbers: at least [`LOST_IN_A_ROW`] missing probes
/// count as lost. A gap of one or two probes may only mean that a probe was sent late.
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
