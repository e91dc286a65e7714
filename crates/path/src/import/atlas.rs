//! Results of a ping measurement of RIPE Atlas, as JSON: an array, or one result per line.
//!
//! A result has the answers to a few packets, sent a second apart from its timestamp on. The time between two results
//! was not measured.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Deserialize;
use skyhop_model::one_line;
use skyhop_units::Duration;

use super::account::Account;
use super::documents::documents;
use super::lines::{ImportError, MOST_SAMPLES, read_whole};
use super::probes::{LONGEST_RTT_MS, Probe, Series};
use super::{Imported, MeasuredOptions};

const SECOND_NS: i64 = 1_000_000_000;
/// Latest accepted time in seconds since 1970, the year 2100.
const LATEST_S: i64 = 4_102_444_800;

/// Parse the results of a ping measurement of RIPE Atlas.
///
/// # Errors
/// The file is not such JSON (the error states the line number), holds results of another type or of several probes,
/// or a round trip is impossible.
pub fn parse_atlas(file: impl BufRead, options: &MeasuredOptions) -> Result<Imported, ImportError> {
    series(file)?.into_path("atlas", options)
}

pub(super) fn series(file: impl BufRead) -> Result<Series, ImportError> {
    let bytes = read_whole(file)?;
    let mut account = Account::default();
    let expected = "is not a result of RIPE Atlas";
    let mut results: Vec<Measured> = documents(&bytes, expected, &mut account)?;
    check_alike(&results)?;
    results.sort_by_key(|result| result.timestamp);
    results.dedup_by_key(|result| result.timestamp);
    let mut whole = Series { losses_known: true, ..Series::of(Vec::new(), true, account) };
    let mut lost = Lost::default();
    let mut without_packets = 0;
    for result in &results {
        whole.add(result, &mut lost)?;
        without_packets += usize::from(!result.has_packets());
    }
    (whole.lost_after, whole.lost_after_ns) = (lost.count, lost.sent_ns);
    whole.account.notes.push(format!("{} results", results.len()));
    if without_packets > 0 {
        whole.account.notes.push(format!("{without_packets} of them without packets"));
    }
    Ok(whole)
}

/// Result of one measurement of one probe.
#[derive(Deserialize)]
struct Measured {
    #[serde(rename = "type", default)]
    kind: String,
    prb_id: u64,
    timestamp: i64,
    #[serde(default)]
    dst_name: Option<String>,
    #[serde(default)]
    dst_addr: Option<String>,
    #[serde(default)]
    af: Option<u8>,
    #[serde(default)]
    result: serde_json::Value,
}

/// Packets lost since the last answered one.
#[derive(Default)]
struct Lost {
    count: u64,
    /// Sending times of the first and the last, ns.
    sent_ns: Option<[i64; 2]>,
}

impl Measured {
    fn packets(&self) -> &[serde_json::Value] {
        self.result.as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether the probe tried to send packets; a probe that could not resolve the target's name did not.
    fn has_packets(&self) -> bool {
        let is_tried = |packet: &serde_json::Value| {
            let error = packet.get("error").and_then(serde_json::Value::as_str);
            packet.get("rtt").or(packet.get("x")).is_some()
                || error.is_some_and(|error| error.starts_with("sendto"))
        };
        self.packets().iter().any(is_tried)
    }

    fn target(&self) -> &str {
        self.dst_name.as_deref().or(self.dst_addr.as_deref()).unwrap_or("an unknown target")
    }
}

/// Check that all results are pings of one probe to one target.
fn check_alike(results: &[Measured]) -> Result<(), ImportError> {
    let Some(first) = results.first() else {
        return Err(ImportError::whole("it holds no result of RIPE Atlas"));
    };
    if let Some(other) = results.iter().find(|one| one.kind != "ping") {
        let what = if other.kind == "traceroute" {
            "it holds traceroutes, which skyhop dissect reads; expected pings".to_owned()
        } else {
            let kind = one_line(&other.kind);
            format!("it holds results of type \"{kind}\"; expected pings")
        };
        return Err(ImportError::whole(what));
    }
    let mut probes: BTreeMap<u64, usize> = BTreeMap::new();
    results.iter().for_each(|one| *probes.entry(one.prb_id).or_default() += 1);
    if probes.len() > 1 {
        let (probe, _) = probes.iter().max_by_key(|(_, count)| **count).unwrap_or((&0, &0));
        let what = format!(
            "it holds {} probes, and a path is of one: keep one, such as with \
             ?probe_ids={probe} in the address",
            probes.len()
        );
        return Err(ImportError::whole(what));
    }
    let is_other = |one: &&Measured| (one.target(), one.af) != (first.target(), first.af);
    if let Some(other) = results.iter().find(is_other) {
        let family = |one: &Measured| one.af.map_or(String::new(), |af| format!(" (IPv{af})"));
        let what = format!(
            "it holds pings to {}{} and to {}{}: keep one target",
            one_line(first.target()),
            family(first),
            one_line(other.target()),
            family(other)
        );
        return Err(ImportError::whole(what));
    }
    Ok(())
}

impl Series {
    /// Add the packets of a result; `lost` are those lost since the last answered one.
    fn add(&mut self, result: &Measured, lost: &mut Lost) -> Result<(), ImportError> {
        let at_s = result.timestamp;
        if !(0..LATEST_S).contains(&at_s) {
            return Err(ImportError::whole(format!(
                "the timestamp {at_s} is not between 1970 and 2100"
            )));
        }
        let (mut after_pause, mut sent_ns) = (!self.probes.is_empty(), at_s * SECOND_NS);
        let packets = if result.has_packets() { result.packets() } else { &[] };
        // The answer to a packet may come more than once.
        for packet in packets.iter().filter(|packet| packet.get("dup").is_none()) {
            if let Some(rtt) = packet.get("rtt") {
                let rtt = round_trip(rtt).ok_or_else(|| {
                    let what =
                        format!("a round trip that is not between 0 and {LONGEST_RTT_MS} ms");
                    ImportError::whole(format!("the result of timestamp {at_s} has {what}"))
                })?;
                if self.probes.len() >= MOST_SAMPLES {
                    return Err(ImportError::whole(format!("more than {MOST_SAMPLES} packets")));
                }
                let Lost { count, sent_ns: lost_ns } = std::mem::take(lost);
                let probe = Probe::symmetric(sent_ns, rtt, count);
                self.probes.push(Probe { after_pause, lost_ns, ..probe });
                after_pause = false;
            } else if packet.get("x").or(packet.get("error")).is_some() {
                lost.count += 1;
                lost.sent_ns =
                    Some([lost.sent_ns.map_or(sent_ns, |[first_ns, _]| first_ns), sent_ns]);
            } else {
                continue;
            }
            sent_ns += SECOND_NS;
        }
        Ok(())
    }
}

fn round_trip(rtt: &serde_json::Value) -> Option<Duration> {
    let rtt_ms = rtt.as_f64().filter(|rtt_ms| (0.0..=LONGEST_RTT_MS).contains(rtt_ms))?;
    Some(Duration::from_secs_f64(rtt_ms / 1e3))
}
