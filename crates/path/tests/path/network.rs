//! Geometry of whole networks: the routes hop by hop are those between each pair.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use skyhop_model::{Compat, Relay};
use skyhop_orbit::{Constellation, Ephemeris};
use skyhop_path::all_pairs::AllPairs;
use skyhop_path::network::{NetworkRequest, NetworkStep, NetworkSteps};
use skyhop_path::routing::RoutingKind;
use skyhop_path::{OutageModel, PathOptions, PathRequest, Place};
use skyhop_units::{Duration, Instant};

pub(crate) const STEP: Duration = Duration::from_millis(100);

fn kuiper() -> Constellation {
    let toml = include_str!("../../../../data/constellations/kuiper-630-hypatia.toml");
    Constellation::parse(toml, "kuiper-630-hypatia.toml").unwrap()
}

/// A shell of 16 planes with 12 satellites.
pub(crate) fn small() -> Constellation {
    let toml = "description = 'a small shell'\nsource = 'none'\nepoch = '2026-11-01T00:00:00Z'\n\
                minimum_elevation_deg = 10.0\n[[shell]]\nplanes = 16\nsatellites_per_plane = 12\n\
                altitude = '1200 km'\ninclination_deg = 70.0\nphasing = 3\n";
    Constellation::parse(toml, "small.toml").unwrap()
}

pub(crate) fn request(
    constellation: Constellation,
    sites: Vec<Place>,
    compat: Compat,
) -> NetworkRequest {
    NetworkRequest {
        start: constellation.epoch,
        constellation,
        destinations: (0..sites.len() as u32).collect(),
        sites,
        every: Some(STEP),
        duration: STEP * 20,
        routing: RoutingKind::default(),
        roles: Vec::new(),
        has_lasers: true,
        compat,
        options: PathOptions::default(),
    }
}

/// Request for the path over lasers between the first two sites of a network, which is the shortest at each step.
pub(crate) fn request_of_path(network: &NetworkRequest) -> PathRequest {
    PathRequest {
        constellation: network.constellation.clone(),
        from: network.sites[0].clone(),
        to: network.sites[1].clone(),
        gateways: Vec::new(),
        relay: Some(Relay::Isl),
        handover: "immediate".to_owned(),
        outage: OutageModel::None,
        intermediate_outage: Duration::ZERO,
        compat: network.compat,
        start: network.start,
        step: STEP,
        duration: network.duration,
        seed: 0,
        options: network.options.clone(),
    }
}

/// Satellites that a packet from one site to another passes while the routes of a step hold.
pub(crate) fn followed(step: &NetworkStep, from: usize, to: usize) -> Vec<u32> {
    let routes = &step.routes[to];
    let Some((first, _)) = routes.up(from as u32) else { return Vec::new() };
    let mut passed = vec![first];
    while let Some(next) = routes.next(*passed.last().unwrap())
        && next != *passed.last().unwrap()
    {
        assert!(passed.len() < 100, "the route has a loop");
        passed.push(next);
    }
    passed
}

#[test]
fn manila_to_dalian_goes_hop_by_hop_over_the_published_path() {
    let file = skyhop_needs::reference("hypatia/kuiper630_manila_dalian_path.txt");
    let Some(file) = file else { return };
    let text = fs::read_to_string(file).unwrap();
    let changes: Vec<(u64, Vec<u32>)> = text
        .lines()
        .map(|line| {
            let (at, path) = line.split_once(',').unwrap();
            let nodes: Vec<u32> = path.split('-').map(|node| node.parse().unwrap()).collect();
            (at.parse().unwrap(), nodes[1..nodes.len() - 1].to_vec())
        })
        .collect();
    let sites =
        vec![Place::new("Manila", 14.6042, 120.9822), Place::new("Dalian", 38.913811, 121.602322)];
    let mut steps = NetworkSteps::new(request(kuiper(), sites, Compat::Hypatia), 2).unwrap();
    let (mut same, count) = (0, 300);
    for _ in 0..count {
        let step = steps.step();
        let (_, path) = changes.iter().rfind(|(at, _)| *at <= step.from.as_nanos()).unwrap();
        same += u32::from(followed(&step, 0, 1) == *path);
        let back: Vec<u32> = followed(&step, 1, 0).into_iter().rev().collect();
        same += u32::from(back == *path);
    }
    assert_eq!(same, 2 * count);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn routes_hop_by_hop_are_those_of_all_pairs(
        places in prop::collection::vec((-75.0..75.0_f64, -180.0..180.0_f64), 2..7),
        threads in 1_usize..4,
    ) {
        let sites: Vec<Place> =
            places.iter().enumerate().map(|(n, (lat, lon))| Place::new(&n.to_string(), *lat, *lon)).collect();
        let request = request(small(), sites.clone(), Compat::None);
        let of_paths = request_of_path(&request);
        let mut steps = NetworkSteps::new(request.clone(), threads).unwrap();
        let mut routes = BTreeMap::new();
        for of_pairs in AllPairs::new(&of_paths, &sites).unwrap() {
            let step = steps.step();
            prop_assert_eq!(step.from, of_pairs.at);
            routes.extend(of_pairs.changes.into_iter().map(|change| (change.pair, change.nodes)));
            let mut pair = 0;
            for from in 0..sites.len() {
                for to in from + 1..sites.len() {
                    let expected = routes.get(&pair).cloned().unwrap_or_default();
                    let delay = of_pairs.delays[pair as usize];
                    prop_assert_eq!(&followed(&step, from, to), &expected);
                    let ours = step.routes[to].up(from as u32).map_or(Duration::ZERO, |(_, delay)| delay);
                    prop_assert!(ours.as_nanos().abs_diff(delay.as_nanos()) <= 2, "{} {}", ours, delay);
                    pair += 1;
                }
            }
        }
    }
}

#[test]
fn lasers_are_as_long_as_their_satellites_are_apart() {
    let sites = vec![Place::new("a", 0.0, 0.0), Place::new("b", 10.0, 90.0)];
    let request = NetworkRequest {
        duration: Duration::from_secs(60),
        ..request(small(), sites, Compat::None)
    };
    let lasers = request.lasers().unwrap();
    assert!(lasers.is_sorted_by_key(|laser| (laser.from, laser.to)));
    // Four neighbours of each satellite.
    assert_eq!(lasers.len(), 4 * 16 * 12);
    let ephemeris = Ephemeris::new(&request.constellation, skyhop_orbit::EarthModel::Wgs84);
    let mut points = 0;
    for second in [0, 7, 30, 59] {
        let mut positions = Vec::new();
        let after = Duration::from_secs(second) + Duration::from_millis(500);
        ephemeris.earth_fixed(request.start.after(after), &mut positions);
        for laser in lasers.iter().filter(|laser| laser.breaks.is_empty()) {
            let distance_m = positions[laser.from as usize].distance(positions[laser.to as usize]);
            let expected_ns = distance_m / skyhop_orbit::LIGHT_M_PER_S * 1e9;
            let at = Instant::START + after;
            let next = laser.delays.partition_point(|(from, _)| *from <= at);
            let [(begin, first), (end, last)] =
                [laser.delays[next - 1], laser.delays[next.min(laser.delays.len() - 1)]];
            let share = (at - begin).as_secs_f64() / (end - begin).as_secs_f64().max(1e-9);
            let ours_ns = first.as_nanos() as f64 * (1.0 - share) + last.as_nanos() as f64 * share;
            assert!((ours_ns - expected_ns).abs() < 110.0, "{ours_ns} {expected_ns}");
            points += laser.delays.len();
        }
    }
    println!("{} points of {}", points / 4, 61 * lasers.len());
    assert!(points / 4 < 61 * lasers.len() / 4, "points on a line are left out");
}
