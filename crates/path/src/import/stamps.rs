//! Times at the beginning of a log's lines: of `ping -D`, and those that `ts`, a shell or syslog put before any
//! program's lines.

use skyhop_units::UtcInstant;

const DAY_NS: i64 = 86_400_000_000_000;
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

/// Split a line into its time, if it has one, and the rest. Of several times the last one is the program's own.
pub(super) fn split(text: &str) -> (Option<Stamp>, &str) {
    let (mut found, mut rest) = (None, text.trim_start());
    while let Some((stamp, after)) = first(rest) {
        found = Some(stamp);
        rest = after.trim_start_matches([':', ' ', '\t']);
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
