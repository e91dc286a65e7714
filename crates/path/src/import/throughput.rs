//! Rates, delays and losses of an access line in equal steps:
//! `ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms`.
//!
//! Each row is a mean that holds until the next row. `from -> to` is the direction chosen by the user, by default
//! down: its rate, loss and one-way delay become the path's. The one-way delay of the other direction becomes that
//! from `to` to `from`.

use std::io::BufRead;

use skyhop_units::{Duration, Instant, Rate};

use super::account::Account;
use super::columns::Columns;
use super::csv;
use super::lines::{ImportError, Line, parse_between};
use super::{AccessDirection, Imported, MeasuredOptions, measured_header};
use crate::trace::{Frame, PathHeader, PathTrace};

pub(super) const COLUMNS: &str = "ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms";
pub(super) const COLUMN_COUNT: usize = 7;

const RATES_MBPS: (f64, f64) = (0.0, 100_000.0);
const DELAYS_MS: (f64, f64) = (0.0, 60_000.0);
const TIMES_MS: (f64, f64) = (0.0, 366.0 * 86_400e3);

const NAMES: [&str; COLUMN_COUNT] =
    ["ul_Mbps", "dl_Mbps", "ul_owd_ms", "dl_owd_ms", "ul_loss", "dl_loss", "t_ms"];

/// Whether a table has the seven columns of this format.
pub(super) fn is_in(columns: &Columns) -> bool {
    columns.indexes_of(NAMES).is_some()
}

pub(super) fn parse(
    table: csv::Rows<impl BufRead>,
    options: &MeasuredOptions,
) -> Result<Imported, ImportError> {
    let columns = table.columns.clone();
    let places = columns.indexes_of(NAMES).unwrap_or_default();
    let mut account = Account::without(columns.others(&places));
    let direction = options.direction.unwrap_or_default();
    let mut rows = Rows { frames: Vec::new(), begin_ms: None, direction };
    table.each(&mut account, |line, cells| {
        let values = places.map(|place| columns.number(&cells[place]));
        rows.push(line, values.each_ref().map(String::as_str))
    })?;
    let frames = rows.frames;
    let step = match frames.get(1) {
        Some(second) => second.at - Instant::START,
        None => Duration::from_millis(100),
    };
    let last = frames.last().map_or(Instant::START, |last| last.at);
    let duration = (last - Instant::START) + step;
    let header = measured_header("csv", options, None, duration, step);
    let header = PathHeader { dish: Some(direction.dish()), ..header };
    let trace = PathTrace { header, frames };
    trace.validate()?;
    account.taken = vec![format!("{} rates with delays and losses", trace.frames.len())];
    account.span = duration;
    Ok(Imported { trace, account })
}

struct Rows {
    frames: Vec<Frame>,
    begin_ms: Option<f64>,
    direction: AccessDirection,
}

impl Rows {
    fn push(&mut self, line: Line<'_>, row: [&str; COLUMN_COUNT]) -> Result<(), ImportError> {
        let (t_ms, mut frame) = parse_row(row, self.direction).map_err(|what| line.wrong(what))?;
        let since_begin_ms = t_ms - *self.begin_ms.get_or_insert(t_ms);
        frame.at = Instant::START + Duration::from_secs_f64(since_begin_ms / 1e3);
        if self.frames.last().is_some_and(|last| frame.at <= last.at) {
            return Err(line.wrong(format!("t_ms {t_ms} does not come after the row above")));
        }
        line.has_room(self.frames.len())?;
        self.frames.push(frame);
        Ok(())
    }
}

/// Parse a row; return its time in ms, and the frame, whose time the caller sets.
fn parse_row(
    [ul_rate, dl_rate, ul_delay, dl_delay, ul_loss, dl_loss, t_ms]: [&str; COLUMN_COUNT],
    direction: AccessDirection,
) -> Result<(f64, Frame), String> {
    let rate = |text, what| {
        let mbps = parse_between(text, what, RATES_MBPS)?;
        Ok::<_, String>(Rate::from_bits_per_second((mbps * 1e6).round() as u64))
    };
    let delay = |text, what| {
        Ok::<_, String>(Duration::from_secs_f64(parse_between(text, what, DELAYS_MS)? / 1e3))
    };
    let loss = |text, what| parse_between(text, what, (0.0, 1.0));
    // All seven values are parsed: a row with an invalid value is not trusted.
    let up = (rate(ul_rate, "ul_Mbps")?, delay(ul_delay, "ul_owd_ms")?, loss(ul_loss, "ul_loss")?);
    let down =
        (rate(dl_rate, "dl_Mbps")?, delay(dl_delay, "dl_owd_ms")?, loss(dl_loss, "dl_loss")?);
    let ((rate, delay, loss), (rate_back, delay_back, loss_back)) = match direction {
        AccessDirection::Down => (down, up),
        AccessDirection::Up => (up, down),
    };
    let frame = Frame {
        delay: Some(delay),
        delay_back: Some(delay_back),
        rate: Some(rate),
        rate_back: Some(rate_back),
        loss: Some(loss),
        loss_back: Some(loss_back),
        ..Frame::default()
    };
    Ok((parse_between(t_ms, "t_ms", TIMES_MS)?, frame))
}
