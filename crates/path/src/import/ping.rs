//! Output of ping (iputils, and the similar lines of BusyBox and the BSDs; for Windows see `windows_ping`).
//!
//! With `ping -D` each line states the time at which the answer arrived. Otherwise probes are assumed to have been
//! sent at equal intervals: the interval that the user gave, else the one computed from the closing statistics,
//! else 1 s. A probe whose sequence number is not answered was lost.

use std::io::BufRead;

use skyhop_units::{Duration, Quoted};

use super::lines::{ImportError, Line, Lines, parse_between, parse_number};
use super::probes::{LONGEST_RTT_MS, Probe, Series};
use super::{MeasuredOptions, windows_ping};
use crate::trace::PathTrace;

/// Default interval of ping.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);
/// Beginnings of lines without information about round trips.
const IGNORED: [&str; 8] =
    ["PING ", "---", "rtt ", "round-trip ", "pipe ", "ping: ", "WARNING: ", "^C"];

/// Parse the output of ping.
///
/// # Errors
/// A line is not from ping, is damaged, or is out of order; the error states its number.
pub fn parse_ping(log: impl BufRead, options: &MeasuredOptions) -> Result<PathTrace, ImportError> {
    series(log, options)?.into_trace("ping", options)
}

pub(super) fn series(log: impl BufRead, options: &MeasuredOptions) -> Result<Series, ImportError> {
    let mut lines = Lines::lossy(log);
    let mut log = Log::default();
    let mut has_begun = false;
    while let Some(line) = lines.next()? {
        if !has_begun && windows_ping::begins_with(line.text) {
            let first = line.text.to_owned();
            return windows_ping::series(&first, lines, options);
        }
        has_begun |= !line.text.is_empty();
        log.parse_line(line)?;
    }
    log.into_series(options)
}

/// Answer to a probe, as printed.
struct Reply {
    /// Sequence number, which continues to grow where the 16 bits in the packet wrap around.
    sequence: i64,
    /// Time of the line, ns since 1970; `None` without `ping -D`.
    unix_ns: Option<i64>,
    rtt: Duration,
}

#[derive(Default)]
struct Log {
    answers: Vec<Reply>,
    last_sequence: i64,
    /// Largest sequence number in any line, answered or not.
    greatest_sequence: i64,
    /// Number of probes sent, from the closing statistics.
    transmitted: Option<u64>,
    /// Duration of the measurement, from the closing statistics.
    took: Option<Duration>,
}

impl Log {
    fn parse_line(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        let (unix_ns, text) = split_stamp(line.text).map_err(|what| line.wrong(what))?;
        if text.contains(" bytes from ") {
            line.has_room(self.answers.len())?;
            return self.parse_reply(unix_ns, text).map_err(|what| line.wrong(what));
        }
        if let Some((transmitted, rest)) = text.split_once(" packets transmitted") {
            return self.parse_statistics(transmitted, rest).map_err(|what| line.wrong(what));
        }
        // Lines of lost probes; "From " begins an ICMP error of a router.
        let is_loss = text.starts_with("no answer yet") || text.starts_with("Request timeout");
        if is_loss || text.starts_with("From ") {
            if let Some(sequence) = number_after(text, &SEQUENCE_KEYS) {
                self.extend_sequence(sequence);
            }
            return Ok(());
        }
        if text.is_empty() || IGNORED.iter().any(|begin| text.starts_with(begin)) {
            return Ok(());
        }
        Err(line.wrong(format!(
            "{} is not a line of ping; expected such as \"64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 \
             time=20.1 ms\"",
            Quoted(text)
        )))
    }

    fn parse_reply(&mut self, unix_ns: Option<i64>, text: &str) -> Result<(), String> {
        if text.contains("(DUP!)") {
            return Ok(());
        }
        let sequence = number_after(text, &SEQUENCE_KEYS).ok_or("no icmp_seq=NUMBER in it")?;
        let (_, time) = text.split_once("time=").ok_or("no time=… ms in it; is it truncated?")?;
        let (rtt_ms, _) = time.split_once(" ms").ok_or("its time=… has no ms; is it truncated?")?;
        let rtt_ms = parse_between(rtt_ms, "time", (0.0, LONGEST_RTT_MS))?;
        let sequence = self.extend_sequence(sequence);
        if let Some(last) = self.answers.last() {
            match (last.unix_ns, unix_ns) {
                (Some(last_ns), Some(ns)) if ns < last_ns => {
                    return Err("its time is before that of the answer above".to_owned());
                }
                (Some(_), None) | (None, Some(_)) => {
                    return Err("some lines have times (ping -D) and some do not".to_owned());
                }
                _ => {}
            }
        }
        let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
        self.answers.push(Reply { sequence, unix_ns, rtt });
        Ok(())
    }

    /// Extend a packet's 16-bit sequence number to the full number nearest to the previous ones, and record it.
    fn extend_sequence(&mut self, low: u16) -> i64 {
        let step = low.wrapping_sub(self.last_sequence as u16) as i16;
        self.last_sequence += i64::from(step);
        self.greatest_sequence = self.greatest_sequence.max(self.last_sequence);
        self.last_sequence
    }

    fn parse_statistics(&mut self, transmitted: &str, rest: &str) -> Result<(), String> {
        self.transmitted = Some(parse_number(transmitted, "the number of packets transmitted")?);
        if let Some((_, took)) = rest.rsplit_once("time ") {
            let took_ms = took.strip_suffix("ms").ok_or("its time does not end in ms")?;
            let took_ms: u64 = parse_number(took_ms, "the time taken")?;
            self.took = Some(Duration::from_nanos(took_ms.saturating_mul(1_000_000)));
        }
        Ok(())
    }

    fn into_series(mut self, options: &MeasuredOptions) -> Result<Series, ImportError> {
        self.answers.sort_by_key(|answer| answer.sequence);
        self.answers.dedup_by_key(|answer| answer.sequence);
        let (Some(first), Some(last)) = (self.answers.first(), self.answers.last()) else {
            return Err(ImportError::whole("there is no answer, a line with \"bytes from\""));
        };
        let (first_sequence, last_sequence) = (first.sequence, last.sequence);
        let unix = first.unix_ns.is_some();
        let interval = options.interval.unwrap_or_else(|| self.interval());
        let mut before = first_sequence - 1;
        let mut probes = Vec::with_capacity(self.answers.len());
        for answer in &self.answers {
            let sent_ns = match answer.unix_ns {
                Some(ns) => ns.saturating_sub_unsigned(answer.rtt.as_nanos()),
                None => (interval.as_nanos() as i64).saturating_mul(answer.sequence),
            };
            let lost_before = answer.sequence.abs_diff(before + 1);
            probes.push(Probe::symmetric(sent_ns, answer.rtt, lost_before));
            before = answer.sequence;
        }
        let lost_after = self.final_sequence().saturating_sub(last_sequence).max(0).unsigned_abs();
        Ok(Series { probes, lost_after, losses_known: true, unix })
    }

    /// Sequence number of the last probe sent; Linux counts from 1.
    fn final_sequence(&self) -> i64 {
        let transmitted = self.transmitted.and_then(|count| i64::try_from(count).ok());
        self.greatest_sequence.max(transmitted.unwrap_or(0))
    }

    fn interval(&self) -> Duration {
        match (self.took, self.transmitted) {
            (Some(took), Some(transmitted)) if transmitted > 1 && took > Duration::ZERO => {
                took / (transmitted - 1)
            }
            _ => USUAL_INTERVAL,
        }
    }
}

const SEQUENCE_KEYS: [&str; 4] = ["icmp_seq=", "icmp_req=", "icmp_seq ", " seq="];

/// Return the number after the first of `keys` that the text contains.
fn number_after(text: &str, keys: &[&str]) -> Option<u16> {
    let (_, after) = keys.iter().find_map(|key| text.split_once(key))?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

/// Split a line into the time of `ping -D` in ns since 1970, if it has one, and the rest.
fn split_stamp(text: &str) -> Result<(Option<i64>, &str), String> {
    let Some(bracketed) = text.strip_prefix('[') else { return Ok((None, text)) };
    let wrong =
        || format!("{} does not begin with a time such as [1700000000.123456]", Quoted(text));
    let (stamp, rest) = bracketed.split_once("] ").ok_or_else(wrong)?;
    let (seconds, fraction) = stamp.split_once('.').ok_or_else(wrong)?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds: u32 = seconds.parse().map_err(|_| wrong())?;
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    Ok((Some(i64::from(seconds) * 1_000_000_000 + nanoseconds), rest))
}
