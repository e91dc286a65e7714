//! One pair over one orbit: 5,731 steps of 1 s, 1,584 satellites.

use skyhop_model::{Compat, Relay};
use std::hint::black_box;
use std::ops::ControlFlow;

use divan::Bencher;
use divan::counter::ItemsCount;
use skyhop_orbit::Constellation;
use skyhop_path::{OutageModel, PathOptions, PathRequest, Place, compute};
use skyhop_units::Duration;

const STEPS: u64 = 5731;

fn main() {
    divan::main();
}

/// Measure computed frames per second, in each compatibility mode.
#[divan::bench(args = ["isl none", "isl leoem", "bent-pipe none", "bent-pipe leoem"], sample_count = 3, sample_size = 1)]
fn one_orbit(bencher: Bencher<'_, '_>, case: &str) {
    let (relay, compat) = case.split_once(' ').expect("a relay and a mode");
    let request = request(relay.parse().expect("a relay"), compat.parse().expect("a mode"));
    bencher
        .counter(ItemsCount::new(STEPS))
        .bench_local(|| compute(black_box(&request), |_, _| ControlFlow::Continue(())));
}

fn request(relay: Relay, compat: Compat) -> PathRequest {
    let toml = include_str!("../../../data/constellations/leoem-starlink.toml");
    let constellation = Constellation::parse(toml, "leoem-starlink.toml").expect("a constellation");
    PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("San Diego", 32.881, -117.237),
        to: Place::new("New York", 40.845, -73.932),
        gateways: gateways(),
        relay: Some(relay),
        handover: "leoem".to_owned(),
        outage: OutageModel::Leoem,
        intermediate_outage: Duration::ZERO,
        compat,
        step: Duration::from_secs(1),
        duration: Duration::from_secs(STEPS),
        seed: 0,
        options: PathOptions::default(),
    }
}

/// Gateways on a lattice over North America, as many as in LeoEM.
fn gateways() -> Vec<Place> {
    let lattice = |index: u32| {
        let (row, column) = (f64::from(index / 16), f64::from(index % 16));
        Place::new(&format!("gateway {index}"), 27.0 + 4.5 * row, -124.0 + 3.5 * column)
    };
    (0..95).map(lattice).collect()
}
