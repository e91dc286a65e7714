//! Cost of a step of 1 s at scale: all pairs of 100 sites, one pair, 10,000 element sets.

use skyhop_model::{Compat, Relay};
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use skyhop_orbit::{Constellation, EarthModel, ElementSet, Ephemeris, MeanElements, Vec3};
use skyhop_path::all_pairs::AllPairs;
use skyhop_path::{OutageModel, PathFrames, PathOptions, PathRequest, Place};
use skyhop_units::Duration;

const STEPS: u64 = 60;

fn main() {
    divan::main();
}

/// Measure steps per second of Starlink-550: 72 planes of 22, +Grid.
#[divan::bench(args = [Relay::Isl, Relay::BentPipe], sample_count = 3, sample_size = 1)]
fn all_pairs_of_100_sites(bencher: Bencher<'_, '_>, relay: Relay) {
    let (request, sites) = (request(relay, "immediate"), sites());
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let steps = AllPairs::new(black_box(&request), &sites).expect("a request");
        steps.map(|step| step.changes.len()).sum::<usize>()
    });
}

/// Measure steps per second of all pairs under handover policies, whose grid has a time every 15 s.
#[divan::bench(args = ["shortest-grid", "nearest-grid", "longest-visible-grid", "sticky"], sample_count = 3, sample_size = 1)]
fn all_pairs_by_policy(bencher: Bencher<'_, '_>, handover: &str) {
    let (request, sites) = (request(Relay::Isl, handover), sites());
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let steps = AllPairs::new(black_box(&request), &sites).expect("a request");
        steps.map(|step| step.changes.len()).sum::<usize>()
    });
}

#[divan::bench(args = [Relay::Isl, Relay::BentPipe, Relay::Access], sample_count = 5, sample_size = 1)]
fn one_pair(bencher: Bencher<'_, '_>, relay: Relay) {
    let request = request(relay, "leoem");
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let frames = PathFrames::new(black_box(&request)).expect("a request");
        frames.filter(|frame| frame.delay.is_some()).count()
    });
}

/// Measure steps per second of all earth-fixed positions.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn positions_of_10_000_element_sets(bencher: Bencher<'_, '_>) {
    let constellation = element_sets();
    let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
    let mut positions: Vec<Vec3> = Vec::new();
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        for second in 0..STEPS {
            let time = constellation.epoch.after(Duration::from_secs(80_000 + second));
            ephemeris.earth_fixed(black_box(time), &mut positions);
        }
        positions.len()
    });
}

/// The same positions from the crate sgp4, one satellite at a time, in inertial axes.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn positions_of_10_000_element_sets_by_the_crate_sgp4(bencher: Bencher<'_, '_>) {
    let constellation = element_sets();
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let mut found = 0;
        for second in 0..STEPS {
            let time = constellation.epoch.after(Duration::from_secs(80_000 + second));
            let sets = constellation.element_sets.iter();
            found += sets.filter_map(|set| black_box(set.position(black_box(time)))).count();
        }
        found
    });
}

fn starlink() -> Constellation {
    let toml = include_str!("../../../data/constellations/starlink-shell1.toml");
    Constellation::parse(toml, "starlink-shell1.toml").expect("a constellation")
}

/// Synthetic elements like Starlink's in the public catalogue: low, nearly circular, with drag.
fn element_sets() -> Constellation {
    let base = starlink();
    let set = |n: u32| {
        let n = f64::from(n);
        ElementSet::new(MeanElements {
            name: format!("S{n}"),
            catalogue_number: n as u64,
            epoch: base.epoch,
            inclination_deg: [43.0, 53.0, 53.2, 70.0, 97.6][n as usize % 5],
            node_deg: (n * 5.0) % 360.0,
            eccentricity: 1e-4 + 1e-8 * n,
            perigee_deg: (n * 7.0) % 360.0,
            anomaly_deg: (n * 16.4) % 360.0,
            mean_motion_rev_per_day: 15.05 + 1e-5 * n,
            bstar: 2e-4,
        })
        .expect("elements")
    };
    let element_sets = (0..10_000).map(set).collect();
    Constellation { shells: Vec::new(), element_sets, ..base.clone() }
}

fn request(relay: Relay, handover: &str) -> PathRequest {
    let constellation = starlink();
    let lattice = |n: u32| {
        let (row, column) = (f64::from(n / 16), f64::from(n % 16));
        Place::new(&format!("gateway {n}"), 27.0 + 4.5 * row, -124.0 + 3.5 * column)
    };
    PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("San Diego", 32.881, -117.237),
        to: Place::new("New York", 40.845, -73.932),
        gateways: (0..95).map(lattice).collect(),
        relay: Some(relay),
        handover: handover.to_owned(),
        outage: OutageModel::Leoem,
        intermediate_outage: Duration::ZERO,
        compat: Compat::None,
        step: Duration::from_secs(1),
        duration: Duration::from_secs(STEPS),
        seed: 0,
        options: PathOptions {
            pops: vec![Place::new("Los Angeles", 34.05, -118.24)],
            ..PathOptions::default()
        },
    }
}

/// Lattice of a hundred sites at the latitudes where most people live.
fn sites() -> Vec<Place> {
    let site = |n: u32| {
        let (row, column) = (f64::from(n / 20), f64::from(n % 20));
        Place::new(&format!("site {n}"), -30.0 + 18.0 * row, -171.0 + 18.0 * column)
    };
    (0..100).map(site).collect()
}
