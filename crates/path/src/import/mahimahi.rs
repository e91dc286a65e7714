//! Packet-delivery traces of mahimahi: each line is an opportunity to deliver a packet of 1500 bytes, as the
//! millisecond since the trace's beginning.
//!
//! Opportunities become rates over equal bins: the shortest of 10 ms, 100 ms and 1 s that holds ten of them on
//! average. skyhop's rates are wire rates, so that each opportunity counts as 1514 bytes and as many packets pass as
//! in the trace. The trace has no delay: the user gives the round trip, whose default is zero. mahimahi repeats the
//! trace at its end; the path keeps its last rate instead.

use std::io::BufRead;

use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Bytes, Duration, Instant, Quoted, Rate};

use super::lines::{ImportError, Lines};
use super::rates::missing_delay;
use super::{Imported, MeasuredOptions, measured_header};
use crate::trace::{Frame, PathTrace};

const BINS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1)];
/// Minimum mean number of opportunities per bin, for the bin to be long enough.
const PER_BIN: u64 = 10;
/// Maximum duration of a trace, four hours, in ms: its bins must fit into memory.
const LONGEST_MS: u64 = 4 * 3_600_000;

/// Parse a packet-delivery trace.
///
/// # Errors
/// A line is not a whole number of milliseconds, or is smaller than the line before; the error
/// states its number.
pub fn parse_mahimahi(
    file: impl BufRead,
    options: &MeasuredOptions,
) -> Result<Imported, ImportError> {
    let deliveries = Deliveries::parse(file)?;
    let there = options.rtt.unwrap_or(Duration::ZERO) / 2;
    let back = options.rtt.unwrap_or(Duration::ZERO) - there;
    let bin = deliveries.bin();
    let frames = deliveries.rates(bin).into_iter().enumerate().map(|(index, rate)| Frame {
        at: Instant::START + bin * index as u64,
        delay: Some(there),
        delay_back: Some(back),
        rate: Some(rate),
        ..Frame::default()
    });
    let frames = frames.collect();
    let header = measured_header("mahimahi", options, None, deliveries.duration(), bin);
    let trace = PathTrace { header, frames };
    trace.validate()?;
    let mut imported = Imported::whole(trace, "rates");
    imported.account.notes.extend(missing_delay(options));
    Ok(imported)
}

/// Parse a packet-delivery trace as the number of packets in each of its milliseconds.
///
/// # Errors
/// The errors of [`parse_mahimahi`].
pub fn parse_mahimahi_packets(file: impl BufRead) -> Result<Vec<u32>, ImportError> {
    Ok(Deliveries::parse(file)?.per_ms)
}

/// Number of delivery opportunities in each millisecond.
pub(super) struct Deliveries {
    per_ms: Vec<u32>,
    total: u64,
}

impl Deliveries {
    pub fn parse(file: impl BufRead) -> Result<Self, ImportError> {
        let mut lines = Lines::new(file);
        let mut deliveries = Self { per_ms: Vec::new(), total: 0 };
        let mut last_ms = 0;
        while let Some(line) = lines.next()? {
            if line.text.is_empty() {
                continue;
            }
            let ms: u64 = line.text.parse().map_err(|_| {
                let what = "expected a whole number of milliseconds, when a packet may pass";
                line.wrong(format!("{} where a time belongs; {what}", Quoted(line.text)))
            })?;
            if ms < last_ms {
                return Err(line.wrong(format!("{ms} ms is before {last_ms} ms of the line above")));
            }
            if ms > LONGEST_MS {
                return Err(
                    line.wrong(format!("{ms} ms is more than four hours; import a shorter trace"))
                );
            }
            last_ms = ms;
            deliveries.count(ms as usize);
        }
        if deliveries.total == 0 {
            return Err(ImportError::whole("it is empty; expected a time in ms per packet"));
        }
        Ok(deliveries)
    }

    fn count(&mut self, ms: usize) {
        // Time n is the end of a millisecond; time 0 counts towards the first millisecond.
        let slot = ms.saturating_sub(1);
        if slot >= self.per_ms.len() {
            self.per_ms.resize(slot + 1, 0);
        }
        self.per_ms[slot] += 1;
        self.total += 1;
    }

    /// Shortest bin that holds enough opportunities on average.
    pub fn bin(&self) -> Duration {
        let enough = |bin: &Duration| {
            let bins = (self.per_ms.len() as u64).div_ceil(bin.as_nanos() / MS_NS);
            self.total >= PER_BIN * bins
        };
        BINS.into_iter().find(enough).unwrap_or(BINS[BINS.len() - 1])
    }

    /// Mean rate of each bin.
    pub fn rates(&self, bin: Duration) -> Vec<Rate> {
        let bins = self.per_ms.chunks((bin.as_nanos() / MS_NS) as usize);
        bins.map(|bin| {
            let packets: u64 = bin.iter().map(|count| u64::from(*count)).sum();
            let size = Bytes::new(packets * LARGEST_PACKET.as_u64());
            Rate::of(size, Duration::from_millis(bin.len() as u64))
        })
        .collect()
    }

    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.per_ms.len() as u64)
    }
}

const MS_NS: u64 = 1_000_000;
