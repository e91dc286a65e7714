//! What ping of Windows prints, in any of its languages: a header, a line for each probe, an empty
//! line, statistics. A line with a time ("Zeit=14ms", "time<1ms") is an answer; any other between
//! header and empty line is a lost probe.
//!
//! It tells no times of its own. The next probe follows 1 s after one that was answered, by whomever,
//! and at once after a timeout of 4 s, unless an interval is given.

use std::io::BufRead;

use skyhop_units::Duration;

use super::MeasuredOptions;
use super::lines::{ImportError, Line, Lines, parse_between};
use super::probes::{LONGEST_RTT_MS, Probe, Series};

const AFTER_AN_ANSWER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(4);
/// What "<1ms" is taken for.
const BELOW_ONE_MS: f64 = 0.5;

/// Whether a log that begins like this is one of Windows: with the header, or cut after it.
pub(super) fn begins_with(text: &str) -> bool {
    time_of(text).is_some() && text.contains("TTL=") || is_header(text)
}

/// "Pinging example.net [192.0.2.1] with 32 bytes of data:", whatever the language.
fn is_header(text: &str) -> bool {
    let names_a_size = text.split(' ').any(|word| word.parse::<u16>().is_ok());
    text.ends_with(':') && names_a_size
}

/// The rest of a log, behind its first line.
pub(super) fn series(
    first: &str,
    mut lines: Lines<impl BufRead>,
    options: &MeasuredOptions,
) -> Result<Series, ImportError> {
    let mut log = Log { interval: options.interval, ..Log::default() };
    if !is_header(first) {
        log.take(Line { number: 1, text: first })?;
    }
    // Some versions set the header off by an empty line.
    let mut is_over = false;
    while let Some(line) = lines.next()? {
        if line.text.is_empty() {
            is_over = log.has_begun();
        } else if !is_over {
            log.take(line)?;
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
    /// Since the last answer.
    lost: u64,
    probes: Vec<Probe>,
}

impl Log {
    fn has_begun(&self) -> bool {
        self.next_ns > 0
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        line.has_room(self.probes.len())?;
        let sent_ns = self.next_ns;
        let mut took = AFTER_AN_ANSWER;
        match time_of(line.text) {
            Some(time) => {
                let rtt_ms = rtt_ms(time).map_err(|what| line.wrong(what))?;
                let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
                self.probes.push(Probe::halved(sent_ns, rtt, self.lost));
                self.lost = 0;
            }
            // A router's word has its address and a colon in front; a timeout has not.
            None => {
                self.lost += 1;
                took = if line.text.contains(": ") { AFTER_AN_ANSWER } else { TIMEOUT };
            }
        }
        self.next_ns += self.interval.unwrap_or(took).as_nanos() as i64;
        Ok(())
    }
}

/// What stands between "=" or "<" and "ms", such as "=14" or "<1"; "Minimum = 14ms" has a blank there.
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
