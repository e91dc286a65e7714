//! Handovers of the routes of a network: they are those of the path between the same places.

use std::ops::ControlFlow;

use skyhop_model::PathEventKind;
use skyhop_path::failures::{Failure, Part};
use skyhop_path::network::{NetworkRequest, NetworkSteps, Role, RoutePair};
use skyhop_path::routing::RoutingKind;
use skyhop_path::{PathEvent, PathRequest, Place};
use skyhop_units::{Duration, Instant};

use crate::network::{request, request_of_path, small};

fn places() -> Vec<Place> {
    let all = [
        ("London", 51.5, -0.1),
        ("Tokyo", 35.7, 139.7),
        ("Lagos", 6.5, 3.4),
        ("Lima", -12.0, -77.0),
    ];
    all.map(|(name, lat, lon)| Place::new(name, lat, lon)).to_vec()
}

fn network() -> NetworkRequest {
    let base = request(small(), places(), skyhop_model::Compat::None);
    NetworkRequest {
        every: Some(Duration::from_secs(5)),
        duration: Duration::from_secs(1_800),
        ..base
    }
}

fn pair(sites: [u32; 2]) -> RoutePair {
    RoutePair { sites, way: 0 }
}

fn of_path(network: &NetworkRequest, [from, to]: [usize; 2], handover: &str) -> Vec<PathEvent> {
    let request = PathRequest {
        from: network.sites[from].clone(),
        to: network.sites[to].clone(),
        step: network.every.unwrap(),
        handover: handover.to_owned(),
        ..request_of_path(network)
    };
    let trace = skyhop_path::compute(&request, |_, _| ControlFlow::Continue(())).unwrap();
    trace.events().cloned().collect()
}

#[test]
fn each_pair_has_the_events_of_its_path() {
    let network = network();
    let found = network.route_events(&[pair([0, 1]), pair([2, 3]), pair([3, 2])], 1).unwrap();
    for (events, ends) in found.iter().zip([[0, 1], [2, 3], [3, 2]]) {
        assert_eq!(events, &of_path(&network, ends, "immediate"), "{ends:?}");
        let ends = events.iter().filter(|event| event.kind == PathEventKind::End);
        assert!(ends.count() >= 4, "{events:?}");
    }
    assert_ne!(found[0], found[1]);
}

#[test]
fn a_terminal_with_a_policy_has_the_handovers_of_that_policy() {
    let roles = vec![Role::Terminal { handover: "nearest-grid".to_owned() }; 4];
    let network = NetworkRequest { roles, ..network() };
    let found = network.route_events(&[pair([0, 1])], 2).unwrap();
    assert_eq!(found[0], of_path(&network, [0, 1], "nearest-grid"));
    let immediate = of_path(&network, [0, 1], "immediate");
    assert_ne!(found[0], immediate);
}

#[test]
fn a_gateway_has_links_in_the_middle_of_the_path() {
    let roles = vec![Role::default(), Role::Gateway, Role::Gateway, Role::PointOfPresence];
    let sites = vec![
        Place::new("Munich", 48.1, 11.6),
        Place::new("Frankfurt", 50.1, 8.7),
        Place::new("Madrid", 40.4, -3.7),
        Place::new("Paris", 48.9, 2.4),
    ];
    let network = NetworkRequest { roles, sites, has_lasers: false, ..network() };
    let found = network.route_events(&[pair([0, 1]), pair([0, 3]), pair([3, 0])], 1).unwrap();
    for events in &found {
        let of = |kind| events.iter().filter(move |event| event.kind == kind).map(|event| event.at);
        let [ends, middle] = [PathEventKind::End, PathEventKind::Intermediate]
            .map(|kind| of(kind).collect::<Vec<_>>());
        assert!(ends.len() >= 4, "the terminal changes its satellite: {events:?}");
        // The gateway stays, so that its link to the satellite changes whenever the terminal's does.
        assert_eq!(ends, middle);
    }
    // The hops of the mirrored pair count from the other end.
    let hops = |events: &[PathEvent]| events.iter().map(|event| event.hop).collect::<Vec<_>>();
    assert_ne!(hops(&found[1]), hops(&found[2]));
}

#[test]
fn satellites_that_stand_still_have_no_handovers() {
    let network = NetworkRequest { every: None, ..network() };
    assert_eq!(network.route_events(&[pair([0, 1])], 1).unwrap(), [Vec::new()]);
}

/// Satellite in the middle of the route of the first two sites at the start.
fn middle_satellite(network: &NetworkRequest) -> u32 {
    let step = NetworkSteps::new(network.clone(), 1).unwrap().step();
    let satellites: Vec<u32> = step.routes[1].satellites(0).collect();
    assert!(satellites.len() >= 3, "{satellites:?}");
    satellites[1]
}

#[test]
fn a_failure_loses_the_route_until_one_without_it_is_computed() {
    let snapshot = RoutingKind::Snapshot(Duration::from_secs(30));
    let middle = Part::Satellite(middle_satellite(&network()));
    let at = |seconds| Instant::START + Duration::from_secs(seconds);
    let lost =
        |from, until| [(PathEventKind::Lost, at(from)), (PathEventKind::Restored, at(until))];
    for (part, routing, expected) in [
        (Part::Site(1), RoutingKind::default(), Some(lost(2, 10))),
        // Routes lead around a satellite from the next computation on.
        (middle, RoutingKind::default(), None),
        // A snapshot keeps its routes, whose hops are looked up at each interval.
        (middle, snapshot, Some(lost(5, 10))),
    ] {
        let mut network = NetworkRequest { routing, ..network() };
        let failure = Failure { part, from: at(2), until: at(8) };
        network.options.failures = vec![failure].into();
        let events = network.route_events(&[pair([0, 1])], 1).unwrap().remove(0);
        match expected {
            Some(expected) => {
                let first: Vec<_> =
                    events.iter().map(|event| (event.kind, event.at)).take(2).collect();
                assert_eq!(first, expected, "{part:?}");
            }
            None => {
                assert_eq!(events[0].at, at(5));
                assert!(events.iter().all(|event| event.kind != PathEventKind::Lost), "{events:?}");
            }
        }
    }
}
