//! Output of ping (iputils in any language, and the similar lines of BusyBox, the BSDs and fping; for Windows see
//! `windows_ping`).
//!
//! A line with a sequence number is an answer if a number with a unit follows, such as "time=20.1 ms", and otherwise
//! a loss. Lines without a sequence number are the header, the closing statistics, or passed over and counted: what
//! ping says in between, and what a script writes.
//!
//! With `ping -D`, or times that another program put before the lines, each line states the time at which the answer
//! arrived. Otherwise probes are assumed to have been sent at equal intervals: the interval that the user gave, else
//! the one computed from the closing statistics, else 1 s. A probe whose sequence number is not answered was lost.
//!
//! A log may hold several runs of ping one after another. The time between two runs was not measured; in logs
//! without times, one run follows the other at once.

use std::collections::HashSet;
use std::io::BufRead;

use skyhop_units::{Duration, Quoted};

use super::account::Account;
use super::lines::{ImportError, Line, Lines, parse_number};
use super::probes::{LONGEST_RTT_MS, Probe, Series};
use super::stamps::{self, Stamp};
use super::{Imported, MeasuredOptions, windows_ping};

/// Default interval of ping.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);
const SECOND_NS: i64 = 1_000_000_000;
/// Time by which a later probe's computed sending time may precede that of an earlier one, ns.
const TOLERANCE_NS: i64 = 1_000_000;
/// Number of probes by which a sequence number may jump where its 16 bits wrap around; with a longer jump, another run
/// has begun.
const LONGEST_WRAP: i16 = 4_096;
/// Largest number of probes of a run: three years of ten per second.
const MOST_LOST: u64 = 1_000_000_000;

/// Parse the output of ping.
///
/// # Errors
/// A line with an answer is damaged or out of order (the error states its number), or there is no answer.
pub fn parse_ping(log: impl BufRead, options: &MeasuredOptions) -> Result<Imported, ImportError> {
    series(log, options)?.into_path("ping", options)
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
    /// Time of the line in ns; `None` in a log without times.
    at_ns: Option<i64>,
    rtt: Duration,
}

/// Run of ping: from its header, or from the first answer of a log without headers.
#[derive(Default)]
struct Run {
    has_header: bool,
    answers: Vec<Reply>,
    /// Sequence numbers of the answers.
    answered: HashSet<i64>,
    last_sequence: i64,
    /// Largest sequence number in any line, answered or not.
    greatest_sequence: Option<i64>,
    /// Number of probes sent, from the closing statistics.
    transmitted: Option<u64>,
    /// Duration of the run, from the closing statistics.
    took: Option<Duration>,
}

#[derive(Default)]
struct Log {
    runs: Vec<Run>,
    count: usize,
    /// Whether a line with three dashes has begun the closing statistics.
    is_closing: bool,
    last: Option<Stamp>,
    /// Whether all times count from 1970.
    is_unix: bool,
    /// Whether a time of the log has a fraction of a second.
    has_fractions: bool,
    /// Error of the preceding line. The last line of a log may be cut: it is passed over.
    damaged: Option<ImportError>,
    account: Account,
}

impl Log {
    fn parse_line(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        let (stamp, text) = stamps::split(line.text);
        if line.text.is_empty() {
            return Ok(());
        }
        if let Some(damaged) = self.damaged.take() {
            return Err(damaged);
        }
        let Some((sequence, rest)) = sequence(text) else {
            self.parse_other(line, text);
            return Ok(());
        };
        match round_trip(rest) {
            Ok(Some(rtt)) => {
                line.has_room(self.count)?;
                if !text.contains("(DUP!)") {
                    self.answer(sequence, stamp, rtt).map_err(|what| line.wrong(what))?;
                }
            }
            Ok(None) if text.contains(" bytes from ") => {
                self.damaged = Some(line.wrong("no time=… in it; is it truncated?"));
            }
            Ok(None) => {
                self.run().extend_sequence(sequence);
            }
            Err(what) => self.damaged = Some(line.wrong(what)),
        }
        Ok(())
    }

    /// Parse a line without a sequence number.
    fn parse_other(&mut self, line: Line<'_>, text: &str) {
        if text.starts_with("PING ") {
            self.is_closing = false;
            self.runs.push(Run { has_header: true, ..Run::default() });
        } else if text.starts_with("---") {
            self.is_closing = true;
        } else if text.contains(" packets transmitted") || (self.is_closing && text.contains('%')) {
            self.is_closing = true;
            self.run().take_statistics(text);
        } else if !self.is_closing && !text.is_empty() && !text.starts_with("^C") {
            self.account.pass_over(line);
        }
    }

    /// The current run; the first if none has begun.
    fn run(&mut self) -> &mut Run {
        if self.runs.is_empty() {
            self.runs.push(Run::default());
        }
        self.runs.last_mut().expect("a run was pushed")
    }

    fn answer(&mut self, low: u16, stamp: Option<Stamp>, rtt: Duration) -> Result<(), String> {
        if self.count > 0 && self.last.is_some() != stamp.is_some() {
            return Err("some lines have times (ping -D) and some do not".to_owned());
        }
        let at_ns = stamp.map(|stamp| self.arrival_ns(stamp)).transpose()?;
        self.is_closing = false;
        let has_fractions = self.has_fractions;
        if self.run().is_another(low, at_ns, rtt, has_fractions) {
            self.runs.push(Run::default());
        }
        self.count += 1;
        let run = self.run();
        let sequence = run.extend_sequence(low);
        run.answered.insert(sequence);
        run.answers.push(Reply { sequence, at_ns, rtt });
        Ok(())
    }

    /// Return the time of a line in ns, which grows also where a stamp without a date or year repeats.
    fn arrival_ns(&mut self, mut stamp: Stamp) -> Result<i64, String> {
        if let Some(last) = self.last
            && stamp.ns < last.ns
        {
            let Some(period_ns) = stamp.period_ns else {
                return Err("its time is before that of the answer above".to_owned());
            };
            stamp.ns += ((last.ns - stamp.ns - 1) / period_ns + 1) * period_ns;
        }
        self.is_unix = stamp.period_ns.is_none();
        self.has_fractions |= stamp.ns % SECOND_NS != 0;
        self.last = Some(stamp);
        Ok(stamp.ns)
    }

    fn into_series(mut self, options: &MeasuredOptions) -> Result<Series, ImportError> {
        if self.count == 0 {
            return Err(self.damaged.take().unwrap_or_else(|| self.without_answers()));
        }
        let counts_from = i64::from(!self.runs.iter().any(Run::has_zero));
        let is_unix = self.last.is_some() && self.is_unix;
        let (mut probes, mut lost, mut begin_ns) = (Vec::with_capacity(self.count), 0, 0);
        let runs = self.runs.iter().filter(|run| !run.is_empty()).count();
        for (index, mut run) in self.runs.into_iter().enumerate() {
            run.sort();
            let interval = options.interval.unwrap_or_else(|| run.interval());
            let at = Placing { counts_from, begin_ns, interval, has_fractions: self.has_fractions };
            let mut before = counts_from - 1;
            if let Some(first) = run.answers.first().filter(|_| index == 0 && !run.has_header) {
                before = first.sequence - 1;
            }
            for (place, answer) in run.answers.iter().enumerate() {
                lost += answer.sequence.abs_diff(before + 1);
                let mut probe = Probe::symmetric(at.sent_ns(&run, answer), answer.rtt, lost);
                probe.after_pause = place == 0 && !probes.is_empty() && self.last.is_some();
                probes.push(probe);
                (lost, before) = (0, answer.sequence);
            }
            let last = run.final_sequence(counts_from);
            lost += last.saturating_sub(before).max(0).unsigned_abs();
            let count = last.saturating_sub(counts_from).saturating_add(1).max(0);
            begin_ns = at.after_ns(count);
        }
        if runs > 1 {
            self.account.notes.push(format!("{runs} runs of ping"));
        }
        let account = self.account;
        Ok(Series { lost_after: lost, losses_known: true, ..Series::of(probes, is_unix, account) })
    }

    fn without_answers(&self) -> ImportError {
        let Some((line, text)) = self.account.first_passed_over() else {
            let what = "there is no answer, a line such as \"64 bytes from 192.0.2.1: icmp_seq=1 \
                        ttl=56 time=20.1 ms\"";
            return ImportError::whole(what);
        };
        let what = format!(
            "{} is not a line of ping; expected such as \"64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 \
             time=20.1 ms\"",
            Quoted(text)
        );
        ImportError::Line { line, what }
    }
}

impl Run {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.transmitted.is_none() && self.greatest_sequence.is_none()
    }

    fn has_zero(&self) -> bool {
        self.answers.iter().any(|answer| answer.sequence == 0)
    }

    /// Whether an answer belongs to another run, which began without a header: its number is not greater than the last,
    /// and it is neither late nor a duplicate.
    fn is_another(&self, low: u16, at_ns: Option<i64>, rtt: Duration, has_fractions: bool) -> bool {
        let Some(last) = self.answers.last() else { return false };
        let step = low.wrapping_sub(self.last_sequence as u16) as i16;
        if step > 0 {
            return low < self.last_sequence as u16 && step > LONGEST_WRAP;
        }
        let sent_ns = |at_ns: i64, rtt: Duration| at_ns.saturating_sub_unsigned(rtt.as_nanos());
        match (last.at_ns, at_ns) {
            (Some(last_ns), Some(ns)) => {
                let tolerance_ns = if has_fractions { TOLERANCE_NS } else { SECOND_NS };
                sent_ns(ns, rtt) > sent_ns(last_ns, last.rtt) + tolerance_ns
            }
            _ => self.answered.contains(&(self.last_sequence + i64::from(step))),
        }
    }

    /// Extend a packet's 16-bit sequence number to the full number nearest to the previous ones, and record it.
    fn extend_sequence(&mut self, low: u16) -> i64 {
        let is_first = self.greatest_sequence.is_none();
        let step = low.wrapping_sub(self.last_sequence as u16) as i16;
        self.last_sequence += if is_first { i64::from(low) } else { i64::from(step) };
        let greatest = self.greatest_sequence.unwrap_or(self.last_sequence);
        self.greatest_sequence = Some(greatest.max(self.last_sequence));
        self.last_sequence
    }

    /// Take the number of probes and the run's duration from the closing statistics, in any language: the first number
    /// of the line with a percentage, and the number at its end.
    fn take_statistics(&mut self, text: &str) {
        let digits = |c: char| c.is_ascii_digit();
        let number = |text: &str| {
            let text = text.trim_start_matches(|c| !digits(c));
            text.split(|c| !digits(c)).next()?.parse::<u64>().ok()
        };
        self.transmitted = number(text);
        let after = text.rsplit_once('%').and_then(|(_, after)| number(after));
        self.took = after.map(|ms| Duration::from_nanos(ms.saturating_mul(1_000_000)));
    }

    fn sort(&mut self) {
        self.answers.sort_by_key(|answer| answer.sequence);
        self.answers.dedup_by_key(|answer| answer.sequence);
    }

    /// Sequence number of the last probe sent; `counts_from` is that of the first.
    fn final_sequence(&self, counts_from: i64) -> i64 {
        let transmitted = self.transmitted.map_or(0, |count| count.min(MOST_LOST) as i64);
        let last = transmitted + counts_from - 1;
        self.greatest_sequence.map_or(last, |greatest| greatest.max(last))
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

/// Rules by which the answers of a run get their sending times.
struct Placing {
    counts_from: i64,
    /// Begin of the run in a log without times, ns.
    begin_ns: i64,
    interval: Duration,
    has_fractions: bool,
}

impl Placing {
    fn sent_ns(&self, run: &Run, answer: &Reply) -> i64 {
        let Some(at_ns) = answer.at_ns else {
            return self.after_ns(answer.sequence - self.counts_from);
        };
        let sent_ns = at_ns.saturating_sub_unsigned(answer.rtt.as_nanos());
        match (run.answers.first(), run.answers.last()) {
            // Times in whole seconds do not order several answers of a second: their numbers do.
            (Some(first), Some(last)) if !self.has_fractions && last.sequence > first.sequence => {
                let span_ns = last.at_ns.unwrap_or(0).saturating_sub(first.at_ns.unwrap_or(0));
                let share = (answer.sequence - first.sequence) as f64
                    / (last.sequence - first.sequence) as f64;
                let first_ns = first.at_ns.unwrap_or(0);
                first_ns.saturating_add((span_ns as f64 * share) as i64)
            }
            _ => sent_ns,
        }
    }

    fn after_ns(&self, probes: i64) -> i64 {
        let interval_ns = i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX);
        self.begin_ns.saturating_add(interval_ns.saturating_mul(probes))
    }
}

const SEQUENCE_KEYS: [&str; 5] = ["icmp_seq=", "icmp_req=", "icmp_seq ", " seq=", " : ["];

/// Return the sequence number of a line and the text after it.
fn sequence(text: &str) -> Option<(u16, &str)> {
    let (_, after) = SEQUENCE_KEYS.iter().find_map(|key| text.split_once(key))?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    // fping counts on after 16 bits.
    Some((after[..end].parse::<u64>().ok()? as u16, &after[end..]))
}

/// Return the round trip after a sequence number: `ttl=56 time=20.1 ms` in any language, or fping's
/// `], 64 bytes, 20.1 ms (20.1 avg, 0% loss)`; `None` if there is none.
fn round_trip(text: &str) -> Result<Option<Duration>, String> {
    let value = if let Some(fping) = text.strip_prefix("], ") {
        let Some((_, value)) = fping.split_once(" bytes, ") else { return Ok(None) };
        value
    } else {
        let Some((key, value)) = text.rsplit_once(['=', '<']) else { return Ok(None) };
        if ["ttl", "hlim"].iter().any(|name| key.to_lowercase().ends_with(name)) {
            return Err("no time=… in it; is it truncated?".to_owned());
        }
        value.trim_start()
    };
    let end =
        value.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    if unit.trim().is_empty() {
        return Err("its time=… has no unit, such as ms; is it truncated?".to_owned());
    }
    let rtt_ms: f64 = parse_number(&number.replace(',', "."), "time")?;
    if !(0.0..=LONGEST_RTT_MS).contains(&rtt_ms) {
        return Err(format!("time is {rtt_ms}; expected 0 to {LONGEST_RTT_MS}"));
    }
    Ok(Some(Duration::from_secs_f64(rtt_ms / 1e3)))
}
