//! Blind estimation on measured and made logs.

use std::path::PathBuf;
use std::process::Command;

use skyhop_signal::blind::{Estimate, Evidence, Sample, estimate};
use skyhop_units::{Duration, UtcInstant};

const PERIOD: Duration = Duration::from_secs(15);

/// A published log; `None`, with the reason printed, where it is not there.
fn published(name: &str) -> Option<Vec<Sample>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../../shared/data/rtt/{name}.csv.gz"));
    if !file.exists() {
        println!("skipped: {} is not there", file.display());
        return None;
    }
    let unpacked = Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
    let text = String::from_utf8(unpacked.stdout).unwrap();
    let rows = text.lines().filter_map(|line| {
        let (at, rtt) = line.split_once(',')?;
        let at = UtcInstant::from_unix_nanos(at.parse().ok()?);
        let rtt = Duration::from_nanos((rtt.parse::<f64>().ok()? * 1e6) as u64);
        Some(Sample { at, rtt: Some(rtt) })
    });
    Some(rows.collect())
}

const VICTORIA: [&str; 3] = ["victoria_1", "victoria_2", "victoria_3"];

fn offset_s(found: &Estimate) -> f64 {
    found.grid.unwrap_or_else(|| panic!("no grid: {found:?}")).offset.as_secs_f64()
}

/// The distance on the circle of the period.
fn apart_s(a: f64, b: f64) -> f64 {
    let distance = (a - b).rem_euclid(15.0);
    distance.min(15.0 - distance)
}

/// Random numbers enough for choosing samples (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// About ten per second, with a tenth missing and pauses of 3 to 30 s.
fn sparse(log: &[Sample], random: &mut Random) -> Vec<Sample> {
    let first = random.below(8) as usize;
    let mut sparse: Vec<Sample> = log.iter().skip(first).step_by(8).copied().collect();
    sparse.retain(|_| random.below(10) > 0);
    for _ in 0..8 {
        let length = 30 + random.below(270) as usize;
        let start = random.below((sparse.len() - length) as u64) as usize;
        sparse.drain(start..start + length);
    }
    sparse
}

#[test]
fn starlink_is_reconfigured_at_second_12() {
    for name in VICTORIA {
        let Some(log) = published(name) else { return };
        let found = estimate(&log, PERIOD);
        assert!(apart_s(offset_s(&found), 12.0) <= 0.1, "{name}: {found:?}");
        assert_eq!(found.samples, log.len());
        assert!(found.confidence > 0.5, "{name}: {found:?}");
    }
}

#[test]
fn oneweb_has_no_grid() {
    let Some(log) = published("oneweb_iowa") else { return };
    let found = estimate(&log, PERIOD);
    assert_eq!(found.grid, None, "{found:?}");
    let mut random = Random(1);
    for _ in 0..5 {
        let found = estimate(&sparse(&log, &mut random), PERIOD);
        assert_eq!(found.grid, None, "{found:?}");
    }
}

#[test]
fn ten_samples_per_second_with_gaps_are_enough() {
    let mut random = Random(2);
    for name in VICTORIA {
        let Some(log) = published(name) else { return };
        for _ in 0..4 {
            let found = estimate(&sparse(&log, &mut random), PERIOD);
            assert!(apart_s(offset_s(&found), 12.0) <= 0.1, "{name}: {found:?}");
        }
    }
}

#[test]
fn a_clock_that_is_wrong_shifts_the_estimate_by_as_much() {
    let mut random = Random(3);
    for name in VICTORIA {
        let Some(log) = published(name) else { return };
        for decimated in [log.clone(), sparse(&log, &mut random)] {
            let before = offset_s(&estimate(&decimated, PERIOD));
            let shift = Duration::from_nanos(random.below(PERIOD.as_nanos()));
            let shifted: Vec<Sample> = decimated
                .iter()
                .map(|sample| Sample { at: sample.at.after(shift), ..*sample })
                .collect();
            let after = offset_s(&estimate(&shifted, PERIOD));
            let moved = apart_s(after, before + shift.as_secs_f64());
            assert!(moved <= 0.03, "{name}: by {shift}, from {before} to {after}");
        }
    }
}

/// Arrivals of a bulk flow, 1 ms apart and jittered, without those of an outage of 50 ms every 15 s, and
/// with pauses of 20 to 60 ms wherever the scheduler liked them.
fn bulk_flow(offset: f64, seconds: u64, random: &mut Random) -> Vec<Sample> {
    let mut pauses: Vec<(u64, u64)> =
        (0..seconds / 4).map(|_| (random.below(seconds * 1000), 20 + random.below(40))).collect();
    pauses.sort_unstable();
    let outage_ms = |ms: u64| (ms as f64 / 1e3 - offset).rem_euclid(15.0) < 0.05;
    let paused =
        |ms: u64| pauses.iter().any(|(start, length)| (*start..start + length).contains(&ms));
    (0..seconds * 1000)
        .filter(|ms| !outage_ms(*ms) && !paused(*ms))
        .map(|ms| ms * 1_000_000 + random.below(300_000))
        .map(|ns| Sample { at: UtcInstant::from_unix_nanos(ns as i64), rtt: None })
        .collect()
}

#[test]
fn three_minutes_of_a_bulk_flow_are_enough_for_ten_milliseconds() {
    let mut random = Random(4);
    for trial in 0..20 {
        let offset = random.below(15_000) as f64 / 1e3;
        let found = estimate(&bulk_flow(offset, 180, &mut random), PERIOD);
        assert_eq!(found.evidence, Evidence::Spacing);
        let error = apart_s(offset_s(&found), offset);
        assert!(error <= 0.010, "{trial}: {error} s from {offset}: {found:?}");
    }
}

#[test]
fn gaps_at_random_moments_are_no_grid() {
    let mut random = Random(5);
    for _ in 0..20 {
        let mut gaps: Vec<u64> = (0..12).map(|_| random.below(180_000)).collect();
        gaps.sort_unstable();
        let in_gap = |ms: u64| gaps.iter().any(|start| (*start..start + 50).contains(&ms));
        let flow: Vec<Sample> = (0..180_000)
            .filter(|ms| !in_gap(*ms))
            .map(|ms| ms * 1_000_000 + random.below(300_000))
            .map(|ns| Sample { at: UtcInstant::from_unix_nanos(ns as i64), rtt: None })
            .collect();
        let found = estimate(&flow, PERIOD);
        assert_eq!(found.grid, None, "{found:?}");
    }
}
