//! Times at the beginning of a log's lines: of `ping -D`, and those that `ts`, a shell or syslog put before any
//! program's lines.

use skyhop_units::UtcInstant;

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Year of times that do not state one: a leap year, so that every day of a year exists.
const A_YEAR: &str = "2000";
/// Largest number of words of a time, as in "May 27 11:23:28".
const MOST_WORDS: usize = 3;

/// Time of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Time in ns, since 1970 unless `period_ns` is given.
    pub ns: i64,
    /// Time after which the stamp repeats: a day, or a year; `None` for times since 1970.
    pub period_ns: Option<i64>,
}

/// Clock of a log's lines: their times, which grow also where a stamp without a date or year repeats.
#[derive(Default)]
pub(super) struct Clock {
    last: Option<Stamp>,
    /// Whether a line has been read.
    has_begun: bool,
    /// Whether a time of the log has a fraction of a second.
    pub has_fractions: bool,
}

impl Clock {
    /// Return the time of a line in ns, `None` in a log without times.
    pub fn at_ns(&mut self, stamp: Option<Stamp>) -> Result<Option<i64>, String> {
        if self.has_begun && self.has_times() != stamp.is_some() {
            return Err("some lines have times (ping -D) and some do not".to_owned());
        }
        self.has_begun = true;
        let Some(mut stamp) = stamp else { return Ok(None) };
        if let Some(last) = self.last
            && stamp.ns < last.ns
        {
            let Some(period_ns) = stamp.period_ns else {
                return Err("its time is before that of the answer above".to_owned());
            };
            stamp.ns += ((last.ns - stamp.ns - 1) / period_ns + 1) * period_ns;
        }
        self.has_fractions |= stamp.ns % SECOND_NS != 0;
        self.last = Some(stamp);
        Ok(Some(stamp.ns))
    }

    /// Whether the lines have times.
    pub fn has_times(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the times count from 1970.
    pub fn is_unix(&self) -> bool {
        self.last.is_some_and(|stamp| stamp.period_ns.is_none())
    }
}

/// Split a line into its time, if it has one, and the rest. Of several times the last one is the program's own.
pub(super) fn split(text: &str) -> (Option<Stamp>, &str) {
    let (mut found, mut rest) = (None, text.trim_start());
    while let Some((stamp, after)) = first(rest) {
        found = Some(stamp);
        rest = after.trim_start_matches([':', ' ', '\t']);
        rest = rest.strip_prefix("- ").or(rest.strip_prefix("| ")).unwrap_or(rest);
        rest = if rest == "-" { "" } else { rest };
    }
    (found, rest)
}

fn first(text: &str) -> Option<(Stamp, &str)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inner, rest) = bracketed.split_once(']')?;
        return Some((parse(inner.trim())?, rest));
    }
    let ends = text.match_indices([' ', '\t']).map(|(end, _)| end).chain([text.len()]);
    let ends: Vec<usize> = ends.take(MOST_WORDS + 1).collect();
    ends.into_iter().rev().find_map(|end| Some((parse(&text[..end])?, &text[end..])))
}

fn parse(text: &str) -> Option<Stamp> {
    let text = text.trim().trim_end_matches([':', ',']);
    if !text.contains(':') {
        return since_1970_ns(text).map(|ns| Stamp { ns, period_ns: None });
    }
    let utc = |text: &str| Some(text.parse::<UtcInstant>().ok()?.unix_nanos());
    let text = text.replace(',', ".");
    if let Some(ns) = utc(&text.replacen('/', "-", 2)) {
        return Some(Stamp { ns, period_ns: None });
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(stamp) = written_for_people(&words) {
        return Some(stamp);
    }
    let (date, time, period_ns) = match words[..] {
        [time] => ("01-01".to_owned(), time, DAY_NS),
        [month, day, time] => {
            let month = 1 + MONTHS.iter().position(|name| *name == month)?;
            (format!("{month:02}-{day:0>2}"), time, 366 * DAY_NS)
        }
        _ => return None,
    };
    Some(Stamp { ns: utc(&format!("{A_YEAR}-{date}T{time}"))?, period_ns: Some(period_ns) })
}

/// Parse a date and a time as Windows writes them, such as "27.05.2026 11:23:28" or "5/27/2026 11:23:28 AM". The time
/// alone counts if the day and the month of the date cannot be told apart.
fn written_for_people(words: &[&str]) -> Option<Stamp> {
    let (date, time, half) = match *words {
        [date, time] => (date, time, ""),
        [date, time, half] => (date, time, half),
        _ => return None,
    };
    let numbers: Vec<u32> = date
        .trim_end_matches('.')
        .split(['.', '/'])
        .map(|text| text.parse().ok())
        .collect::<Option<_>>()?;
    let [first, second, year @ 1970..=2100] = numbers[..] else { return None };
    let date = match (first, second) {
        (day, month) if date.contains('.') || day > 12 => Some((day, month)),
        (month, day) if day > 12 || day == month => Some((day, month)),
        _ => None,
    };
    let (hour, rest) = time.split_once(':')?;
    let hour: u32 = match (hour.parse::<u32>().ok()?, half.to_ascii_uppercase().as_str()) {
        (hour, "") => hour,
        (hour @ 1..=12, "AM") => hour % 12,
        (hour @ 1..=12, "PM") => hour % 12 + 12,
        _ => return None,
    };
    let (prefix, period_ns) = match date {
        Some((day, month)) => (format!("{year}-{month:02}-{day:02}"), None),
        None => (format!("{A_YEAR}-01-01"), Some(DAY_NS)),
    };
    let ns = format!("{prefix}T{hour:02}:{rest}").parse::<UtcInstant>().ok()?.unix_nanos();
    Some(Stamp { ns, period_ns })
}

/// Parse seconds since 1970 with ten digits and a fraction, or milliseconds to nanoseconds by their number of digits.
fn since_1970_ns(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole_ns = whole.parse::<i64>().ok()?;
    let unit_ns = match whole.len() {
        10 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    whole_ns.checked_mul(unit_ns)?.checked_add(fraction / (1_000_000_000 / unit_ns))
}
