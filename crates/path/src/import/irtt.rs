//! JSON output of `irtt client -o FILE`, with every round trip.
//!
//! If every answered probe has both one-way delays, the path uses them after removing the offset between the two
//! hosts' clocks; the minimum delays of both directions are assumed to be equal. Otherwise a round trip is split
//! into two halves.

use std::io::BufRead;

use serde::Deserialize;
use skyhop_units::Duration;

use super::account::Account;
use super::documents::documents;
use super::lines::{ImportError, MOST_SAMPLES, read_whole};
use super::probes::{LONGEST_RTT_MS, Probe, Series};
use super::{Imported, MeasuredOptions};

/// Parse the JSON output of irtt.
///
/// # Errors
/// The file is not irtt's JSON (the error states the line number), or a round trip is impossible
/// (the error states its sequence number).
pub fn parse_irtt(file: impl BufRead, options: &MeasuredOptions) -> Result<Imported, ImportError> {
    series(file)?.into_path("irtt", options)
}

pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let bytes = read_whole(file)?;
    let mut account = Account::default();
    let expected = "not irtt's JSON";
    // Several measurements may be appended to one file.
    let logs: Vec<Log> = documents(&bytes, expected, &mut account)?;
    let mut whole = Series { losses_known: true, ..Series::of(Vec::new(), true, account) };
    if logs.len() > 1 {
        whole.account.notes.push(format!("{} measurements", logs.len()));
    }
    for log in logs {
        log.append_to(&mut whole)?;
    }
    Ok(whole)
}

#[derive(Deserialize)]
struct Log {
    round_trips: Vec<RoundTrip>,
}

#[derive(Deserialize)]
struct RoundTrip {
    seqno: u64,
    /// Loss of the probe: a boolean or, depending on the version, "true", "true_up", "true_down" or "false".
    lost: serde_json::Value,
    timestamps: Timestamps,
    #[serde(default)]
    delay: Delay,
}

#[derive(Deserialize)]
struct Timestamps {
    client: Client,
}

#[derive(Deserialize)]
struct Client {
    send: Stamp,
}

/// Time of one event on a host's wall clock and on its monotonic clock, ns.
#[derive(Deserialize)]
struct Stamp {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

/// Round trip and one-way delays, ns.
#[derive(Deserialize, Default)]
struct Delay {
    rtt: Option<i64>,
    send: Option<i64>,
    receive: Option<i64>,
}

impl RoundTrip {
    fn answered(&self) -> bool {
        matches!(&self.lost, serde_json::Value::Bool(false))
            || self.lost.as_str().is_some_and(|text| text == "false")
    }

    /// Error of a value that is valid JSON but impossible.
    fn wrong(&self, what: &str) -> ImportError {
        ImportError::whole(format!("round trip with seqno {}: {what}", self.seqno))
    }

    fn rtt(&self) -> Result<Duration, ImportError> {
        let greatest_ns = LONGEST_RTT_MS * 1e6;
        match self.delay.rtt {
            Some(rtt_ns) if (0.0..=greatest_ns).contains(&(rtt_ns as f64)) => {
                Ok(Duration::from_nanos(rtt_ns as u64))
            }
            Some(rtt_ns) => {
                let most = LONGEST_RTT_MS;
                Err(self.wrong(&format!("a delay.rtt of {rtt_ns} ns; expected 0 to {most} ms")))
            }
            None => Err(self.wrong("it is not lost, but has no delay.rtt")),
        }
    }
}

impl Log {
    fn append_to(self, series: &mut Series) -> Result<(), ImportError> {
        let trips = self.round_trips;
        if trips.len() + series.probes.len() > MOST_SAMPLES {
            let what =
                format!("more than {MOST_SAMPLES} round trips; import a shorter measurement");
            return Err(ImportError::whole(what));
        }
        if let Some(pair) = trips.windows(2).find(|pair| pair[1].seqno <= pair[0].seqno) {
            return Err(pair[1].wrong("it does not come after the one before it"));
        }
        let stamp = |trip: &RoundTrip, clock: fn(&Stamp) -> Option<i64>| {
            clock(&trip.timestamps.client.send)
        };
        let unix = trips.iter().all(|trip| stamp(trip, |s| s.wall).is_some());
        let clock: fn(&Stamp) -> Option<i64> = if unix { |s| s.wall } else { |s| s.monotonic };
        let lead_ns = clock_lead_ns(&trips);
        let is_appended = !series.probes.is_empty();
        if is_appended && series.unix != unix {
            return Err(ImportError::whole("some of its measurements have times and some do not"));
        }
        series.unix = unix;
        let (mut lost, mut after_pause) = (series.lost_after, is_appended);
        for trip in &trips {
            if !trip.answered() {
                lost += 1;
                continue;
            }
            let sent_ns =
                stamp(trip, clock).ok_or_else(|| trip.wrong("it has no timestamps.client.send"))?;
            let mut probe = Probe::symmetric(sent_ns, trip.rtt()?, lost);
            if let (Some(lead_ns), Some(send_ns)) = (lead_ns, trip.delay.send) {
                let there_ns = send_ns.saturating_sub(lead_ns).max(0).unsigned_abs();
                probe.there = Duration::from_nanos(there_ns).min(trip.rtt()?);
                probe.back = trip.rtt()? - probe.there;
            }
            probe.after_pause = after_pause;
            series.probes.push(probe);
            (lost, after_pause) = (0, false);
        }
        series.lost_after = lost;
        Ok(())
    }
}

/// Time by which the server's clock is ahead of the client's, ns; `None` unless every answered
/// probe has both one-way delays.
fn clock_lead_ns(trips: &[RoundTrip]) -> Option<i64> {
    let answered = || trips.iter().filter(|trip| trip.answered());
    if !answered().all(|trip| trip.delay.send.is_some() && trip.delay.receive.is_some()) {
        return None;
    }
    let least_send_ns = answered().filter_map(|trip| trip.delay.send).min()?;
    let least_receive_ns = answered().filter_map(|trip| trip.delay.receive).min()?;
    Some(least_send_ns.saturating_sub(least_receive_ns) / 2)
}
