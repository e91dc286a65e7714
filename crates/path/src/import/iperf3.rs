//! Reports of iperf3 (`--json`, `--json-stream`), one or several in a file.
//!
//! The client sends on the uplink; with -R it receives on the downlink, with --bidir it does both. A rate is that at
//! which data arrived. What a sender of UDP reports per interval is what it offered, so that the rate of the server's
//! report (`--get-server-output`) counts instead, or else the mean rate that arrived in the whole test.

use std::io::BufRead;

use serde::Deserialize;
use serde_json::Value;
use skyhop_model::one_line;
use skyhop_units::Rate;

use super::account::Account;
use super::lines::{ImportError, MOST_SAMPLES, read_whole};
use super::rates::Rates;
use super::{AccessDirection, Imported, MeasuredOptions};

const SECOND_NS: f64 = 1e9;
/// Latest accepted time in seconds since 1970, the year 2100.
const LATEST_S: i64 = 4_102_444_800;
const LONGEST_S: f64 = 30.0 * 86_400.0;
const LARGEST_BPS: f64 = 1e15;

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
    /// The intervals, without those that iperf3 omitted (-O).
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
    let (mut rates, other, name) = match options.direction {
        AccessDirection::Down => (of(AccessDirection::Down), of(AccessDirection::Up), "uplink"),
        AccessDirection::Up => (of(AccessDirection::Up), of(AccessDirection::Down), "downlink"),
    };
    if rates.is_empty() {
        rates = other;
        account.notes.push(format!("rates of the {name}"));
    } else if !other.is_empty() {
        account.unused.push(format!("rates of the {name}"));
    }
    let end_ns = intervals.iter().map(|interval| interval.end_ns).max();
    Rates { rates, end_ns, unix: true, account }.into_path("iperf3", options)
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
    let mut intervals = Vec::new();
    for report in reports {
        report.append_to(&mut intervals, &mut account)?;
    }
    if intervals.is_empty() {
        return Err(ImportError::whole("it holds no interval: iperf3 did not measure"));
    }
    intervals.sort_by_key(|interval| interval.begin_ns);
    account.taken = vec![format!("{} intervals", intervals.len())];
    let spans = intervals.iter().map(|interval| interval.end_ns.abs_diff(interval.begin_ns));
    account.span = skyhop_units::Duration::from_nanos(spans.sum());
    Ok(Intervals { intervals, account })
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
}

#[derive(Deserialize)]
struct Row {
    sum: Sum,
    sum_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    /// Begin and end in seconds since the test's; the sum of the other direction of an interval may lack them.
    #[serde(default = "unknown")]
    start: f64,
    #[serde(default = "unknown")]
    end: f64,
    bits_per_second: f64,
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
}

#[derive(Deserialize)]
struct Total {
    bits_per_second: f64,
    lost_percent: Option<f64>,
    sender: Option<bool>,
}

/// Return the reports of a file: documents, or the events of `--json-stream`.
fn reports(bytes: &[u8], account: &mut Account) -> Result<Vec<Report>, ImportError> {
    let wrong = |line: usize, what: &str| ImportError::Line {
        line: line.max(1),
        what: format!("is not what iperf3 --json prints: {}", one_line(what)),
    };
    let mut documents: Vec<Value> = Vec::new();
    for document in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
        match document {
            Ok(mut value) => match value.get("event").and_then(Value::as_str).map(str::to_owned) {
                Some(event) => add_event(&mut documents, &event, value["data"].take()),
                None => documents.push(value),
            },
            Err(error) if error.is_eof() && !documents.is_empty() => {
                account.notes.push("its last report is cut off".to_owned());
            }
            Err(error) => {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or_default();
                return Err(wrong(error.line(), what));
            }
        }
    }
    let report = |value| serde_json::from_value(value).map_err(|e| wrong(1, &e.to_string()));
    documents.into_iter().map(report).collect()
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
    fn append_to(
        &self,
        intervals: &mut Vec<Interval>,
        account: &mut Account,
    ) -> Result<(), ImportError> {
        if let Some(reason) = self.error.as_str()
            && self.intervals.is_empty()
        {
            let reason = one_line(reason);
            return Err(ImportError::whole(format!("iperf3 did not measure: {reason}")));
        }
        let begin_s = self.start.timestamp.as_ref().map_or(-1, |time| time.timesecs);
        if !(0..LATEST_S).contains(&begin_s) {
            return Err(ImportError::whole("its time is not between 1970 and 2100"));
        }
        if intervals.len() + self.intervals.len() > MOST_SAMPLES {
            return Err(ImportError::whole(format!("more than {MOST_SAMPLES} intervals")));
        }
        let offered = &self.start.test_start;
        if offered.protocol != "UDP" && offered.target_bitrate > 0.0 {
            let mbps = offered.target_bitrate / 1e6;
            account.notes.push(format!("limited to {mbps} Mbit/s by -b: the link may carry more"));
        }
        for row in self.intervals.iter().filter(|row| !row.sum.omitted) {
            let [begin_ns, end_ns] = row.sum.times_ns(begin_s)?;
            let mut interval = Interval { begin_ns, end_ns, down_bps: None, up_bps: None };
            let is_reverse = self.start.test_start.reverse != 0;
            let interval_s = (row.sum.start, row.sum.end);
            self.add_rate(&mut interval, interval_s, (&row.sum, is_reverse), account)?;
            if let Some(sum) = &row.sum_bidir_reverse {
                self.add_rate(&mut interval, interval_s, (sum, !is_reverse), account)?;
            }
            intervals.push(interval);
        }
        Ok(())
    }

    /// Add the rate of one direction at which data arrived.
    fn add_rate(
        &self,
        interval: &mut Interval,
        interval_s: (f64, f64),
        (sum, is_reverse): (&Sum, bool),
        account: &mut Account,
    ) -> Result<(), ImportError> {
        let is_sender = sum.sender.unwrap_or(!is_reverse);
        let bps = if is_sender && self.start.test_start.protocol == "UDP" {
            self.arrived_bps(interval_s, account)?
        } else {
            sum.bits_per_second
        };
        if !(0.0..LARGEST_BPS).contains(&bps) {
            let what = format!("{bps} bit/s in an interval; expected 0 to {LARGEST_BPS}");
            return Err(ImportError::whole(what));
        }
        *(if is_reverse { &mut interval.down_bps } else { &mut interval.up_bps }) = Some(bps);
        Ok(())
    }

    /// Rate at which the data arrived that a sender of UDP offered in an interval.
    fn arrived_bps(&self, sent: (f64, f64), account: &mut Account) -> Result<f64, ImportError> {
        let middle_s = (sent.0 + sent.1) / 2.0;
        let server = self.server_output_json.as_ref().map_or(&[][..], |server| &server.intervals);
        let same = server.iter().find(|row| (row.sum.start..row.sum.end).contains(&middle_s));
        if let Some(row) = same {
            return Ok(row.sum.bits_per_second);
        }
        let received = self.end.sum_received.as_ref().map(|total| total.bits_per_second);
        let whole = || {
            let total = self.end.sum.as_ref()?;
            match total.sender {
                Some(false) => Some(total.bits_per_second),
                _ => Some(total.bits_per_second * (1.0 - total.lost_percent? / 100.0)),
            }
        };
        let Some(bps) = received.filter(|bps| *bps > 0.0).or_else(whole) else {
            let what = "a sender of UDP reports what it sent, and nothing in the file says what \
                        arrived: measure with -R or --get-server-output";
            return Err(ImportError::whole(what));
        };
        let note = format!("UDP: the mean rate that arrived, {:.1} Mbit/s", bps / 1e6);
        if !account.notes.contains(&note) {
            account.notes.push(note);
        }
        Ok(bps)
    }
}

impl Sum {
    /// Begin and end of the interval, ns since 1970.
    fn times_ns(&self, begin_s: i64) -> Result<[i64; 2], ImportError> {
        if !(0.0 <= self.start && self.start <= self.end && self.end < LONGEST_S) {
            let (start, end) = (self.start, self.end);
            return Err(ImportError::whole(format!("an interval from {start} s to {end} s")));
        }
        Ok([self.start, self.end].map(|at_s| begin_s * 1_000_000_000 + (at_s * SECOND_NS) as i64))
    }
}
