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
use super::stamps::{self, Clock, Stamp};
use super::{Imported, MeasuredOptions, windows_ping};

/// Default interval of ping.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);
const SECOND_NS: i64 = 1_000_000_000;
/// Time by which a later probe's computed sending time may precede that of an earlier one, ns.
const TOLERANCE_NS: i64 = 1_000_000;
/// Number of probes by which a sequence number may jump where its 16 bits wrap around; with a longer jump, another run
/// has begun.
const LONGEST_WRAP: i64 = 4_096;
/// Number of answers per damaged line that is passed over; a log with more damaged lines is refused.
const ANSWERS_PER_DAMAGED: usize = 10;
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
        let (_, text) = stamps::split(line.text);
        let is_windows = if has_begun {
            log.runs.is_empty() && windows_ping::is_certain(text)
        } else {
            windows_ping::begins_with(text)
        };
        if is_windows {
            let first = (line.number, line.text.to_owned());
            return windows_ping::series(first, lines, options, log.account);
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
    /// Round trip; `None` if the line does not state a possible one, so that the probe is neither a sample nor lost.
    rtt: Option<Duration>,
}

/// Run of ping: from its header, or from the first answer of a log without headers.
#[derive(Default)]
struct Run {
    has_header: bool,
    answers: Vec<Reply>,
    /// Sequence numbers of the answers.
    answered: HashSet<i64>,
    last_sequence: i64,
    /// Latest sending time of an answered probe, ns; `None` in a log without times.
    latest_sent_ns: Option<i64>,
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
    clock: Clock,
    /// Error of the first damaged line, and the number of damaged lines.
    damaged: Option<ImportError>,
    damaged_lines: usize,
    account: Account,
}

impl Log {
    fn parse_line(&mut self, line: Line<'_>) -> Result<(), ImportError> {
        let (stamp, text) = stamps::split(line.text);
        if line.text.is_empty() {
            return Ok(());
        }
        let Some((sequence, rest)) = sequence(text) else {
            self.parse_other(line, text);
            return Ok(());
        };
        let rtt = match round_trip(rest) {
            Ok(None) if text.contains(" bytes from ") => {
                Err("no time=… in it; is it truncated?".to_owned())
            }
            Ok(None) => {
                self.lost(sequence);
                return Ok(());
            }
            found => found,
        };
        line.has_room(self.count)?;
        match rtt {
            Ok(_) if text.contains("(DUP!)") => Ok(()),
            Ok(rtt) => {
                let is_marked = !rest.starts_with(']') && rest.contains(['(', '（']);
                self.answer(sequence, stamp, rtt, is_marked).map_err(|what| line.wrong(what))
            }
            Err(what) => {
                self.damaged.get_or_insert_with(|| line.wrong(what));
                self.damaged_lines += 1;
                self.account.pass_over(line);
                if self.count > 0 && self.clock.has_times() == stamp.is_some() {
                    self.answer(sequence, stamp, None, true).map_err(|what| line.wrong(what))?;
                }
                Ok(())
            }
        }
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

    /// Record a line that says that a probe was not answered.
    fn lost(&mut self, low: u16) {
        if self.run().has_answered(low) {
            self.runs.push(Run::default());
        }
        self.run().extend_sequence(low);
    }

    /// Record an answer; `is_marked` is whether ping adds a remark to it, such as that it is a duplicate.
    fn answer(
        &mut self,
        low: u16,
        stamp: Option<Stamp>,
        rtt: Option<Duration>,
        is_marked: bool,
    ) -> Result<(), String> {
        let at_ns = self.clock.at_ns(stamp)?;
        self.is_closing = false;
        let has_fractions = self.clock.has_fractions;
        if is_marked && at_ns.is_none() && self.run().has_answered(low) {
            return Ok(());
        }
        if self.run().is_another(low, at_ns, rtt, has_fractions) {
            self.runs.push(Run::default());
        }
        self.count += usize::from(rtt.is_some());
        let run = self.run();
        let sequence = run.extend_sequence(low);
        run.answered.insert(sequence);
        run.latest_sent_ns = run.latest_sent_ns.max(sent_ns(at_ns, rtt));
        run.answers.push(Reply { sequence, at_ns, rtt });
        Ok(())
    }

    fn into_series(mut self, options: &MeasuredOptions) -> Result<Series, ImportError> {
        if self.count == 0 {
            return Err(self.damaged.take().unwrap_or_else(|| self.without_answers()));
        }
        if let Some(damaged) = self.damaged.take()
            && self.damaged_lines > 1 + self.count / ANSWERS_PER_DAMAGED
        {
            return Err(damaged);
        }
        let counts_from = i64::from(!self.runs.iter().any(Run::has_zero));
        let Clock { has_fractions, .. } = self.clock;
        let (has_times, is_unix) = (self.clock.has_times(), self.clock.is_unix());
        let (mut probes, mut lost, mut begin_ns) = (Vec::with_capacity(self.count), 0, 0);
        let runs = self.runs.iter().filter(|run| !run.is_empty()).count();
        for (index, mut run) in self.runs.into_iter().enumerate() {
            run.sort();
            let interval = options.interval.unwrap_or_else(|| run.interval());
            let at = Placing { counts_from, begin_ns, interval, has_fractions };
            let mut before = counts_from - 1;
            if let Some(first) = run.answers.first().filter(|_| index == 0 && !run.has_header) {
                before = first.sequence - 1;
            }
            let mut is_first = true;
            for answer in &run.answers {
                lost += answer.sequence.abs_diff(before + 1);
                before = answer.sequence;
                let Some(rtt) = answer.rtt else { continue };
                let mut probe = Probe::symmetric(at.sent_ns(&run, answer), rtt, lost);
                probe.after_pause = is_first && !probes.is_empty() && has_times;
                probes.push(probe);
                (lost, is_first) = (0, false);
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
    fn is_another(
        &self,
        low: u16,
        at_ns: Option<i64>,
        rtt: Option<Duration>,
        has_fractions: bool,
    ) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        let sequence = self.extended(low);
        let is_repeated = self.answered.contains(&sequence);
        if sequence > self.last_sequence && !is_repeated {
            let jump = sequence - self.last_sequence;
            return low < self.last_sequence as u16 && jump > LONGEST_WRAP;
        }
        match (self.latest_sent_ns, sent_ns(at_ns, rtt)) {
            (Some(latest_ns), Some(sent_ns)) => {
                sent_ns > latest_ns + if has_fractions { TOLERANCE_NS } else { SECOND_NS }
            }
            _ => is_repeated,
        }
    }

    /// Full sequence number nearest to the previous ones for the 16 bits in a packet.
    fn extended(&self, low: u16) -> i64 {
        if self.greatest_sequence.is_none() {
            return i64::from(low);
        }
        self.last_sequence + i64::from(low.wrapping_sub(self.last_sequence as u16) as i16)
    }

    fn has_answered(&self, low: u16) -> bool {
        self.answered.contains(&self.extended(low))
    }

    /// Extend a packet's 16-bit sequence number, and record it.
    fn extend_sequence(&mut self, low: u16) -> i64 {
        self.last_sequence = self.extended(low);
        let greatest = self.greatest_sequence.unwrap_or(self.last_sequence);
        self.greatest_sequence = Some(greatest.max(self.last_sequence));
        self.last_sequence
    }

    /// Take the number of probes and the run's duration from the closing statistics, in any language: the first number
    /// of the line with a percentage, and the last number after it, if a unit follows ("time 9012ms").
    fn take_statistics(&mut self, text: &str) {
        let is_digit = |c: char| c.is_ascii_digit();
        let first = text.split(|c| !is_digit(c)).find(|word| !word.is_empty());
        self.transmitted = first.and_then(|word| word.parse().ok());
        let after = text.rsplit_once('%').and_then(|(_, after)| {
            let number = after.trim_end_matches(|c| !is_digit(c));
            let ms = number.rsplit(|c| !is_digit(c)).next()?;
            // In "%50 lost", as some languages write it, the number after the sign is the percentage.
            let is_time = ms.len() < number.len() && number.len() < after.trim_end().len();
            ms.parse::<u64>().ok().filter(|_| is_time)
        });
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

/// Sending time of a probe whose answer has a time, ns.
fn sent_ns(at_ns: Option<i64>, rtt: Option<Duration>) -> Option<i64> {
    Some(at_ns?.saturating_sub_unsigned(rtt.unwrap_or(Duration::ZERO).as_nanos()))
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
        let Some(sent_ns) = sent_ns(answer.at_ns, answer.rtt) else {
            return self.after_ns(answer.sequence - self.counts_from);
        };
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
    let per_ms = match unit.trim().split([' ', '(']).next().unwrap_or_default() {
        "us" | "µs" | "usec" => 1e-3,
        "s" | "sec" => 1e3,
        _ => 1.0,
    };
    let rtt_ms = parse_number::<f64>(&number.replace(',', "."), "time")? * per_ms;
    if !(0.0..=LONGEST_RTT_MS).contains(&rtt_ms) {
        return Err(format!("time is {rtt_ms}; expected 0 to {LONGEST_RTT_MS}"));
    }
    // ping prints 0 after the clock was set back.
    if rtt_ms == 0.0 {
        return Err("time is 0, as after a step of the clock".to_owned());
    }
    Ok(Some(Duration::from_secs_f64(rtt_ms / 1e3)))
}
