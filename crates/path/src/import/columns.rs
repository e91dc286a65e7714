//! Columns of a CSV file, found by the names in its first line, in any order and among other columns.

use skyhop_model::one_line;
use skyhop_units::{Quoted, UtcInstant};

use super::lines::parse_number;

/// Separator and column names of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Columns {
    separator: char,
    names: Vec<String>,
}

/// Column of numbers: index, name, and unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Column {
    pub index: usize,
    pub name: String,
    /// Nanoseconds per unit; `None` if the name gives no unit.
    unit_ns: Option<u64>,
}

const RTT_WORDS: [&str; 4] = ["rtt", "latency", "ping", "roundtrip"];
const TIME_WORDS: [&str; 10] =
    ["unix", "time", "timestamp", "date", "datetime", "utc", "t", "sent", "received", "arrived"];
const UNITS_NS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("milliseconds", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("seconds", 1_000_000_000),
];

impl Columns {
    /// Parse the column names from the first line; `None` if that line contains numbers.
    pub fn from_header(first: &str) -> Option<Self> {
        let separator = [';', '\t', ','].into_iter().find(|mark| first.contains(*mark))?;
        let names: Vec<String> = cells(first, separator).map(one_line).collect();
        let is_name = |name: &String| name.chars().any(char::is_alphabetic);
        names.iter().all(is_name).then_some(Self { separator, names })
    }

    /// Create the columns of a table without a line of names.
    pub fn new(names: &str) -> Self {
        Self { separator: ',', names: names.split(',').map(str::to_owned).collect() }
    }

    /// Names of the columns for messages, separated by commas.
    pub fn names(&self) -> String {
        one_line(&self.names.join(","))
    }

    /// Split a row into cells; it is an error if their number differs from the number of columns.
    pub fn row<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, String> {
        let found: Vec<&str> = cells(text, self.separator).collect();
        if found.len() == self.names.len() {
            return Ok(found);
        }
        Err(format!("{} is not {}", Quoted(text), self.names()))
    }

    /// Normalise a number: if the separator is not a comma, a comma is the decimal mark.
    pub fn number(&self, cell: &str) -> String {
        if self.separator == ',' { cell.to_owned() } else { cell.replace(',', ".") }
    }

    /// Indexes of the columns with these names, if all of them exist.
    pub fn indexes_of<const N: usize>(&self, wanted: [&str; N]) -> Option<[usize; N]> {
        let same = |name: &str, other: &str| words(name) == words(other);
        let mut places = [0; N];
        for (place, wanted) in places.iter_mut().zip(wanted) {
            *place = self.names.iter().position(|name| same(name, wanted))?;
        }
        Some(places)
    }

    /// Columns of the time and of the round trip, if both exist.
    pub fn round_trips(&self) -> Option<(Column, Column)> {
        let find = |known: &[&str], taken: Option<usize>| {
            let mut named =
                self.names.iter().enumerate().filter(|(place, _)| Some(*place) != taken);
            named.find(|(_, name)| words(name).iter().any(|word| known.contains(&word.as_str())))
        };
        let column = |(place, name): (usize, &String)| {
            let said = words(name);
            let unit = said
                .iter()
                .rev()
                .find_map(|word| UNITS_NS.iter().find(|(unit, _)| word == unit).map(|(_, ns)| *ns));
            Column { index: place, name: name.clone(), unit_ns: unit }
        };
        let rtt = column(find(&RTT_WORDS, None)?);
        let time = column(find(&TIME_WORDS, Some(rtt.index))?);
        Some((time, rtt))
    }
}

impl Column {
    /// Whether the column is the time at which a probe was sent, rather than at which its answer arrived.
    pub fn is_sending(&self) -> bool {
        words(&self.name).iter().any(|word| word == "sent" || word == "send")
    }

    /// Parse a time, since 1970 or on the measurement's own clock, and return it in ns. Without a unit in the name, the
    /// magnitude of a time since 1970 determines its unit; other times are in seconds.
    pub fn time_ns(&self, text: &str) -> Result<i64, String> {
        if text.contains(':') {
            return self.civil_ns(text);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let whole: i64 = parse_number(whole, &self.name)?;
        let part: f64 = if fraction.is_empty() {
            0.0
        } else {
            parse_number(&format!("0.{fraction}"), &self.name)?
        };
        if whole < 0 || text.starts_with('-') {
            return Err(format!(
                "{} is {}; expected a time since 1970, or 0 or more",
                self.name,
                one_line(text)
            ));
        }
        let unit_ns = self.unit_ns.unwrap_or(match whole {
            100_000_000_000_000_000.. => 1,
            100_000_000_000_000.. => 1_000,
            100_000_000_000.. => 1_000_000,
            _ => 1_000_000_000,
        });
        let part_ns = (part * unit_ns as f64).round() as i64;
        Ok(whole.saturating_mul(unit_ns as i64).saturating_add(part_ns))
    }

    /// Parse a time such as "2026-05-01 12:00:00.5", in UTC unless it has a zone.
    fn civil_ns(&self, text: &str) -> Result<i64, String> {
        let wrong = || {
            let name = &self.name;
            format!("{name} has {}; expected such as 2026-05-01T12:00:00Z", Quoted(text))
        };
        let (date, time) = text.split_once([' ', 'T']).ok_or_else(wrong)?;
        let zone = if time.contains(['Z', '+', '-']) { "" } else { "Z" };
        let moment: UtcInstant = format!("{date}T{time}{zone}").parse().map_err(|_| wrong())?;
        Ok(moment.unix_nanos())
    }

    /// Units of the column per millisecond, for round trips; their default unit is the millisecond.
    pub fn per_ms(&self) -> f64 {
        1e6 / self.unit_ns.unwrap_or(1_000_000) as f64
    }
}

fn cells(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(|cell| cell.trim().trim_matches('"').trim())
}

/// Split a name into lower-case words: "RTT (ms)" and "rtt_ms" have the same words.
fn words(name: &str) -> Vec<String> {
    let parts = name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
}
