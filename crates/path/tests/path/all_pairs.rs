//! All pairs at once compared with one pair at a time.

use skyhop_model::{Compat, Relay};
use std::ops::ControlFlow;

use skyhop_orbit::Constellation;
use skyhop_path::all_pairs::{AllPairs, DelayEncoder, pairs};
use skyhop_path::handover::{IMMEDIATE, POLICIES};
use skyhop_path::{OutageModel, PathFrames, PathOptions, PathRequest, Place, compute};
use skyhop_units::Duration;

use crate::simple_pairs::simple_pairs;

fn sites() -> Vec<Place> {
    vec![
        Place::new("San Diego", 32.881, -117.237),
        Place::new("New York", 40.845, -73.932),
        Place::new("Seattle", 47.608, -122.335),
        Place::new("London", 51.51, -0.11),
        Place::new("Longyearbyen", 78.22, 15.65),
    ]
}

fn request(relay: Relay, from: &Place, to: &Place) -> PathRequest {
    let toml = include_str!("../../../../data/constellations/starlink-shell1.toml");
    let constellation = Constellation::parse(toml, "starlink-shell1.toml").unwrap();
    let gateway = |n: u32| {
        let (row, column) = (f64::from(n / 8), f64::from(n % 8));
        Place::new(&format!("gateway {n}"), 28.0 + 5.0 * row, -123.0 + 6.5 * column)
    };
    PathRequest {
        start: constellation.epoch,
        constellation,
        from: from.clone(),
        to: to.clone(),
        gateways: (0..40).map(gateway).collect(),
        relay: Some(relay),
        handover: "immediate".to_owned(),
        outage: OutageModel::None,
        intermediate_outage: Duration::ZERO,
        compat: Compat::None,
        step: Duration::from_secs(7),
        duration: Duration::from_secs(140),
        seed: 0,
        options: PathOptions::default(),
    }
}

#[test]
fn all_pairs_are_what_each_pair_alone_is() {
    let sites = sites();
    for relay in [Relay::Isl, Relay::BentPipe] {
        let shared = request(relay, &sites[0], &sites[1]);
        let steps: Vec<_> = AllPairs::new(&shared, &sites).unwrap().collect();
        assert_eq!(steps.len(), 20);
        let mut pair = 0;
        for from in 0..sites.len() {
            for to in from + 1..sites.len() {
                let alone = request(relay, &sites[from], &sites[to]);
                let trace = compute(&alone, |_, _| ControlFlow::Continue(()));
                let mut route = Vec::new();
                for (index, step) in steps.iter().enumerate() {
                    if let Some(change) = step.changes.iter().find(|c| c.pair == pair) {
                        route = change.nodes.iter().map(|node| *node as i32).collect();
                    }
                    let frame = trace.as_ref().ok().map(|trace| &trace.frames[index]);
                    let Some(frame) = frame.filter(|frame| frame.delay.is_some()) else {
                        assert_eq!((route.len(), step.delays[pair as usize]), (0, Duration::ZERO));
                        continue;
                    };
                    assert_eq!(route, frame.nodes[1..frame.nodes.len() - 1]);
                    let ours_ns = step.delays[pair as usize].as_nanos();
                    // Each hop of a frame is rounded to a nanosecond.
                    assert!(ours_ns.abs_diff(frame.delay.unwrap().as_nanos()) < 30);
                }
                pair += 1;
            }
        }
        assert_eq!(pair as usize, pairs(sites.len()));
    }
}

#[test]
fn a_site_beyond_the_constellation_has_no_path() {
    let sites = sites();
    let shared = request(Relay::Isl, &sites[0], &sites[1]);
    let step = AllPairs::new(&shared, &sites).unwrap().next().unwrap();
    // Pairs with Longyearbyen are the fourth, seventh, ninth and tenth.
    let without: Vec<bool> = step.delays.iter().map(|delay| *delay == Duration::ZERO).collect();
    let expected = (0..10).map(|pair| [3, 6, 8, 9].contains(&pair)).collect::<Vec<_>>();
    assert_eq!(without, expected);
    assert_eq!(step.changes.len(), 6);
}

#[test]
fn encoded_delays_add_up_twice_to_the_delays_and_are_small() {
    let sites = sites();
    let shared = request(Relay::Isl, &sites[0], &sites[1]);
    let shared = PathRequest { step: Duration::from_secs(1), ..shared };
    let mut encoder = DelayEncoder::default();
    let (mut delay_ns, mut change_ns) = (vec![0_i64; 10], vec![0_i64; 10]);
    let mut small = 0;
    for step in AllPairs::new(&shared, &sites).unwrap() {
        for (pair, difference_ns) in encoder.encode(&step.delays).into_iter().enumerate() {
            change_ns[pair] += difference_ns;
            delay_ns[pair] += change_ns[pair];
            assert_eq!(delay_ns[pair] as u64, step.delays[pair].as_nanos());
            small += usize::from(difference_ns.abs() < 1_000);
        }
    }
    assert!(small as f64 > 0.9 * 1_400.0, "{small} of 1400 below 1 us");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sites = sites();
    let shared = request(Relay::Isl, &sites[0], &sites[1]);
    let message = |result: Result<AllPairs<'_>, _>| match result {
        Err(error) => skyhop_path::PathError::to_string(&error),
        Ok(_) => panic!("accepted"),
    };
    assert!(message(AllPairs::new(&shared, &sites[..1])).contains("at least two"));
    let pops = vec![sites[0].clone()];
    let options = PathOptions { pops, ..PathOptions::default() };
    let access = PathRequest { relay: Some(Relay::Access), options, ..shared.clone() };
    assert!(message(AllPairs::new(&access, &sites)).contains("isl or bent-pipe"));
    let nowhere = [sites[0].clone(), Place::new("nowhere", 95.0, 0.0)];
    assert!(message(AllPairs::new(&shared, &nowhere)).contains("nowhere"));
}

/// Pairs at steps of Starlink's first shell, over which the order of nodes changes and two ways around a plane are equally
/// long.
#[test]
fn starlinks_pairs_are_simple_pairs_for_any_number_of_threads() {
    let sites = sites();
    for (relay, step_s) in [(Relay::Isl, 1), (Relay::Isl, 60), (Relay::BentPipe, 15)] {
        let shared = request(relay, &sites[0], &sites[1]);
        let step = Duration::from_secs(step_s);
        let shared = PathRequest { step, duration: step * 40, ..shared };
        let simple = simple_pairs(&shared, &sites);
        for threads in [1, 2, 8] {
            let pairs = AllPairs::new(&shared, &sites).unwrap();
            let fast: Vec<_> = pairs.with_threads(threads.try_into().unwrap()).collect();
            assert_eq!(fast, simple, "{relay}, {step_s} s, {threads} threads");
        }
    }
}

#[test]
fn pairs_by_a_handover_policy_are_what_each_pair_alone_is() {
    let sites = sites();
    for (relay, compat) in [
        (Relay::Isl, Compat::None),
        (Relay::BentPipe, Compat::None),
        (Relay::Isl, Compat::Leoem),
        (Relay::BentPipe, Compat::Leoem),
    ] {
        for policy in POLICIES.iter().filter(|policy| policy.name != IMMEDIATE) {
            let of_policy = |from: &Place, to: &Place| PathRequest {
                compat,
                handover: policy.name.to_owned(),
                ..request(relay, from, to)
            };
            let shared = of_policy(&sites[0], &sites[1]);
            let steps: Vec<_> = AllPairs::new(&shared, &sites).unwrap().collect();
            let ends = (0..sites.len()).flat_map(|a| (a + 1..sites.len()).map(move |b| (a, b)));
            let mut changes = 0;
            for (pair, (from, to)) in ends.enumerate() {
                let alone = of_policy(&sites[from], &sites[to]);
                let mut route = Vec::new();
                for (frame, step) in PathFrames::new(&alone).unwrap().zip(&steps) {
                    if let Some(change) = step.changes.iter().find(|c| c.pair as usize == pair) {
                        route = change.nodes.iter().map(|node| *node as i32).collect();
                        changes += 1;
                    }
                    let inner = frame.nodes.len().saturating_sub(1);
                    assert_eq!(route, frame.nodes[inner.min(1)..inner], "{}", policy.name);
                    assert_eq!(step.delays[pair], frame.delay.unwrap_or(Duration::ZERO));
                }
            }
            assert!(changes > 10, "{relay} {compat} {}: {changes} changes", policy.name);
        }
    }
}
