//! Output of ping on Windows, in any of its languages: a header, a line for each probe, an empty line, statistics.
//!
//! A line with a time ("Zeit=14ms", "time<1ms") is an answer; any other line between the header and the empty line is
//! a lost probe. The output has no timestamps. Unless an interval is given, a probe is assumed to be sent 1 s after
//! the previous one if the target or a router answered that one, and otherwise at once after its timeout of 4 s.

use std::io::BufRead;

use skyhop_units::Duration;

use super::MeasuredOptions;
use super::lines::{ImportError, Line, Lines, parse_between};
use super::probes::{LONGEST_RTT_MS, Probe, Series};

const AFTER_AN_ANSWER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(4);
/// Round trip assumed for "<1ms", ms.
const BELOW_ONE_MS: f64 = 0.5;

/// Whether a log that begins with this line is from Windows: with the header, or cut after it.
pub(super) fn begins_with(text: &str) -> bool {
    time_of(text).is_some() && text.contains("TTL=") || is_header(text)
}

/// Whether the line is the header "Pinging example.net [192.0.2.1] with 32 bytes of data:", in any language.
fn is_header(text: &str) -> bool {
    let names_a_size = text.split(' ').any(|word| word.parse::<u16>().is_ok());
    text.ends_with(':') && names_a_size
}

/// Parse a log whose first line has been read already.
pub(super) fn series(
    first: &str,
    mut lines: Lines<impl BufRead>,
    options: &MeasuredOptions,
) -> Result<Series, ImportError> {
    let mut log = Log { interval: options.interval, ..Log::default() };
    if !is_header(first) {
        log.parse_line(Line { number: 1, text: first })?;
    }
    // Some versions print an empty line after the header.
    let mut is_over = false;
    while let Some(line) = lines.next()? {
        if line.text.is_empty() {
            is_over = log.has_begun();
        } else if !is_over {
            log.parse_line(line)?;
        } else if begins_with(line.text) {
            return Err(line.wrong("another ping begins here; give each a file of its own"));
        }
    }
    if log.probes.is_empty() {
        return Err(ImportError::whole("there is no answer, a line such as \"time=14ms TTL=56\""));
    }
    let Log { probes, lost, .. } = log;
    Ok(Series { probes, lost_after: lost, losses_known: true, unix: false })
}

#[derive(Default)]
struct Log {
    interval: Option<Duration>,
    next_ns: i64,
    /// Probes lost since the last answered one.
    lost: u64,
    probes: Vec<Probe>,
}

impl Log {
    fn has_begun(&self) -> bool {
        self.next_ns > 0
    }

    fn parse_line(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        line.has_room(self.probes.len())?;
        let sent_ns = self.next_ns;
        let mut took = AFTER_AN_ANSWER;
        match time_of(line.text) {
            Some(time) => {
                let rtt_ms = rtt_ms(time).map_err(|what| line.wrong(what))?;
                let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
                self.probes.push(Probe::symmetric(sent_ns, rtt, self.lost));
                self.lost = 0;
            }
            // The ICMP error of a router begins with its address and a colon; a timeout does not.
            None => {
                self.lost += 1;
                took = if line.text.contains(": ") { AFTER_AN_ANSWER } else { TIMEOUT };
            }
        }
        self.next_ns += self.interval.unwrap_or(took).as_nanos() as i64;
        Ok(())
    }
}

/// Return the text from "=" or "<" up to "ms", such as "=14" or "<1"; "Minimum = 14ms" does not match because of
/// the blank.
fn time_of(text: &str) -> Option<&str> {
    text.match_indices("ms").find_map(|(end, _)| {
        let before = text[..end].trim_end_matches([' ', '\u{a0}', '\u{fffd}']);
        let sign = before.rfind(['=', '<'])?;
        let number = &before[sign + 1..];
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then(|| &before[sign..])
    })
}

fn rtt_ms(time: &str) -> Result<f64, String> {
    match time.strip_prefix('=') {
        Some(number) => parse_between(number, "the time", (0.0, LONGEST_RTT_MS)),
        None => Ok(BELOW_ONE_MS),
    }
}
