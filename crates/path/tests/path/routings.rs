//! Properties of every routing, and what the routings differ in.

use proptest::prelude::*;
use skyhop_model::Compat;
use skyhop_path::Place;
use skyhop_path::failures::{Failure, Part};
use skyhop_path::network::{NetworkRequest, NetworkStep, NetworkSteps};
use skyhop_path::routing::{NextHop, Node, ROUTINGS, RoutingKind, way_of};
use skyhop_path::topology::grid_links;
use skyhop_units::{Duration, Instant};

use crate::network::{STEP, followed, request, small};

const SATELLITES: usize = 16 * 12;

fn network(positions: &[(f64, f64)]) -> NetworkRequest {
    let place = |(n, (lat, lon)): (usize, &(f64, f64))| Place::new(&n.to_string(), *lat, *lon);
    let sites = positions.iter().enumerate().map(place).collect();
    NetworkRequest { duration: Duration::from_secs(60), ..request(small(), sites, Compat::None) }
}

fn steps(request: &NetworkRequest, count: usize, threads: usize) -> Vec<NetworkStep> {
    let mut steps = NetworkSteps::new(request.clone(), threads).unwrap();
    (0..count).map(|_| steps.step()).collect()
}

/// Check the routes of a step: every hop exists, and no route has a loop.
fn check(request: &NetworkRequest, step: &NetworkStep) {
    let links = grid_links(&request.constellation.shells[0], 0, Compat::None, true);
    let sees = |site: usize, satellite: u32| {
        step.sights[site].iter().any(|sight| sight.satellite == satellite)
    };
    let ways = request.routing.ways() as usize;
    assert_eq!(step.routes.len(), request.destinations.len() * ways);
    let each_way = |destination| std::iter::repeat_n(destination, ways);
    let destinations = request.destinations.iter().flat_map(each_way);
    for (destination, routes) in destinations.zip(step.routes.iter()) {
        assert_eq!(
            (routes.all_next().len(), routes.all_up().len()),
            (SATELLITES, request.sites.len())
        );
        for (satellite, next) in (0..).zip(routes.all_next()) {
            match next {
                None => {}
                Some(last) if last == satellite => assert!(sees(*destination as usize, last)),
                Some(next) => {
                    let is_laser = |(a, b): &(u32, u32)| {
                        [*a, *b] == [satellite, next] || [*b, *a] == [satellite, next]
                    };
                    assert!(links.iter().any(is_laser), "{satellite} {next}");
                }
            }
            let mut here = Some(satellite);
            let mut hops = 0;
            while let Some(node) = here {
                here = routes.next(node).filter(|next| *next != node);
                hops += 1;
                assert!(hops <= SATELLITES, "the route from {satellite} has a loop");
            }
        }
        for (site, up) in routes.all_up().enumerate() {
            assert!(up.is_none_or(|(first, _)| sees(site, first)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn hops_exist_and_routes_end_with_every_routing(
        positions in prop::collection::vec((-60.0..60.0_f64, -180.0..180.0_f64), 2..5),
        failing in prop::collection::vec((0_u32..SATELLITES as u32, 0_u64..900), 0..30),
        routing in prop::sample::select(&ROUTINGS),
        every in prop::sample::select(vec![Some(STEP), Some(STEP * 50), None]),
    ) {
        let mut request = NetworkRequest { every, ..network(&positions) };
        request.routing = (routing.example)(&request);
        let failure = |(number, from): (u32, u64)| Failure {
            part: Part::Satellite(number),
            from: Instant::START + Duration::from_millis(from),
            until: Instant::NEVER,
        };
        request.options.failures = failing.into_iter().map(failure).collect::<Vec<_>>().into();
        let alone = steps(&request, 8, 1);
        alone.iter().for_each(|step| check(&request, step));
        prop_assert!(steps(&request, 8, 3) == alone, "with three threads");
        let text = serde_json::to_string(&request).unwrap();
        prop_assert_eq!(serde_json::from_str::<NetworkRequest>(&text).unwrap().routing, request.routing);
    }
}

#[test]
fn every_routing_has_a_name_and_a_summary_of_its_own_and_begins_with_the_shortest_routes() {
    let request = network(&[(40.0, -74.0), (51.5, 0.0), (-33.9, 151.2)]);
    let shortest = steps(&request, 1, 1);
    for (place, entry) in
        ROUTINGS.iter().enumerate().filter(|(_, entry)| entry.name != "equal-cost")
    {
        assert!(
            ROUTINGS[..place]
                .iter()
                .all(|other| other.name != entry.name && other.summary != entry.summary)
        );
        let routing = (entry.example)(&request);
        let step = &steps(&NetworkRequest { routing, ..request.clone() }, 1, 1)[0];
        for (ours, expected) in step.routes.iter().zip(shortest[0].routes.iter()) {
            assert!(ours.all_next().eq(expected.all_next()), "{}", entry.name);
            for (ours, expected) in ours.all_up().zip(expected.all_up()) {
                let (ours, expected) = (ours.unwrap(), expected.unwrap());
                assert_eq!(ours.0, expected.0);
                assert!(ours.1.as_nanos().abs_diff(expected.1.as_nanos()) <= 2, "{}", entry.name);
            }
        }
    }
}

#[test]
fn snapshots_hold_and_lose_the_hops_that_end() {
    let request =
        NetworkRequest { every: Some(STEP * 20), ..network(&[(40.0, -74.0), (-33.9, 151.2)]) };
    let of = |routing: RoutingKind| steps(&NetworkRequest { routing, ..request.clone() }, 30, 2);
    let (shortest, held) = (of(RoutingKind::Shortest), of(RoutingKind::Snapshot(STEP * 200)));
    let mut broken = 0;
    for (number, (step, shortest)) in held.iter().zip(&shortest).enumerate() {
        assert_eq!(step.sights, shortest.sights);
        let first = &held[number - number % 10];
        if number % 10 == 0 {
            assert_eq!(step.routes, shortest.routes, "a snapshot begins");
        }
        for (now, then) in step.routes.iter().zip(first.routes.iter()) {
            for (now, then) in now.all_next().zip(then.all_next()) {
                assert!(now == then || now.is_none(), "hops stay or end");
                broken += u32::from(now != then);
            }
        }
    }
    assert!(broken > 0, "satellites set within 20 s");
    assert!(
        held.iter()
            .zip(&shortest)
            .any(|(held, shortest)| followed(held, 0, 1) != followed(shortest, 0, 1))
    );
}

#[test]
fn tables_with_loops_or_unknown_nodes_are_refused() {
    let of = |rows: &[(Node, u32, u32)]| {
        let row = |&(at, destination, next): &(Node, u32, u32)| NextHop { at, destination, next };
        let routing = RoutingKind::Table(rows.iter().map(row).collect());
        NetworkRequest { routing, ..network(&[(0.0, 0.0), (10.0, 10.0)]) }
            .validate()
            .map_err(|error| error.to_string())
    };
    use Node::{Satellite, Site};
    assert_eq!(
        of(&[(Satellite(0), 1, 1), (Satellite(1), 1, 2), (Satellite(2), 1, 2), (Site(0), 1, 0)]),
        Ok(())
    );
    assert_eq!(of(&[(Satellite(0), 1, 1), (Satellite(1), 0, 0)]), Ok(()), "destinations are apart");
    assert_eq!(
        of(&[(Satellite(7), 1, 5), (Satellite(5), 1, 6), (Satellite(6), 1, 5)]).unwrap_err(),
        "the table's routes to site 1 have a loop over satellite 5; expected routes that end"
    );
    for row in [(Satellite(192), 0, 1), (Site(2), 0, 1), (Site(0), 2, 1), (Site(0), 1, 192)] {
        assert!(of(&[row]).unwrap_err().contains("the table has the row"), "{row:?}");
    }
}

#[test]
fn ways_of_equal_cost_differ_and_are_as_long_as_the_slack_allows() {
    let request = network(&[(40.0, -74.0), (51.5, 0.0), (-33.9, 151.2)]);
    let shortest = &steps(&request, 1, 1)[0];
    let (slack, ways) = (Duration::from_micros(500), 16);
    let routing = RoutingKind::EqualCost { slack, ways };
    let step = &steps(&NetworkRequest { routing, ..request.clone() }, 1, 1)[0];
    let ways = ways as usize;
    let mut longer = 0;
    for to in 0..3 {
        for from in (0..3).filter(|from| *from != to) {
            let (_, least) = shortest.routes[to].up(from as u32).unwrap();
            for way in 0..ways {
                let routes = &step.routes[to * ways + way];
                let (first, delay) = routes.up(from as u32).unwrap();
                let mut hops = 1;
                let mut here = first;
                while let Some(next) = routes.next(here).filter(|next| *next != here) {
                    here = next;
                    hops += 1;
                }
                assert_eq!(routes.next(here), Some(here), "the route ends at the destination");
                assert!(delay.as_nanos() + 2 >= least.as_nanos());
                assert!(delay <= least + slack * (hops + 1), "{delay} {least} {hops}");
                longer += u32::from(delay > least + Duration::from_micros(1));
            }
        }
    }
    assert!(longer > 0, "flows are spread over longer routes as well");
    let different = |to: usize| {
        (1..ways).filter(|way| step.routes[to * ways] != step.routes[to * ways + way]).count()
    };
    assert!((0..3).all(|to| different(to) > ways / 2));
    // Without slack, every way has the least delay.
    let routing = RoutingKind::EqualCost { slack: Duration::ZERO, ways: 2 };
    let step = &steps(&NetworkRequest { routing, ..request }, 1, 1)[0];
    for to in 0..3 {
        for from in (0..3).filter(|from| *from != to) {
            let (ours, least) = (
                step.routes[2 * to].up(from as u32).unwrap().1,
                shortest.routes[to].up(from as u32).unwrap().1,
            );
            assert!(ours.as_nanos().abs_diff(least.as_nanos()) <= 2);
        }
    }
}

#[test]
fn flows_are_spread_evenly_over_ways() {
    for ways in [1, 2, 7, 64] {
        let mut counts = vec![0_u32; ways as usize];
        for flow in 0..10_000 {
            counts[way_of(flow, ways) as usize] += 1;
        }
        let expected = 10_000 / ways;
        assert!(
            counts.iter().all(|count| count.abs_diff(expected) <= expected / 4),
            "{ways} {counts:?}"
        );
    }
}
