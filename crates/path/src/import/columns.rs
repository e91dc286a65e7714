//! Columns of a CSV file, found by the names in its first line, in any order and among other columns.

use std::borrow::Cow;

use skyhop_model::one_line;
use skyhop_units::{Quoted, UtcInstant};

use super::AccessDirection;
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
/// Words of columns that do not hold a round trip although they are named after it.
const NO_RTT_WORDS: [&str; 14] = [
    "drop", "dropped", "loss", "lost", "rate", "jitter", "count", "seq", "id", "percent", "mdev",
    "stddev", "std", "outage",
];
const TIME_WORDS: [&str; 13] = [
    "unix",
    "time",
    "timestamp",
    "date",
    "datetime",
    "datetimestamp",
    "utc",
    "t",
    "ts",
    "epoch",
    "sent",
    "received",
    "arrived",
];
const DOWN_WORDS: [&str; 4] = ["dl", "down", "downlink", "download"];
const UP_WORDS: [&str; 4] = ["ul", "up", "uplink", "upload"];
/// Words of rates that a sender offered or a user had, which are not what the link can carry.
const OFFERED_WORDS: [&str; 7] = ["offered", "target", "send", "sent", "sender", "tx", "limit"];
/// Units of rates as names contain them, in bit/s; the first that fits counts.
const RATE_UNITS: [(&str, f64); 17] = [
    ("MB/s", 8e6),
    ("MBps", 8e6),
    ("kB/s", 8e3),
    ("bytes_per_s", 8.0),
    ("gbit", 1e9),
    ("gbps", 1e9),
    ("gb/s", 1e9),
    ("mbit", 1e6),
    ("mbps", 1e6),
    ("mb/s", 1e6),
    ("kbit", 1e3),
    ("kbps", 1e3),
    ("kb/s", 1e3),
    ("bits_per_second", 1.0),
    ("bps", 1.0),
    ("bit/s", 1.0),
    ("bits/s", 1.0),
];
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
        let names: Vec<String> =
            cells(first, separator)?.iter().map(|name| one_line(name)).collect();
        let is_name = |name: &String| name.chars().any(char::is_alphabetic);
        // The first column of a table that pandas wrote has no name.
        let is_table = names.iter().enumerate().all(|(place, name)| {
            is_name(name) || (place == 0 && name.is_empty() && names.len() > 1)
        });
        is_table.then_some(Self { separator, names })
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
    pub fn row<'t>(&self, text: &'t str) -> Result<Vec<Cow<'t, str>>, String> {
        let found = cells(text, self.separator);
        let same = |cells: &Vec<Cow<'t, str>>| cells.len() == self.names.len();
        found.filter(same).ok_or_else(|| format!("{} is not {}", Quoted(text), self.names()))
    }

    /// Whether a row holds the columns' names again, as files have to which a program appends.
    pub fn are(&self, row: &[Cow<'_, str>]) -> bool {
        self.names.iter().zip(row).all(|(name, cell)| name == cell)
    }

    /// Names of the columns that are none of `used`.
    pub fn others(&self, used: &[usize]) -> Vec<String> {
        let named = self.names.iter().enumerate();
        let left = named.filter(|(place, name)| !used.contains(place) && !name.is_empty());
        left.map(|(_, name)| name.clone()).collect()
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

    /// Column of the time.
    pub fn time(&self, taken: Option<usize>) -> Option<Column> {
        self.find(&TIME_WORDS, |place, _| Some(place) != taken)
    }

    /// Columns of the time and of the round trip, if both exist.
    pub fn round_trips(&self) -> Option<(Column, Column)> {
        let holds_rtt =
            |_, words: &[String]| !words.iter().any(|word| NO_RTT_WORDS.contains(&word.as_str()));
        let rtt = self.find(&RTT_WORDS, holds_rtt)?;
        Some((self.time(Some(rtt.index))?, rtt))
    }

    /// Columns of the one-way delays up and down next to a round trip, such as LENS' files of irtt have.
    pub fn ways(&self) -> Option<[Column; 2]> {
        let is_delay = |_, words: &[String]| {
            words.iter().all(|word| {
                UP_WORDS.contains(&word.as_str())
                    || DOWN_WORDS.contains(&word.as_str())
                    || ["owd", "delay", "latency", "ms", "us", "ns"].contains(&word.as_str())
            })
        };
        Some([self.find(&UP_WORDS, is_delay)?, self.find(&DOWN_WORDS, is_delay)?])
    }

    /// Column of the rate in a direction, or of a rate without one, and its unit in bit/s.
    pub fn rate(&self, direction: AccessDirection) -> Option<(usize, f64)> {
        // A terminal's status states the rate in use, which is not what the link can carry.
        if self.names.iter().any(|name| words(name).iter().any(|word| word == "pop")) {
            return None;
        }
        let has = |known: &[&str], words: &[String]| {
            words.iter().any(|word| known.contains(&word.as_str()))
        };
        let rates: Vec<(usize, f64, Vec<String>)> = self
            .names
            .iter()
            .enumerate()
            .filter_map(|(place, name)| Some((place, rate_unit_bps(name)?, words(name))))
            .filter(|(_, _, words)| !has(&OFFERED_WORDS, words))
            .collect();
        let (wanted, other) = match direction {
            AccessDirection::Down => (DOWN_WORDS, UP_WORDS),
            AccessDirection::Up => (UP_WORDS, DOWN_WORDS),
        };
        let in_direction = rates.iter().find(|(_, _, words)| has(&wanted, words));
        let without = || rates.iter().find(|(_, _, words)| !has(&other, words));
        let (place, unit_bps, _) = in_direction.or_else(without).or(rates.first())?;
        Some((*place, *unit_bps))
    }

    /// Direction that the name of a column says, if it says one.
    pub fn direction_of(&self, place: usize) -> Option<AccessDirection> {
        let said = words(&self.names[place]);
        let has = |known: &[&str]| said.iter().any(|word| known.contains(&word.as_str()));
        match (has(&DOWN_WORDS), has(&UP_WORDS)) {
            (true, false) => Some(AccessDirection::Down),
            (false, true) => Some(AccessDirection::Up),
            _ => None,
        }
    }

    fn find(&self, known: &[&str], fits: impl Fn(usize, &[String]) -> bool) -> Option<Column> {
        self.names.iter().enumerate().find_map(|(index, name)| {
            let said = words(name);
            let is_known = said.iter().any(|word| known.contains(&word.as_str()));
            if !is_known || !fits(index, &said) {
                return None;
            }
            let unit = said
                .iter()
                .rev()
                .find_map(|word| UNITS_NS.iter().find(|(unit, _)| word == unit).map(|(_, ns)| *ns));
            Some(Column { index, name: name.clone(), unit_ns: unit })
        })
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
        let moment: UtcInstant = text.replace(',', ".").parse().map_err(|_| wrong())?;
        Ok(moment.unix_nanos())
    }

    /// Units of the column per millisecond, for round trips; their default unit is the millisecond.
    pub fn per_ms(&self) -> f64 {
        1e6 / self.unit_ns.unwrap_or(1_000_000) as f64
    }
}

/// Split a line into cells; `None` if the CSV reader cannot.
fn cells(text: &str, separator: char) -> Option<Vec<Cow<'_, str>>> {
    if !text.contains('"') {
        return Some(text.split(separator).map(|cell| Cow::Borrowed(cell.trim())).collect());
    }
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(separator as u8)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let record = reader.records().next()?.ok()?;
    Some(record.iter().map(|cell| Cow::Owned(cell.to_owned())).collect())
}

/// Return the unit in the name of a rate, in bit/s.
fn rate_unit_bps(name: &str) -> Option<f64> {
    let plain = name.to_lowercase();
    let fits = |(unit, _): &&(&str, f64)| {
        if unit.contains('B') { name.contains(unit) } else { plain.contains(unit) }
    };
    RATE_UNITS.iter().find(fits).map(|(_, bps)| *bps)
}

/// Split a name into lower-case words: "RTT (ms)" and "rtt_ms" have the same words.
fn words(name: &str) -> Vec<String> {
    let parts = name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
}
