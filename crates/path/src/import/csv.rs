//! CSV measurements, whose kind follows from the first line:
//!
//! - names of columns, with a time and a round trip among them: round trips, with a rate if there is a column for one;
//! - names of columns, with a time and a rate among them: rates;
//! - `unix_ns,rtt_ms`, or two numbers: round trips; the time is that of the answer's arrival, as ping prints it;
//! - seven numbers, or the seven names: rates and delays of an access line, see `throughput`;
//! - `# skyhop path …`: a whole path that `skyhop path export --format csv` has written, see `table`.

use std::borrow::Cow;
use std::io::BufRead;

use skyhop_model::one_line;
use skyhop_units::{Duration, Quoted, Rate};

use super::account::Account;
use super::columns::{Column, Columns};
use super::lines::{ImportError, Line, Lines, parse_between, parse_number};
use super::probes::{LONGEST_RTT_MS, LOST_IN_A_ROW, Probe, Series, typical_spacing_ns};
use super::rates::Rates;
use super::{AccessDirection, Imported, MeasuredOptions, table, throughput};

const RTT_COLUMNS: &str = "unix_ns,rtt_ms";
/// Values that mark a lost probe in the column of round trips, in lower case.
const LOST: [&str; 9] = ["", "-", "*", "lost", "timeout", "none", "null", "na", "nan"];
/// Whole numbers that stand for a lost probe where a round trip in ms or s belongs.
const LOST_NUMBERS: [f64; 6] = [-9999.0, -999.0, -99.0, -1.0, 9999.0, 99999.0];
/// Lower bound, in 1973, of times that count from 1970, ns; smaller ones are on the measurement's own clock.
const SINCE_1970_NS: i64 = 100_000_000_000_000_000;
const RATES_BPS: (f64, f64) = (0.0, 1e15);

/// Parse a CSV measurement of any of the kinds above.
///
/// # Errors
/// A row has the wrong number of columns, is out of order, or has an impossible value; the error
/// states the line number.
pub fn parse_csv(file: impl BufRead, options: &MeasuredOptions) -> Result<Imported, ImportError> {
    let mut lines = Lines::new(file);
    let Some(first) = lines.next()? else {
        return Err(ImportError::whole(format!("it is empty; {}", expected())));
    };
    if let Some(header) = first.text.strip_prefix(table::MARK) {
        let header = table::parse_header(header).map_err(|what| first.wrong(what))?;
        return Ok(Imported::whole(table::parse(lines, header)?, "frames"));
    }
    let text = first.text.to_owned();
    let direction = options.direction.unwrap_or_default();
    match Columns::from_header(&text) {
        Some(named) if throughput::is_in(&named) => {
            throughput::parse(Rows { columns: named, first: None, lines }, options)
        }
        Some(named) if named.round_trips().is_none() && named.rate(direction).is_some() => {
            rates(named, lines, direction)?.into_path("csv", options)
        }
        Some(named) => into_path(round_trips(named, None, lines, direction)?, options),
        None => match text.split(',').count() {
            2 => {
                let columns = Columns::new(RTT_COLUMNS);
                into_path(round_trips(columns, Some(text), lines, direction)?, options)
            }
            throughput::COLUMN_COUNT => {
                let columns = Columns::new(throughput::COLUMNS);
                throughput::parse(Rows { columns, first: Some(text), lines }, options)
            }
            _ => Err(not_numbers(&text)),
        },
    }
}

fn into_path(series: Series, options: &MeasuredOptions) -> Result<Imported, ImportError> {
    if options.rtt.is_some() {
        return Err(ImportError::whole("--rtt: the file has round trips of its own"));
    }
    series.into_path("csv", options)
}

/// Parse the kinds with round trips only.
pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let mut lines = Lines::new(file);
    let first = lines.next()?.map(|line| line.text.to_owned()).unwrap_or_default();
    match Columns::from_header(&first) {
        Some(named) => round_trips(named, None, lines, AccessDirection::Down),
        None if first.split(',').count() == 2 => {
            round_trips(Columns::new(RTT_COLUMNS), Some(first), lines, AccessDirection::Down)
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
    /// Call `take` with the line and the cells of each row. Lines without cells, and names of columns that are
    /// written again, are no rows. A last line after others that is no row and has no line end is cut off, as in a
    /// file that is still being written: `account` counts it.
    pub fn each(
        mut self,
        account: &mut Account,
        mut take: impl FnMut(Line<'_>, &[Cow<'_, str>]) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let mut is_alone = self.first.is_none();
        if let Some(first) = &self.first {
            let line = Line { number: 1, text: first, is_open: false };
            take(line, &self.columns.row(first).map_err(|what| line.wrong(what))?)?;
        }
        while let Some(line) = self.lines.next()? {
            if line.text.is_empty() {
                continue;
            }
            let taken = match self.columns.row(line.text) {
                Ok(row) if self.columns.are(&row) => Ok(()),
                Ok(row) => take(line, &row),
                Err(what) => Err(line.wrong(what)),
            };
            match taken {
                Err(_) if line.is_open && !is_alone => account.pass_over(line),
                taken => taken?,
            }
            is_alone = false;
        }
        Ok(())
    }
}

/// Parse rates over time, which have no round trips.
fn rates(
    columns: Columns,
    lines: Lines<impl BufRead>,
    direction: AccessDirection,
) -> Result<Rates, ImportError> {
    let (Some(time), Some(rate)) = (columns.time(None), columns.rate(direction)) else {
        return Err(without_columns(&columns));
    };
    let mut account = Account::without(columns.others(&[time.index, rate.0]));
    let said = columns.direction_of(rate.0);
    let (mut rates, mut unix) = (Vec::new(), false);
    let names = columns.clone();
    Rows { columns, first: None, lines }.each(&mut account, |line, cells| {
        line.has_room(rates.len())?;
        let wrong = |what: String| line.wrong(what);
        let text = names.number(&cells[time.index]);
        let at_ns = time.time_ns(&text).map_err(wrong)?;
        if rates.last().is_some_and(|(last_ns, _)| at_ns < *last_ns) {
            let (name, text) = (&time.name, one_line(&text));
            return Err(wrong(format!("{name} {text} is before that of the row above; sort them")));
        }
        unix |= at_ns >= SINCE_1970_NS;
        if let Some(rate) = rate_of(&names, cells, rate).map_err(wrong)? {
            rates.push((at_ns, rate));
        }
        Ok(())
    })?;
    Ok(Rates { rates, end_ns: None, unix, direction: said, account })
}

/// Return the rate of a row; `None` if it is unknown.
fn rate_of(
    columns: &Columns,
    cells: &[Cow<'_, str>],
    (place, unit_bps): (usize, f64),
) -> Result<Option<Rate>, String> {
    let cell = columns.number(&cells[place]);
    if LOST.contains(&cell.to_lowercase().as_str()) || cell.parse() == Ok(-1.0) {
        return Ok(None);
    }
    let bounds = (RATES_BPS.0, RATES_BPS.1 / unit_bps);
    let rate = parse_between(&cell, "the rate", bounds)? * unit_bps;
    Ok(Some(Rate::from_bits_per_second(rate.round() as u64)))
}

fn without_columns(columns: &Columns) -> ImportError {
    let what = format!(
        "{} needs a column for the time (time, timestamp, unix, … with _s, _ms, _us or _ns) and one for the \
         round trip (rtt, latency or ping, in ms unless named otherwise) or for the rate (such as rate_mbps); {}",
        Quoted(&columns.names()),
        expected()
    );
    ImportError::Line { line: 1, what }
}

fn round_trips(
    columns: Columns,
    first: Option<String>,
    lines: Lines<impl BufRead>,
    direction: AccessDirection,
) -> Result<Series, ImportError> {
    let Some((time, rtt)) = columns.round_trips() else {
        return Err(without_columns(&columns));
    };
    let (ways, rate) = (columns.ways(), columns.rate(direction));
    let mut used = vec![time.index, rtt.index];
    used.extend(ways.iter().flatten().map(|way| way.index));
    used.extend(rate.map(|(place, _)| place));
    let mut account = Account::without(columns.others(&used));
    let mut log = Log { columns: columns.clone(), time, rtt, ways, rate, ..Log::default() };
    Rows { columns, first, lines }.each(&mut account, |line, cells| {
        line.has_room(log.probes.len())?;
        log.parse_row(cells).map_err(|what| line.wrong(what))
    })?;
    let losses_known = log.has_lost;
    if !losses_known {
        infer_losses(&mut log.probes);
    }
    let Log { probes, lost, rates, unix, .. } = log;
    let series = Series::of(probes, unix, account);
    Ok(Series { lost_after: lost, losses_known, rates, ..series })
}

#[derive(Default)]
struct Log {
    columns: Columns,
    time: Column,
    rtt: Column,
    /// One-way delays there and back.
    ways: Option<[Column; 2]>,
    /// Column and unit of the rate, bit/s.
    rate: Option<(usize, f64)>,
    rates: Vec<(i64, Rate)>,
    probes: Vec<Probe>,
    /// Time of the previous row, as written and in ns.
    last: (String, i64),
    /// Probes lost since the last answered one.
    lost: u64,
    has_lost: bool,
    unix: bool,
}

impl Log {
    fn parse_row(&mut self, cells: &[Cow<'_, str>]) -> Result<(), String> {
        if let Some(column) = self.rate
            && let Some(rate) = rate_of(&self.columns, cells, column)?
        {
            let time = self.columns.number(&cells[self.time.index]);
            self.rates.push((self.time.time_ns(&time)?, rate));
        }
        if self.is_lost(cells) {
            self.lost += 1;
            self.has_lost = true;
            return Ok(());
        }
        let time = self.columns.number(&cells[self.time.index]);
        let (name, at_ns) = (&self.time.name, self.time.time_ns(&time)?);
        if at_ns < self.last.1 {
            let last = &self.last.0;
            let (time, last) = (one_line(&time), one_line(last));
            return Err(format!("{name} {time} is before {last} of the row above; sort them"));
        }
        let rtt = self.delay(cells, &self.rtt)?;
        let sent_ns = match self.time.is_sending() {
            true => at_ns,
            false => at_ns.saturating_sub_unsigned(rtt.as_nanos()),
        };
        self.unix |= self.is_plain() || at_ns >= SINCE_1970_NS;
        self.last = (time, at_ns);
        let mut probe = Probe::symmetric(sent_ns, rtt, std::mem::take(&mut self.lost));
        if let Some([up, _]) = &self.ways {
            probe.there = self.delay(cells, up)?.min(rtt);
            probe.back = rtt - probe.there;
        }
        self.probes.push(probe);
        Ok(())
    }

    /// Whether a row stands for a lost probe: in place of its round trip there is a word, 0 or such as -1 or 9999, or a
    /// one-way delay is -1.
    fn is_lost(&self, cells: &[Cow<'_, str>]) -> bool {
        let number = |column: &Column| {
            parse_number::<f64>(&self.columns.number(&cells[column.index]), "").ok()
        };
        let rtt = cells[self.rtt.index].to_lowercase();
        let stands_for_lost = |rtt: f64| {
            rtt == 0.0
                || rtt.is_infinite()
                || (LOST_NUMBERS.contains(&rtt) && (rtt < 0.0 || self.rtt.per_ms() <= 1.0))
        };
        (LOST.contains(&rtt.as_str()) && !self.is_plain())
            || number(&self.rtt).is_some_and(stands_for_lost)
            || self.ways.iter().flatten().any(|way| number(way) == Some(-1.0))
    }

    /// Parse a delay or a round trip.
    fn delay(&self, cells: &[Cow<'_, str>], column: &Column) -> Result<Duration, String> {
        let per_ms = column.per_ms();
        let bounds = (0.0, LONGEST_RTT_MS * per_ms);
        let value =
            parse_between(&self.columns.number(&cells[column.index]), &column.name, bounds)?;
        Ok(Duration::from_secs_f64(value / per_ms / 1e3))
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
