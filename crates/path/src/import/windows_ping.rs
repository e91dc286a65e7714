//! Output of ping on Windows, in any of its languages: a header, a line for each probe, an empty line, statistics.
//!
//! A line with a time ("Zeit=14ms", "time<1ms", "время=14мс") is an answer; any other line between the header and the
//! empty line is a lost probe. Another header begins another run, which counts as following at once. The output has no
//! timestamps. Unless an interval is given, a probe is assumed to be sent 1 s after
//! the previous one if the target or a router answered that one, and otherwise at once after its timeout of 4 s.

use std::io::BufRead;

use skyhop_units::Duration;

use super::MeasuredOptions;
use super::account::Account;
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
    let (mut is_over, mut run_begin_ns, mut runs) = (false, 0, 1);
    while let Some(line) = lines.next()? {
        if line.text.is_empty() {
            is_over = log.next_ns > run_begin_ns;
        } else if is_over && begins_with(line.text) {
            (is_over, run_begin_ns) = (false, log.next_ns);
            runs += 1;
            if !is_header(line.text) {
                log.parse_line(line)?;
            }
        } else if !is_over {
            log.parse_line(line)?;
        }
    }
    if log.probes.is_empty() {
        return Err(ImportError::whole("there is no answer, a line such as \"time=14ms TTL=56\""));
    }
    let Log { probes, lost, .. } = log;
    let mut account = Account::default();
    if runs > 1 {
        account.notes.push(format!("{runs} runs of ping"));
    }
    let series = Series::of(probes, false, account);
    Ok(Series { lost_after: lost, losses_known: true, ..series })
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

/// Return the text from "=" or "<" up to the unit, such as "=14" or "<1", in any language: the number is followed by a
/// word that is not the name of another value. "Minimum = 14ms" does not match because of the blank.
fn time_of(text: &str) -> Option<&str> {
    text.match_indices(['=', '<']).find_map(|(sign, _)| {
        let number = &text[sign + 1..];
        let end = number.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let after = number[end..].trim_start_matches([' ', '\u{a0}']);
        let (unit, next) = after.split_at(after.find([' ', '=', '<']).unwrap_or(after.len()));
        let is_unit = !unit.is_empty();
        (is_unit && !next.trim_start().starts_with(['=', '<'])).then(|| &text[sign..=sign + end])
    })
}

fn rtt_ms(time: &str) -> Result<f64, String> {
    match time.strip_prefix('=') {
        Some(number) => parse_between(number, "the time", (0.0, LONGEST_RTT_MS)),
        None => Ok(BELOW_ONE_MS),
    }
}
