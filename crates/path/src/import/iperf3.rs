//! Reports of iperf3 (`--json`, `--json-stream`), one or several in a file.
//!
//! The client sends on the uplink; with -R it receives on the downlink, with --bidir it does both. A rate is that at
//! which data arrived. What a sender of UDP reports per interval is what it offered, so that the rate of the server's
//! report (`--get-server-output`) counts instead, or else the mean rate that arrived in the whole test. A sender of TCP
//! reports what it gave to its socket, so that the server's rate counts there too, if the file has it.

use std::io::BufRead;

use serde::Deserialize;
use serde_json::Value;
use skyhop_model::one_line;
use skyhop_units::Rate;

use super::account::Account;
use super::documents::documents;
use super::lines::{ImportError, MOST_SAMPLES, read_whole};
use super::rates::Rates;
use super::{AccessDirection, Imported, MeasuredOptions};

const SECOND_NS: f64 = 1e9;
/// Latest accepted time in seconds since 1970, the year 2100.
const LATEST_S: i64 = 4_102_444_800;
const LONGEST_S: f64 = 30.0 * 86_400.0;
const LARGEST_BPS: f64 = 1e15;
/// Ratio of an interval's length to the usual one, below which its rate is not used: the last interval of a test may
/// last a few microseconds.
const SHORTEST: f64 = 0.1;
/// Time by which two tests may overlap, ns: a test's begin is known to the second.
const OVERLAP_NS: i64 = 1_500_000_000;
/// Ratio of losses, in %, from which on a sender of UDP has filled the link.
const FULL_PERCENT: f64 = 1.0;

/// Interval of a report, with the rates at which data arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Begin, ns since 1970.
    pub begin_ns: i64,
    /// End, ns since 1970.
    pub end_ns: i64,
    /// Rate to the client in bit/s, if it was measured.
    pub down_bps: Option<f64>,
    /// Rate from the client in bit/s, if it was measured.
    pub up_bps: Option<f64>,
}

/// Intervals of all reports of a file, in the order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    /// The intervals, without those that iperf3 omitted (-O) and those that are too short for a rate.
    pub intervals: Vec<Interval>,
    /// Account of the file: the parts that were taken and left.
    pub account: Account,
}

/// Parse reports of iperf3 as a path with the rates of one direction.
///
/// # Errors
/// The errors of [`parse_iperf3_intervals`].
pub fn parse_iperf3(
    file: impl BufRead,
    options: &MeasuredOptions,
) -> Result<Imported, ImportError> {
    let Intervals { intervals, mut account } = parse_iperf3_intervals(file)?;
    let of = |direction: AccessDirection| {
        let rate = |interval: &Interval| match direction {
            AccessDirection::Down => interval.down_bps,
            AccessDirection::Up => interval.up_bps,
        };
        let rates = intervals.iter().filter_map(|interval| {
            let rate = Rate::from_bits_per_second(rate(interval)?.round() as u64);
            Some((interval.begin_ns, rate))
        });
        rates.collect::<Vec<_>>()
    };
    let mut direction = options.direction.unwrap_or_default();
    let (mut rates, other, name) = match direction {
        AccessDirection::Down => (of(AccessDirection::Down), of(AccessDirection::Up), "uplink"),
        AccessDirection::Up => (of(AccessDirection::Up), of(AccessDirection::Down), "downlink"),
    };
    if rates.is_empty() {
        rates = other;
        direction = direction.other();
        account.notes.push(format!("rates of the {name}"));
    } else if !other.is_empty() {
        account.unused.push(format!("rates of the {name}"));
    }
    let pauses = intervals.windows(2).any(|two| two[1].begin_ns > two[0].end_ns + OVERLAP_NS);
    if pauses {
        account.notes.push("between two reports the last rate holds".to_owned());
    }
    let end_ns = intervals.iter().map(|interval| interval.end_ns).max();
    let direction = Some(direction);
    Rates { rates, end_ns, unix: true, direction, account }.into_path("iperf3", options)
}

/// Parse reports of iperf3.
///
/// # Errors
/// The file is not what iperf3 prints, it holds no interval, or nothing states the rate at which data arrived.
pub fn parse_iperf3_intervals(file: impl BufRead) -> Result<Intervals, ImportError> {
    let bytes = read_whole(file)?;
    let mut account = Account::default();
    let reports = reports(&bytes, &mut account)?;
    let count = reports.len();
    if count > 1 {
        account.notes.push(format!("{count} reports"));
    }
    let (mut intervals, mut failures, mut tests) = (Vec::new(), Vec::new(), Vec::new());
    for report in &reports {
        let before = intervals.len();
        match report.failure() {
            Some(reason) => failures.push(reason),
            None => report.append_to(&mut intervals, &mut account)?,
        }
        tests.push(before..intervals.len());
    }
    match failures.first() {
        Some(reason) if intervals.is_empty() => {
            return Err(ImportError::whole(format!("iperf3 did not measure: {reason}")));
        }
        Some(reason) => {
            account.notes.push(format!("{} of them did not measure: {reason}", failures.len()));
        }
        None if intervals.is_empty() => {
            return Err(ImportError::whole("it holds no interval: iperf3 did not measure"));
        }
        None => {}
    }
    check_apart(tests.into_iter().map(|test| &intervals[test]))?;
    drop_short(&mut intervals, &mut account);
    intervals.sort_by_key(|interval| interval.begin_ns);
    account.taken = vec![format!("{} intervals", intervals.len())];
    let spans = intervals.iter().map(|interval| interval.end_ns.abs_diff(interval.begin_ns));
    account.span = skyhop_units::Duration::from_nanos(spans.sum());
    Ok(Intervals { intervals, account })
}

/// Drop the intervals that are much shorter than the usual one.
fn drop_short(intervals: &mut Vec<Interval>, account: &mut Account) {
    let length_ns = |interval: &Interval| interval.end_ns - interval.begin_ns;
    let mut lengths: Vec<i64> = intervals.iter().map(length_ns).collect();
    let middle = lengths.len() / 2;
    let usual_ns = *lengths.select_nth_unstable(middle).1;
    let before = intervals.len();
    intervals.retain(|interval| length_ns(interval) as f64 >= SHORTEST * usual_ns as f64);
    let dropped = before - intervals.len();
    if dropped > 0 {
        account.notes.push(format!("{dropped} too short for a rate"));
    }
}

/// Check that no two tests measured one direction at the same time: each then measured a part of the rate.
fn check_apart<'i>(tests: impl Iterator<Item = &'i [Interval]> + Clone) -> Result<(), ImportError> {
    let directions: [fn(&Interval) -> Option<f64>; 2] = [|one| one.down_bps, |one| one.up_bps];
    for rate in directions {
        let measured = tests.clone().filter(|test| test.iter().any(|one| rate(one).is_some()));
        let span = |test: &[Interval]| Some((test.first()?.begin_ns, test.last()?.end_ns));
        let mut spans: Vec<_> = measured.filter_map(span).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|two| two[1].0 < two[0].1 - OVERLAP_NS) {
            let what =
                "two of its reports measured one direction at the same time: import one of them";
            return Err(ImportError::whole(what));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Report {
    start: Start,
    #[serde(default)]
    intervals: Vec<Row>,
    #[serde(default)]
    end: End,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    server_output_json: Option<ServerOutput>,
}

/// The server's own report, inside that of a client.
#[derive(Deserialize)]
struct ServerOutput {
    #[serde(default)]
    intervals: Vec<Row>,
}

#[derive(Deserialize)]
struct Start {
    timestamp: Option<Timestamp>,
    #[serde(default)]
    test_start: TestStart,
}

#[derive(Deserialize)]
struct Timestamp {
    timesecs: i64,
}

#[derive(Deserialize, Default)]
struct TestStart {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    reverse: u8,
    #[serde(default)]
    target_bitrate: f64,
    #[serde(default)]
    num_streams: u32,
}

#[derive(Deserialize)]
struct Row {
    sum: Option<Sum>,
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    /// Begin and end in seconds since the test's; the sum of the other direction of an interval may lack them.
    #[serde(default = "unknown")]
    start: f64,
    #[serde(default = "unknown")]
    end: f64,
    /// Rate; null if the interval has no length.
    bits_per_second: Option<f64>,
    #[serde(default)]
    omitted: bool,
    sender: Option<bool>,
}

fn unknown() -> f64 {
    f64::NAN
}

/// Sums of a whole test; iperf3 before 3.8 has only `sum` for UDP, the sent rate with the ratio of losses.
#[derive(Deserialize, Default)]
struct End {
    sum_received: Option<Total>,
    sum: Option<Total>,
    sum_received_bidir_reverse: Option<Total>,
    sum_bidir_reverse: Option<Total>,
}

#[derive(Deserialize)]
struct Total {
    bits_per_second: Option<f64>,
    lost_percent: Option<f64>,
    sender: Option<bool>,
}

/// Return the reports of a file: documents, or the events of `--json-stream`.
fn reports(bytes: &[u8], account: &mut Account) -> Result<Vec<Report>, ImportError> {
    let expected = "is not what iperf3 --json prints";
    let mut reports: Vec<Value> = Vec::new();
    for mut value in documents::<Value>(bytes, expected, account)? {
        match value.get("event").and_then(Value::as_str).map(str::to_owned) {
            Some(event) => add_event(&mut reports, &event, value["data"].take()),
            None => reports.push(value),
        }
    }
    let report = |(index, value)| {
        let wrong = |error: serde_json::Error| {
            let error = one_line(&error.to_string());
            ImportError::whole(format!("report {} {expected}: {error}", index + 1))
        };
        serde_json::from_value(value).map_err(wrong)
    };
    reports.into_iter().enumerate().map(report).collect()
}

fn add_event(documents: &mut Vec<Value>, event: &str, data: Value) {
    if event == "start" {
        documents.push(serde_json::json!({"start": data, "intervals": []}));
        return;
    }
    let Some(report) = documents.last_mut() else { return };
    match event {
        "interval" => {
            if let Some(intervals) = report.get_mut("intervals").and_then(Value::as_array_mut) {
                intervals.push(data);
            }
        }
        "end" | "error" | "server_output_json" => {
            if let Some(fields) = report.as_object_mut() {
                fields.insert(event.to_owned(), data);
            }
        }
        _ => {}
    }
}

impl Report {
    /// Reason for which iperf3 measured nothing.
    fn failure(&self) -> Option<String> {
        self.error.as_str().filter(|_| self.intervals.is_empty()).map(one_line)
    }

    fn append_to(
        &self,
        intervals: &mut Vec<Interval>,
        account: &mut Account,
    ) -> Result<(), ImportError> {
        let begin_s = self.start.timestamp.as_ref().map_or(-1, |time| time.timesecs);
        if !(0..LATEST_S).contains(&begin_s) {
            return Err(ImportError::whole("its time is not between 1970 and 2100"));
        }
        if intervals.len() + self.intervals.len() > MOST_SAMPLES {
            return Err(ImportError::whole(format!("more than {MOST_SAMPLES} intervals")));
        }
        self.note_limit(account);
        let begin_ns = begin_s * SECOND_NS as i64 + self.omitted_ns();
        let is_reverse = self.start.test_start.reverse != 0;
        for row in &self.intervals {
            let Some(sum) = row.sum.as_ref().filter(|sum| !sum.omitted) else { continue };
            let [begin_ns, end_ns] = sum.times_ns(begin_ns)?;
            let mut interval = Interval { begin_ns, end_ns, down_bps: None, up_bps: None };
            let sums = [
                Some((sum, is_reverse, false)),
                row.sum_bidir_reverse.as_ref().map(|other| (other, !is_reverse, true)),
            ];
            for (other, is_reverse, is_bidir) in sums.into_iter().flatten() {
                let Some(bps) = self.arrived_bps((sum, other), is_bidir, account)? else {
                    continue;
                };
                if !(0.0..LARGEST_BPS).contains(&bps) {
                    let what = format!("{bps} bit/s in an interval; expected 0 to {LARGEST_BPS}");
                    return Err(ImportError::whole(what));
                }
                *(if is_reverse { &mut interval.down_bps } else { &mut interval.up_bps }) =
                    Some(bps);
            }
            if interval.down_bps.or(interval.up_bps).is_some() {
                intervals.push(interval);
            }
        }
        Ok(())
    }

    /// Duration of the intervals that iperf3 omitted, if its times begin at 0 again after them, ns.
    fn omitted_ns(&self) -> i64 {
        let sums = || self.intervals.iter().filter_map(|row| row.sum.as_ref());
        let omitted_s = sums().filter(|sum| sum.omitted).map(|sum| sum.end).fold(0.0, f64::max);
        let begins_again =
            sums().find(|sum| !sum.omitted).is_some_and(|sum| sum.start < omitted_s / 2.0);
        if begins_again && omitted_s < LONGEST_S { (omitted_s * SECOND_NS) as i64 } else { 0 }
    }

    /// Remark on a rate that the user limited, and the link did not.
    fn note_limit(&self, account: &mut Account) {
        let test = &self.start.test_start;
        let lost = self.end.sum.as_ref().and_then(|total| total.lost_percent);
        let is_full = test.protocol == "UDP" && lost.is_none_or(|lost| lost >= FULL_PERCENT);
        if test.target_bitrate > 0.0 && !is_full {
            let mbps = test.target_bitrate * f64::from(test.num_streams.max(1)) / 1e6;
            let mbps = (mbps * 1e3).round() / 1e3;
            let note = format!("limited to {mbps} Mbit/s by -b: the link may carry more");
            if !account.notes.contains(&note) {
                account.notes.push(note);
            }
        }
    }

    /// Rate at which the data of an interval's sum arrived; `None` if it is unknown. `timed` is the sum of the interval
    /// with its times, and may be the same.
    fn arrived_bps(
        &self,
        (timed, sum): (&Sum, &Sum),
        is_bidir: bool,
        account: &mut Account,
    ) -> Result<Option<f64>, ImportError> {
        let is_reverse = (self.start.test_start.reverse != 0) != is_bidir;
        if !sum.sender.unwrap_or(!is_reverse) {
            return Ok(sum.bits_per_second);
        }
        let middle_s = (timed.start + timed.end) / 2.0;
        let server = self.server_output_json.as_ref().map_or(&[][..], |server| &server.intervals);
        let sums = server.iter().filter_map(|row| {
            let times = row.sum.as_ref().filter(|sum| !sum.omitted)?;
            let sum = if is_bidir { row.sum_bidir_reverse.as_ref()? } else { times };
            (times.start..times.end).contains(&middle_s).then_some(sum)
        });
        let arrived =
            sums.filter(|sum| sum.sender != Some(true)).find_map(|sum| sum.bits_per_second);
        if arrived.is_some() || self.start.test_start.protocol != "UDP" {
            return Ok(arrived.or(sum.bits_per_second));
        }
        let bps = self.end.arrived_bps(is_bidir).ok_or_else(|| {
            let what = "a sender of UDP reports what it sent, and nothing in the file says what \
                        arrived: measure with -R or --get-server-output";
            ImportError::whole(what)
        })?;
        let note = format!("UDP: the mean rate that arrived, {:.1} Mbit/s", bps / 1e6);
        if !account.notes.contains(&note) {
            account.notes.push(note);
        }
        Ok(Some(bps))
    }
}

impl End {
    /// Mean rate at which data arrived in one direction of the whole test.
    fn arrived_bps(&self, is_bidir: bool) -> Option<f64> {
        let (received, total) = if is_bidir {
            (&self.sum_received_bidir_reverse, &self.sum_bidir_reverse)
        } else {
            (&self.sum_received, &self.sum)
        };
        let received = received.as_ref().and_then(|total| total.bits_per_second);
        let whole = || {
            let total = total.as_ref()?;
            match total.sender {
                Some(false) => total.bits_per_second,
                // Packets out of order make some versions count less than none as lost.
                _ => {
                    let lost = total.lost_percent?.clamp(0.0, 100.0) / 100.0;
                    Some(total.bits_per_second? * (1.0 - lost))
                }
            }
        };
        received.filter(|bps| *bps > 0.0).or_else(whole)
    }
}

impl Sum {
    /// Begin and end of the interval, ns since 1970, in a test that began at `begin_ns`.
    fn times_ns(&self, begin_ns: i64) -> Result<[i64; 2], ImportError> {
        if !(0.0 <= self.start && self.start <= self.end && self.end < LONGEST_S) {
            let (start, end) = (self.start, self.end);
            return Err(ImportError::whole(format!("an interval from {start} s to {end} s")));
        }
        Ok([self.start, self.end].map(|at_s| begin_ns + (at_s * SECOND_NS) as i64))
    }
}
