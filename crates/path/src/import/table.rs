//! CSV of a whole path, frame by frame, in the format that `export::csv` writes.

use std::io::BufRead;

use skyhop_model::one_line;
use skyhop_units::{Duration, Instant, Quoted, Rate};

use super::lines::{ImportError, Lines, parse_between, parse_number};
use crate::trace::{Frame, PathEvent, PathHeader, PathTrace, SCHEMA_VERSION};

/// Text at the beginning of the file, followed by the header as JSON.
pub(crate) const MARK: &str = "# skyhop path ";

/// Columns of a path file. Items of lists are separated by spaces; an event is `t_ns:kind:hop:outage_ns`, with an empty
/// hop for the whole path.
pub(crate) const COLUMNS: &str =
    "t_ns,nodes,hop_delay_ns,delay_ns,delay_back_ns,rate_bps,loss,events";
/// Columns that follow [`COLUMNS`] if the directions differ in rate or loss.
pub(crate) const BACK_COLUMNS: &str = ",rate_back_bps,loss_back";
/// Maximum number of frames: more than the longest measurement becomes, at up to two frames per sample.
const MOST_FRAMES: usize = 3_000_000;

/// Parse the header from the rest of the first line.
pub(super) fn parse_header(json: &str) -> Result<PathHeader, String> {
    let header: PathHeader = serde_json::from_str(json)
        .map_err(|e| format!("the header: {}", one_line(&e.to_string())))?;
    match header.schema {
        SCHEMA_VERSION => Ok(header),
        found => Err(format!("version {found}, but this skyhop reads {SCHEMA_VERSION}")),
    }
}

/// Parse the path from the lines after the first.
pub(super) fn parse(
    mut lines: Lines<impl BufRead>,
    header: PathHeader,
) -> Result<PathTrace, ImportError> {
    match lines.next()? {
        Some(line) if line.text.strip_suffix(BACK_COLUMNS).unwrap_or(line.text) == COLUMNS => {}
        Some(line) => return Err(line.wrong(format!("expected the columns {COLUMNS}"))),
        None => return Err(ImportError::whole(format!("it ends before the columns {COLUMNS}"))),
    }
    let mut frames = Vec::new();
    while let Some(line) = lines.next()? {
        if frames.len() == MOST_FRAMES {
            return Err(line.wrong(format!("more than {MOST_FRAMES} frames")));
        }
        frames.push(parse_frame(line.text).map_err(|what| line.wrong(what))?);
    }
    let trace = PathTrace { header, frames };
    trace.validate()?;
    Ok(trace)
}

/// Parse a non-negative integer that fits into a path file's columns, which are signed.
fn parse_whole(text: &str, what: &str) -> Result<u64, String> {
    let value: i64 = parse_number(text, what)?;
    u64::try_from(value).map_err(|_| format!("{what} is {value}; expected 0 or more"))
}

fn parse_frame(text: &str) -> Result<Frame, String> {
    let fields: Vec<&str> = text.split(',').collect();
    let (fields, [rate_back, loss_back]) = match fields[..] {
        [.., rate_back, loss_back] if fields.len() == 10 => (&fields[..8], [rate_back, loss_back]),
        _ => (&fields[..], [""; 2]),
    };
    let &[at, nodes, hops, delay, delay_back, rate, loss, events] = fields else {
        let found = fields.len();
        return Err(format!("{found} fields, expected 8: {COLUMNS}; is it truncated?"));
    };
    let rate_of = |text: &str, what: &str| {
        optional(text, |text| Ok(Rate::from_bits_per_second(parse_whole(text, what)?)))
    };
    let loss_of =
        |text: &str, what: &str| optional(text, |text| parse_between(text, what, (0.0, 1.0)));
    let duration = |text: &str, what: &str| {
        optional(text, |text| Ok(Duration::from_nanos(parse_whole(text, what)?)))
    };
    Ok(Frame {
        at: Instant::from_nanos(parse_whole(at, "t_ns")?),
        nodes: list(nodes, |text| parse_number(text, "nodes"))?,
        hop_delays: list(hops, |text| {
            Ok(Duration::from_nanos(parse_whole(text, "hop_delay_ns")?))
        })?,
        delay: duration(delay, "delay_ns")?,
        delay_back: duration(delay_back, "delay_back_ns")?,
        rate: rate_of(rate, "rate_bps")?,
        rate_back: rate_of(rate_back, "rate_back_bps")?,
        loss: loss_of(loss, "loss")?,
        loss_back: loss_of(loss_back, "loss_back")?,
        events: list(events, parse_event)?,
    })
}

fn parse_event(text: &str) -> Result<PathEvent, String> {
    let fields: Vec<&str> = text.split(':').collect();
    let [at, kind, hop, outage] = fields[..] else {
        return Err(format!("the event {} is not t_ns:kind:hop:outage_ns", Quoted(text)));
    };
    Ok(PathEvent {
        at: Instant::from_nanos(parse_whole(at, "an event's t_ns")?),
        kind: kind.parse().map_err(|_| format!("{} is not a kind of event", Quoted(kind)))?,
        hop: optional(hop, parse_hop)?,
        outage: Duration::from_nanos(parse_whole(outage, "an event's outage_ns")?),
    })
}

fn parse_hop(text: &str) -> Result<u16, String> {
    let hop: i16 = parse_number(text, "an event's hop")?;
    u16::try_from(hop).map_err(|_| format!("an event's hop is {hop}; expected 0 or more"))
}

fn optional<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(' ').filter(|item| !item.is_empty()).map(parse).collect()
}
