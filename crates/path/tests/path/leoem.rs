//! Comparison with LeoEM's published paths, if this machine has them.

use skyhop_model::{Compat, PathEventKind, Relay};
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;

use flate2::read::GzDecoder;
use skyhop_orbit::Constellation;
use skyhop_path::import::{LeoemLogOptions, parse_leoem_log};
use skyhop_path::{
    OutageModel, PathOptions, PathRequest, PathTrace, Place, compute, default_intermediate_outage,
};
use skyhop_units::Duration;

const SAN_DIEGO: (f64, f64) = (32.881, -117.237);
const NEW_YORK: (f64, f64) = (40.845, -73.932);
const SEATTLE: (f64, f64) = (47.608, -122.335);

fn published(name: &str) -> Option<File> {
    let path = skyhop_needs::reference(&format!("leoem/{name}"))?;
    Some(File::open(path).unwrap())
}

fn imported(name: &str) -> Option<PathTrace> {
    let file = published(name)?;
    let log = BufReader::new(GzDecoder::new(file));
    Some(parse_leoem_log(log, &LeoemLogOptions::default()).unwrap())
}

fn gateways() -> Option<Vec<Place>> {
    let mut text = String::new();
    published("ground_stations.csv")?.read_to_string(&mut text).unwrap();
    let place = |line: &str| {
        let cells: Vec<&str> = line.splitn(4, ',').collect();
        Place::new(cells[3], cells[1].parse().unwrap(), cells[2].parse().unwrap())
    };
    Some(text.lines().skip(1).map(place).collect())
}

fn recomputed(from: (f64, f64), to: (f64, f64), relay: Relay, steps: usize) -> Option<PathTrace> {
    let toml = include_str!("../../../../data/constellations/leoem-starlink.toml");
    let constellation = Constellation::parse(toml, "leoem-starlink.toml").unwrap();
    let request = PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("from", from.0, from.1),
        to: Place::new("to", to.0, to.1),
        gateways: gateways()?,
        relay: Some(relay),
        handover: "leoem".to_owned(),
        outage: OutageModel::Leoem,
        intermediate_outage: default_intermediate_outage(Compat::Leoem),
        compat: Compat::Leoem,
        step: Duration::from_secs(1),
        duration: Duration::from_secs(steps as u64),
        seed: 0,
        options: PathOptions::default(),
    };
    Some(compute(&request, |_, _| ControlFlow::Continue(())).unwrap())
}

/// Share of frames with the same nodes, and median difference of the total delays in us.
fn agreement(published: &PathTrace, ours: &PathTrace) -> (f64, f64) {
    assert_eq!(published.frames.len(), ours.frames.len());
    let pairs = || published.frames.iter().zip(&ours.frames);
    let same = pairs().filter(|(a, b)| a.nodes == b.nodes).count();
    for (a, b) in pairs().filter(|(a, b)| a.nodes != b.nodes).take(3) {
        println!("first differences at {}:\n  {:?}\n  {:?}", a.at, a.nodes, b.nodes);
    }
    let mut errors_us: Vec<f64> = pairs()
        .filter_map(|(a, b)| Some((a.delay?.as_secs_f64() - b.delay?.as_secs_f64()).abs() * 1e6))
        .collect();
    errors_us.sort_by(f64::total_cmp);
    let share = same as f64 / published.frames.len() as f64;
    let median_us = errors_us[errors_us.len() / 2];
    let max_us = errors_us[errors_us.len() - 1];
    println!(
        "{:.2} % identical, delay error {median_us:.3} us median, {max_us:.3} us max",
        100.0 * share
    );
    (share, median_us)
}

fn check(log: &str, from: (f64, f64), to: (f64, f64), relay: Relay, least_share: f64) {
    let Some(published) = imported(log) else { return };
    let Some(ours) = recomputed(from, to, relay, published.frames.len()) else { return };
    let (share, median_us) = agreement(&published, &ours);
    assert!(share >= least_share, "only {share} of the lines are identical");
    assert!(median_us <= 1.0, "median delay error {median_us} us");
}

#[test]
fn san_diego_to_new_york_over_isls_is_as_published() {
    check("SD_NY_15_ISL.log.gz", SAN_DIEGO, NEW_YORK, Relay::Isl, 0.999);
}

#[test]
fn san_diego_to_seattle_over_isls_is_as_published() {
    check("SD_SEA_15_ISL.log.gz", SAN_DIEGO, SEATTLE, Relay::Isl, 0.999);
}

#[test]
fn san_diego_to_new_york_over_gateways_is_as_published() {
    check("SD_NY_15_BP.log.gz", SAN_DIEGO, NEW_YORK, Relay::BentPipe, 0.999);
}

/// Number of events of a kind.
fn count(trace: &PathTrace, kind: PathEventKind) -> usize {
    trace.events().filter(|event| event.kind == kind).count()
}

#[test]
fn the_published_bent_pipe_log_breaks_3584_links() {
    let Some(trace) = imported("SD_NY_15_BP.log.gz") else { return };
    assert_eq!(trace.frames.len(), 5732);
    assert_eq!(trace.frames.iter().filter(|frame| frame.delay.is_none()).count(), 19);
    assert_eq!(count(&trace, PathEventKind::Intermediate), 3584);
    assert_eq!(count(&trace, PathEventKind::End), 219);
    let connected = |pair: &&[skyhop_path::Frame]| pair.iter().all(|frame| frame.delay.is_some());
    let changed = trace.frames.windows(2).filter(connected).filter(|p| p[0].nodes != p[1].nodes);
    assert_eq!(changed.count(), 1744);
    assert_eq!(count(&trace, PathEventKind::Lost), count(&trace, PathEventKind::Restored));
    assert_eq!(count(&trace, PathEventKind::Reroute), 0);
}

#[test]
fn the_published_isl_logs_break_375_and_453_links() {
    for (log, broken) in [("SD_NY_15_ISL.log.gz", 375), ("SD_SEA_15_ISL.log.gz", 453)] {
        let Some(trace) = imported(log) else { return };
        assert_eq!(count(&trace, PathEventKind::Intermediate), broken, "{log}");
    }
}

#[test]
fn end_handovers_last_three_times_both_delays() {
    let Some(trace) = imported("SD_NY_15_BP.log.gz") else { return };
    let mut checked = 0;
    for pair in trace.frames.windows(2) {
        for event in pair[1].events.iter().filter(|event| event.kind == PathEventKind::End) {
            let delays = |frame: &skyhop_path::Frame| match event.hop {
                Some(0) => frame.hop_delays[0],
                _ => *frame.hop_delays.last().unwrap(),
            };
            assert_eq!(event.outage, (delays(&pair[0]) + delays(&pair[1])) * 3);
            checked += 1;
        }
    }
    assert_eq!(checked, 219);
}
