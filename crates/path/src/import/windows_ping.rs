//! Output of ping on Windows, in any of its languages: a header, a line for each probe, an empty line, statistics.
//!
//! A line with a time ("Zeit=14ms", "time<1ms", "время=14мс") is an answer; any other line between the header and the
//! empty line is a lost probe. Another header begins another run.
//!
//! A script may put times before the lines. Without them, a run counts as following at once, and unless an interval is
//! given, a probe is assumed to be sent 1 s after the previous one if the target or a router answered that one, and
//! otherwise at once after its timeout of 4 s.

use std::io::BufRead;
use std::net::IpAddr;

use skyhop_units::Duration;

use super::MeasuredOptions;
use super::account::Account;
use super::lines::{ImportError, Line, Lines, parse_between};
use super::probes::{LONGEST_RTT_MS, Probe, Series};
use super::stamps::{self, Clock};

const AFTER_AN_ANSWER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(4);
/// Round trip assumed for "<1ms", ms.
const BELOW_ONE_MS: f64 = 0.5;

/// Whether a log that begins with this line is from Windows: with the header, or cut after it.
pub(super) fn begins_with(text: &str) -> bool {
    time_of(text).is_some() && text.contains("TTL=") || is_header(text)
}

/// Whether a log is from Windows if a line after other lines is this one: an answer, or a header that has an address.
pub(super) fn is_certain(text: &str) -> bool {
    let is_address = |word: &str| word.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    begins_with(text) && (!is_header(text) || text.split(' ').any(is_address))
}

/// Whether the line is the header "Pinging example.net [192.0.2.1] with 32 bytes of data:", in any language.
fn is_header(text: &str) -> bool {
    let names_a_size = text.split(' ').any(|word| word.parse::<u16>().is_ok());
    text.ends_with(':') && names_a_size
}

/// Parse a log whose first line has been read already, and perhaps lines before that `account` counts.
pub(super) fn series(
    (number, first): (usize, String),
    mut lines: Lines<impl BufRead>,
    options: &MeasuredOptions,
    mut account: Account,
) -> Result<Series, ImportError> {
    let mut log = Log { interval: options.interval, ..Log::default() };
    if !is_header(stamps::split(&first).1) {
        log.parse_line(Line { number, text: &first, is_open: false })?;
    }
    // Some versions print an empty line after the header.
    let (mut is_over, mut run_begin_ns, mut runs) = (false, 0, 1);
    while let Some(line) = lines.next()? {
        let (_, text) = stamps::split(line.text);
        if text.is_empty() {
            is_over = log.next_ns > run_begin_ns;
        } else if is_over && begins_with(text) {
            (is_over, run_begin_ns) = (false, log.next_ns);
            log.after_pause = log.clock.has_times();
            runs += 1;
            if !is_header(text) {
                log.parse_line(line)?;
            }
        } else if !is_over {
            log.parse_line(line)?;
        }
    }
    if log.probes.is_empty() {
        return Err(ImportError::whole("there is no answer, a line such as \"time=14ms TTL=56\""));
    }
    let Log { probes, lost, clock, .. } = log;
    if runs > 1 {
        account.notes.push(format!("{runs} runs of ping"));
    }
    let series = Series::of(probes, clock.is_unix(), account);
    Ok(Series { lost_after: lost, losses_known: true, ..series })
}

#[derive(Default)]
struct Log {
    interval: Option<Duration>,
    clock: Clock,
    /// Whether the time before the next answer was not measured.
    after_pause: bool,
    /// Time of the next probe in a log without times, ns.
    next_ns: i64,
    /// Probes lost since the last answered one.
    lost: u64,
    probes: Vec<Probe>,
}

impl Log {
    fn parse_line(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        line.has_room(self.probes.len())?;
        let mut took = AFTER_AN_ANSWER;
        let (stamp, text) = stamps::split(line.text);
        match time_of(text) {
            Some(time) => {
                let rtt_ms = rtt_ms(time).map_err(|what| line.wrong(what))?;
                let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
                let at_ns = self.clock.at_ns(stamp).map_err(|what| line.wrong(what))?;
                let sent_ns = at_ns
                    .map_or(self.next_ns, |at_ns| at_ns.saturating_sub_unsigned(rtt.as_nanos()));
                let after_pause = std::mem::take(&mut self.after_pause);
                let probe = Probe::symmetric(sent_ns, rtt, std::mem::take(&mut self.lost));
                self.probes.push(Probe { after_pause, ..probe });
            }
            // The ICMP error of a router begins with its address and a colon; a timeout does not.
            None => {
                self.lost += 1;
                took = if text.contains(": ") { AFTER_AN_ANSWER } else { TIMEOUT };
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
