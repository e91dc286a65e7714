//! Paths whose rate was measured over time, and whose delay the user gives.

use skyhop_units::{Duration, Instant, Rate, UtcInstant};

use super::account::Account;
use super::lines::ImportError;
use super::{AccessDirection, Imported, MeasuredOptions, measured_header};
use crate::trace::{Frame, PathHeader, PathTrace};

/// Duration of a single rate.
const USUAL_STEP: Duration = Duration::from_secs(1);
/// Longest plausible series, a year, ns.
const LONGEST_SPAN_NS: u64 = 366 * 86_400 * 1_000_000_000;

/// Rates over time, each from the time at which it begins to hold.
pub(super) struct Rates {
    /// Times in ns and rates, in the order of time.
    pub rates: Vec<(i64, Rate)>,
    /// Time at which the last rate ends, ns, if the file states it.
    pub end_ns: Option<i64>,
    /// Whether times count from 1970.
    pub unix: bool,
    /// Direction of the rates, if it is known.
    pub direction: Option<AccessDirection>,
    pub account: Account,
}

impl Rates {
    /// Convert the rates to a path.
    pub fn into_path(
        mut self,
        format: &str,
        options: &MeasuredOptions,
    ) -> Result<Imported, ImportError> {
        self.rates.dedup_by_key(|(at_ns, _)| *at_ns);
        let (Some((first_ns, _)), Some((last_ns, _))) = (self.rates.first(), self.rates.last())
        else {
            return Err(ImportError::whole("it holds no rate"));
        };
        let since_ns = |at_ns: i64| at_ns.abs_diff(*first_ns);
        let step = self.step();
        let whole_ns = self.end_ns.map_or(since_ns(*last_ns) + step.as_nanos(), since_ns);
        if whole_ns > LONGEST_SPAN_NS {
            return Err(ImportError::whole("it spans more than a year; are its times right?"));
        }
        let rtt = options.rtt.unwrap_or(Duration::ZERO);
        let frame = |(at_ns, rate): &(i64, Rate)| Frame {
            at: Instant::from_nanos(since_ns(*at_ns)),
            delay: Some(rtt / 2),
            delay_back: Some(rtt - rtt / 2),
            rate: Some(*rate),
            ..Frame::default()
        };
        let frames: Vec<Frame> = self.rates.iter().map(frame).collect();
        let start = self.unix.then(|| UtcInstant::from_unix_nanos(*first_ns));
        let duration = Duration::from_nanos(whole_ns.max(since_ns(*last_ns) + 1));
        let header = measured_header(format, options, start, duration, step);
        let dish = self.direction.map(AccessDirection::dish).or(header.dish);
        let header = PathHeader { dish, ..header };
        let trace = PathTrace { header, frames };
        trace.validate()?;
        let mut account = self.account;
        account.taken = vec![format!("{} rates", self.rates.len())];
        account.span = duration;
        account.notes.extend(missing_delay(options));
        Ok(Imported { trace, account })
    }

    /// Median time between two rates.
    fn step(&self) -> Duration {
        let pairs = self.rates.windows(2);
        let mut steps: Vec<u64> = pairs.map(|pair| pair[1].0.abs_diff(pair[0].0)).collect();
        if steps.is_empty() {
            return USUAL_STEP;
        }
        let middle = steps.len() / 2;
        Duration::from_nanos((*steps.select_nth_unstable(middle).1).max(1))
    }
}

/// Remark for files that have rates and no delay, if the user gave none either.
pub(super) fn missing_delay(options: &MeasuredOptions) -> Option<String> {
    let what = "it has no delay, so the round-trip time is 0; --rtt sets one";
    options.rtt.is_none().then(|| what.to_owned())
}
