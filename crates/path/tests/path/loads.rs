//! Loads of a network's links from demands between its sites.

use std::collections::BTreeMap;

use proptest::prelude::*;
use skyhop_model::Compat;
use skyhop_path::Place;
use skyhop_path::failures::{Failure, Part};
use skyhop_path::network::{Demand, Leg, Links, Loads, NetworkRequest, NetworkStep, NetworkSteps};
use skyhop_path::routing::RoutingKind;
use skyhop_units::{Duration, Instant, Rate};

use crate::network::{STEP, followed, request, small};

const MBPS: u64 = 1_000_000;

fn demand(from: u32, to: u32, rate_bps: u64) -> Demand {
    let rate = Rate::from_bits_per_second(rate_bps);
    Demand { from, to, rate, begins: Instant::START, ends: Instant::NEVER }
}

/// Four sites of a small shell that stands still; B and C are next to each other.
fn still() -> NetworkRequest {
    let sites = [("A", 40.0, 5.0), ("B", -10.0, 60.0), ("C", -10.0, 60.1), ("D", 10.0, -70.0)];
    let sites = sites.iter().map(|(name, lat, lon)| Place::new(name, *lat, *lon)).collect();
    NetworkRequest { every: None, ..request(small(), sites, Compat::None) }
}

fn plenty(_: Leg) -> Rate {
    Rate::from_bits_per_second(1_000_000 * MBPS)
}

/// Links of a route in a step.
fn legs(step: &NetworkStep, from: u32, to: u32) -> Vec<Leg> {
    let passed = followed(step, from as usize, to as usize);
    let Some(last) = passed.last() else { return Vec::new() };
    let lasers = passed.windows(2).map(|pair| Leg::Laser(pair[0], pair[1]));
    [Leg::Up(from)].into_iter().chain(lasers).chain([Leg::Down(*last)]).collect()
}

fn first_step(request: &NetworkRequest) -> NetworkStep {
    NetworkSteps::new(request.clone(), 1).unwrap().step()
}

/// Loads in bit/s at a time.
fn at(loads: &Loads, time: Instant) -> BTreeMap<Leg, u64> {
    let of = |(leg, pieces): (&Leg, &Vec<(Instant, Rate)>)| {
        let (_, load) = pieces.iter().rfind(|(from, _)| *from <= time).unwrap();
        (*leg, load.bits_per_second())
    };
    loads.legs.iter().map(of).filter(|(_, load)| *load > 0).collect()
}

fn total_bits(rate_bps: u64, duration: Duration) -> f64 {
    rate_bps as f64 * duration.as_secs_f64()
}

/// Links of a network whose sites share downlinks.
fn links(room: &dyn Fn(Leg) -> Rate) -> Links<'_> {
    Links { room, last: &|satellite, _| Leg::Down(satellite) }
}

#[test]
fn a_demand_loads_each_link_of_its_route_with_its_rate() {
    let request = still();
    let loads = request.loads(&[demand(0, 3, 7 * MBPS)], links(&plenty), 1).unwrap();
    let expected = legs(&first_step(&request), 0, 3);
    assert!(expected.len() > 3, "{expected:?}");
    let rate = Rate::from_bits_per_second(7 * MBPS);
    let pieces = expected.into_iter().map(|leg| (leg, vec![(Instant::START, rate)])).collect();
    assert_eq!(loads.legs, pieces);
    let bits = total_bits(7 * MBPS, request.duration);
    assert_eq!([loads.demanded_bits, loads.routed_bits, loads.carried_bits], [bits; 3]);
}

/// Loads at a time in bit/s by link, and by the link over which they come.
fn over(loads: &Loads, time: Instant) -> BTreeMap<[Leg; 2], u64> {
    let of = |(pair, pieces): (&[Leg; 2], &Vec<(Instant, Rate)>)| {
        let (_, load) = pieces.iter().rfind(|(from, _)| *from <= time).unwrap();
        (*pair, load.bits_per_second())
    };
    loads.over.iter().map(of).filter(|(_, load)| *load > 0).collect()
}

#[test]
fn the_load_of_a_link_is_split_by_the_link_over_which_it_comes() {
    let request = still();
    let step = first_step(&request);
    let demands = [
        demand(0, 3, 7 * MBPS),
        demand(1, 3, 2 * MBPS),
        demand(2, 3, MBPS),
        demand(0, 1, 4 * MBPS),
    ];
    let loads = request.loads(&demands, links(&plenty), 1).unwrap();
    let mut expected: BTreeMap<[Leg; 2], u64> = BTreeMap::new();
    for demand in &demands {
        for pair in legs(&step, demand.from, demand.to).windows(2) {
            *expected.entry([pair[1], pair[0]]).or_default() += demand.rate.bits_per_second();
        }
    }
    let found = over(&loads, Instant::START);
    assert_eq!(found, expected);
    // B and C are under the same satellite, whose laser has the load of both.
    let laser = legs(&step, 1, 3)[1];
    let of_laser: Vec<_> = found.iter().filter(|([to, _], _)| *to == laser).collect();
    assert_eq!(of_laser, [(&[laser, Leg::Up(1)], &(2 * MBPS)), (&[laser, Leg::Up(2)], &MBPS)]);
    // A demand that begins later is on no link before.
    let ms = |ms| Instant::START + Duration::from_millis(ms);
    let late = Demand { begins: ms(250), ..demand(0, 3, MBPS) };
    let loads = request.loads(&[late], links(&plenty), 1).unwrap();
    assert!(over(&loads, Instant::START).is_empty());
    let route = legs(&step, 0, 3);
    assert_eq!(loads.over.len(), route.len() - 1);
    assert_eq!(over(&loads, ms(250))[&[route[1], route[0]]], MBPS);
}

#[test]
fn demands_add_up_and_begin_and_end() {
    let ms = |ms| Instant::START + Duration::from_millis(ms);
    let request = still();
    let late = Demand { begins: ms(250), ends: ms(1_150), ..demand(0, 3, 3 * MBPS) };
    let loads = request.loads(&[demand(0, 3, 2 * MBPS), late], links(&plenty), 1).unwrap();
    let rate = |mbps: u64| Rate::from_bits_per_second(mbps * MBPS);
    let pieces = vec![(ms(0), rate(2)), (ms(250), rate(5)), (ms(1_150), rate(2))];
    assert!(loads.legs.values().all(|found| *found == pieces), "{:?}", loads.legs);
    let alone = request.loads(&[late], links(&plenty), 1).unwrap();
    let pieces = vec![(ms(0), rate(0)), (ms(250), rate(3)), (ms(1_150), rate(0))];
    assert!(alone.legs.values().all(|found| *found == pieces), "{:?}", alone.legs);
    assert_eq!(alone.carried_bits, total_bits(3 * MBPS, Duration::from_millis(900)));
}

#[test]
fn demands_that_do_not_fit_get_max_min_fair_shares() {
    let request = still();
    let step = first_step(&request);
    let down = *legs(&step, 0, 1).last().unwrap();
    assert_eq!(legs(&step, 3, 2).last(), Some(&down), "B and C have the same satellite");
    let room = |full: Leg, mbps: u64| {
        move |leg: Leg| {
            if leg == full { Rate::from_bits_per_second(mbps * MBPS) } else { plenty(leg) }
        }
    };
    let ups = |loads: &Loads| {
        let found = at(loads, Instant::START);
        let up = |site| found.get(&Leg::Up(site)).copied().unwrap_or(0);
        ([up(0), up(3)], found[&down])
    };
    // Both ask for 9 in all, and the downlink has room for 6: both get two thirds, from their uplinks on.
    let both = [demand(0, 1, 6 * MBPS), demand(3, 2, 3 * MBPS)];
    let loads = request.loads(&both, links(&room(down, 6)), 1).unwrap();
    assert_eq!(ups(&loads), ([4 * MBPS, 2 * MBPS], 6 * MBPS));
    let share = loads.carried_bits / loads.demanded_bits;
    assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
    // The uplink of A has room for 2: its demand gets a third, and the other one all that it asks for.
    let two = |leg: Leg| match leg {
        Leg::Up(0) => Rate::from_bits_per_second(2 * MBPS),
        leg => room(down, 6)(leg),
    };
    let loads = request.loads(&both, links(&two), 1).unwrap();
    assert_eq!(ups(&loads), ([2 * MBPS, 3 * MBPS], 5 * MBPS));
    // A's two demands share its uplink; what does not fit into the downlink leaves room for the other one.
    let from_one = [demand(0, 1, 10 * MBPS), demand(0, 3, 10 * MBPS)];
    let narrow = |leg: Leg| match leg {
        Leg::Up(0) => Rate::from_bits_per_second(8 * MBPS),
        leg => room(down, 2)(leg),
    };
    let loads = request.loads(&from_one, links(&narrow), 1).unwrap();
    let found = at(&loads, Instant::START);
    let to_d = *legs(&step, 0, 3).last().unwrap();
    assert_eq!((found[&Leg::Up(0)], found[&down], found[&to_d]), (8 * MBPS, 2 * MBPS, 6 * MBPS));
}

#[test]
fn a_demand_without_a_route_loads_nothing() {
    let mut request = still();
    request.every = Some(STEP);
    let ms = |ms| Instant::START + Duration::from_millis(ms);
    let failure = Failure { part: Part::Site(3), from: ms(550), until: ms(950) };
    request.options.failures = vec![failure].into();
    let loads =
        request.loads(&[demand(0, 3, MBPS), demand(0, 1, MBPS)], links(&plenty), 1).unwrap();
    let up = &loads.legs[&Leg::Up(0)];
    // The site is back at 950 ms, and has routes again from 1 s on.
    let rates: Vec<(u64, u64)> = up
        .iter()
        .map(|(from, load)| (from.as_nanos() / 1_000_000, load.bits_per_second() / MBPS))
        .collect();
    assert_eq!(rates, [(0, 2), (550, 1), (1_000, 2)]);
    let [missing, unfit] =
        [loads.demanded_bits - loads.routed_bits, loads.routed_bits - loads.carried_bits];
    assert!((missing - 0.45 * MBPS as f64).abs() < 1.0 && unfit == 0.0, "{missing} {unfit}");
}

#[test]
fn several_ways_carry_equal_parts() {
    let mut request = still();
    request.routing = RoutingKind::EqualCost { slack: Duration::from_millis(30), ways: 4 };
    let loads = request.loads(&[demand(0, 3, 8 * MBPS)], links(&plenty), 1).unwrap();
    let found = at(&loads, Instant::START);
    assert_eq!(found[&Leg::Up(0)], 8 * MBPS);
    let lasers = found.iter().filter(|(leg, _)| matches!(leg, Leg::Laser(..)));
    let of_lasers: Vec<u64> = lasers.map(|(_, load)| load / MBPS).collect();
    assert!(of_lasers.iter().all(|load| [2, 4, 6, 8].contains(load)), "{of_lasers:?}");
    assert!(of_lasers.contains(&2), "{of_lasers:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn loads_are_conserved_and_max_min_fair(
        places in prop::collection::vec((-60.0..60.0_f64, -180.0..180.0_f64), 4..9),
        asked in prop::collection::vec((0_usize..8, 1_u64..40), 9),
        rooms in (4_u64..30, 4_u64..30, 4_u64..30),
        ways in 1_u32..4,
    ) {
        let place = |(n, (lat, lon)): (usize, &(f64, f64))| Place::new(&n.to_string(), *lat, *lon);
        let sites: Vec<Place> = places.iter().enumerate().map(place).collect();
        let mut request = request(small(), sites, Compat::None);
        if ways > 1 {
            request.routing = RoutingKind::EqualCost { slack: Duration::from_millis(5), ways };
        }
        request.duration = STEP * 5;
        // Each site has one demand, so that the load of its uplink is what it gets.
        let count = places.len();
        let demands: Vec<Demand> = (0..count)
            .map(|from| {
                let (away, mbps) = asked[from];
                let to = (from + 1 + away % (count - 1)) % count;
                demand(from as u32, to as u32, mbps * MBPS)
            })
            .collect();
        let room = |leg: Leg| Rate::from_bits_per_second(MBPS * match leg {
            Leg::Laser(..) => rooms.0,
            Leg::Down(_) | Leg::GatewayDown(_) | Leg::OwnDown(_) => rooms.1,
            Leg::Up(_) => rooms.2,
        });
        let loads = request.loads(&demands, links(&room), 1).unwrap();
        let mut steps = NetworkSteps::new(request.clone(), 1).unwrap();
        for _ in 0..5 {
            let step = steps.step();
            let found = at(&loads, step.from);
            let of = |leg: Leg| found.get(&leg).copied().unwrap_or(0);
            // What goes up comes down, and nothing exceeds its room; loads are rounded to bit/s.
            let sum = |is: fn(&Leg) -> bool| found.iter().filter(|(leg, _)| is(leg)).map(|(_, load)| load).sum::<u64>();
            let (up, down) = (sum(|leg| matches!(leg, Leg::Up(_))), sum(|leg| matches!(leg, Leg::Down(_))));
            prop_assert!(up.abs_diff(down) <= found.len() as u64, "{} {}", up, down);
            prop_assert!(found.iter().all(|(leg, load)| *load <= room(*leg).bits_per_second()));
            // What comes over other links is all of a link's load, except on uplinks; and all goes on, except after
            // downlinks.
            let pairs = over(&loads, step.from);
            for (leg, load) in &found {
                let sum = |place: usize| pairs.iter().filter(|(pair, _)| pair[place] == *leg).map(|(_, load)| load).sum::<u64>();
                prop_assert!(matches!(leg, Leg::Up(_)) || load.abs_diff(sum(0)) <= pairs.len() as u64);
                prop_assert!(matches!(leg, Leg::Down(_)) || load.abs_diff(sum(1)) <= pairs.len() as u64);
            }
            if ways > 1 {
                continue;
            }
            let share = |demand: &Demand| of(Leg::Up(demand.from)) as f64 / demand.rate.bits_per_second() as f64;
            let routes: Vec<Vec<Leg>> = demands.iter().map(|one| legs(&step, one.from, one.to)).collect();
            let mut expected: BTreeMap<Leg, f64> = BTreeMap::new();
            for (demand, legs) in demands.iter().zip(&routes) {
                for leg in legs {
                    *expected.entry(*leg).or_default() += of(Leg::Up(demand.from)) as f64;
                }
            }
            for (leg, load) in expected {
                prop_assert!((load - of(leg) as f64).abs() <= count as f64, "{:?}: {} {}", leg, load, of(leg));
            }
            for (demand, legs) in demands.iter().zip(&routes) {
                let own = share(demand);
                // A demand that gets less than all is at the largest share on a full link.
                let is_held = |leg: &Leg| {
                    let others = demands.iter().zip(&routes).filter(|(_, legs)| legs.contains(leg));
                    let largest = others.map(|(one, _)| share(one)).fold(0.0, f64::max);
                    of(*leg) + count as u64 >= room(*leg).bits_per_second() && own >= largest - 1e-5
                };
                prop_assert!(legs.is_empty() || own > 1.0 - 1e-5 || legs.iter().any(is_held), "{:?}", demand);
                prop_assert!(!legs.is_empty() || own == 0.0);
            }
        }
    }
}
