//! Roles of places on the ground: gateways and points of presence, handover policies, and networks without lasers.

use std::ops::ControlFlow;

use proptest::prelude::*;
use skyhop_model::{Compat, Relay};
use skyhop_path::fibre::fibre_delay_s;
use skyhop_path::network::{Demand, Leg, Links, NetworkRequest, NetworkStep, NetworkSteps, Role};
use skyhop_path::{PathOptions, PathRequest, Place};
use skyhop_units::{Duration, Instant, Rate};

use crate::network::{STEP, followed, request, request_of_path, small};

fn terminal(handover: &str) -> Role {
    Role::Terminal { handover: handover.to_owned() }
}

/// Network of places with roles, over the small shell.
fn network(places: &[(f64, f64)], roles: Vec<Role>) -> NetworkRequest {
    let place = |(n, (lat, lon)): (usize, &(f64, f64))| Place::new(&n.to_string(), *lat, *lon);
    let sites = places.iter().enumerate().map(place).collect();
    NetworkRequest {
        roles,
        duration: Duration::from_secs(1_200),
        ..request(small(), sites, Compat::None)
    }
}

fn steps(request: &NetworkRequest, count: usize) -> Vec<NetworkStep> {
    let mut steps = NetworkSteps::new(request.clone(), 1).unwrap();
    (0..count).map(|_| steps.step()).collect()
}

/// Delay in ns between two sites when the last one has all satellites of these gateways; the least of all ways.
fn over_gateways_ns(request: &NetworkRequest, gateways: &[u32], from: usize) -> Option<u64> {
    let of_gateway = |gateway: &u32| {
        let step = &steps(&NetworkRequest { roles: Vec::new(), ..request.clone() }, 1)[0];
        let (_, delay) = step.routes[*gateway as usize].up(from as u32)?;
        let point = request.sites.last().unwrap().position;
        let gateway = request.sites[*gateway as usize].position;
        let fibre_s = fibre_delay_s(gateway, point, request.options.fibre_stretch);
        Some(delay.as_nanos() + (fibre_s * 1e9).round() as u64)
    };
    gateways.iter().filter_map(of_gateway).min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn a_point_of_presence_is_reached_over_the_best_gateway(
        places in prop::collection::vec((-60.0..60.0_f64, -180.0..180.0_f64), 5..8),
        has_lasers in any::<bool>(),
    ) {
        let last = places.len() as u32 - 1;
        let gateways: Vec<u32> = (2..last).collect();
        let mut roles = vec![terminal("immediate"); 2];
        roles.extend(gateways.iter().map(|_| Role::Gateway));
        roles.push(Role::PointOfPresence);
        let request = NetworkRequest { has_lasers, ..network(&places, roles) };
        let step = &steps(&request, 1)[0];
        let to = &step.routes[last as usize];
        for terminal in 0..2 {
            let expected = over_gateways_ns(&request, &gateways, terminal);
            let ours = to.up(terminal as u32).map(|(_, delay)| delay.as_nanos());
            match (ours, expected) {
                (Some(ours), Some(expected)) => prop_assert!(ours.abs_diff(expected) <= 2, "{ours} {expected}"),
                (ours, expected) => prop_assert_eq!(ours, expected),
            }
            // Routes have the same delay in both directions.
            let back = step.routes[terminal].up(last).map(|(_, delay)| delay.as_nanos());
            prop_assert_eq!(back.is_some(), ours.is_some());
            prop_assert!(back.zip(ours).is_none_or(|(back, ours)| back.abs_diff(ours) <= 2));
        }
        // The last satellite of a route has a link to the gateway that it goes over, which is as long as that of the gateway.
        for sight in &step.sights[last as usize] {
            let of_gateway = step.sights[sight.antenna as usize].iter().find(|own| own.satellite == sight.satellite);
            let own = of_gateway.unwrap();
            prop_assert!(gateways.contains(&sight.antenna));
            prop_assert_eq!((sight.delay, sight.lasts), (own.delay, own.lasts));
            let [point, gateway] = [last, sight.antenna].map(|site| request.sites[site as usize].position);
            prop_assert_eq!(sight.fibre, Duration::from_secs_f64(fibre_delay_s(gateway, point, request.options.fibre_stretch)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn an_access_path_over_lasers_is_the_route_of_the_network(
        places in prop::collection::vec((-60.0..60.0_f64, -180.0..180.0_f64), 4..7),
    ) {
        let last = places.len() as u32 - 1;
        let mut roles = vec![terminal("immediate")];
        roles.extend((1..last).map(|_| Role::Gateway));
        roles.push(Role::PointOfPresence);
        let request = network(&places, roles);
        let point = request.sites[last as usize].clone();
        let options = PathOptions { isl_backhaul: true, pops: vec![point.clone()], ..request.options.clone() };
        let of_path = PathRequest {
            to: point,
            gateways: request.sites[1..last as usize].to_vec(),
            relay: Some(Relay::Access),
            duration: STEP,
            options,
            ..request_of_path(&request)
        };
        let step = &steps(&request, 1)[0];
        let of_network = step.routes[last as usize].up(0);
        let Ok(trace) = skyhop_path::compute(&of_path, &mut |_, _| ControlFlow::Continue(())) else {
            prop_assert_eq!(of_network, None);
            return Ok(());
        };
        let frame = &trace.frames[0];
        let (first, delay) = of_network.unwrap();
        prop_assert!(frame.delay.unwrap().as_nanos().abs_diff(delay.as_nanos()) <= 2);
        prop_assert_eq!(frame.nodes[1], first as i32);
        prop_assert_eq!(frame.nodes.len(), followed(step, 0, last as usize).len() + 4);
        let hops: u64 = frame.hop_delays.iter().map(|delay| delay.as_nanos()).sum();
        prop_assert!(hops.abs_diff(delay.as_nanos()) <= frame.hop_delays.len() as u64);
        prop_assert_eq!(frame.hop_delays.len() + 1, frame.nodes.len());
    }
}

#[test]
fn without_lasers_a_route_is_one_satellite_long() {
    // Both of two near terminals see a gateway's satellites; a third on the other side of the Earth sees none of them.
    let places = [(48.0, 11.0), (50.0, 8.0), (-40.0, -170.0), (49.0, 9.0), (52.0, 5.0)];
    let mut roles = vec![Role::default(); 3];
    roles.extend([Role::Gateway, Role::PointOfPresence]);
    let request = NetworkRequest { has_lasers: false, ..network(&places, roles) };
    assert_eq!(request.lasers(), Ok(Vec::new()));
    for step in steps(&request, 50) {
        for near in 0..2 {
            assert_eq!(followed(&step, near, 4).len(), 1);
            assert_eq!(followed(&step, 4, near).len(), 1);
        }
        assert_eq!(step.routes[4].up(2), None);
    }
}

/// Satellites that site 0 sends to over the steps, changes apart, and the largest number that it can use at one time.
fn served(handover: &str) -> (Vec<u32>, usize) {
    let roles = vec![terminal(handover), terminal("immediate")];
    let request = network(&[(48.0, 11.0), (40.0, -74.0)], roles);
    let request = NetworkRequest { every: Some(STEP * 10), ..request };
    let all = steps(&request, 1_000);
    let mut satellites: Vec<u32> =
        all.iter().filter_map(|step| Some(step.routes[1].up(0)?.0)).collect();
    assert_eq!(satellites.len(), all.len());
    satellites.dedup();
    (satellites, all.iter().map(|step| step.sights[0].len()).max().unwrap())
}

#[test]
fn a_terminal_with_a_policy_uses_one_satellite_at_a_time() {
    let (immediate, most) = served("immediate");
    assert!(most > 1);
    let (sticky, most) = served("sticky");
    assert_eq!(most, 1);
    let (nearest, most) = served("nearest-grid");
    assert_eq!(most, 1);
    assert!(sticky.len() < nearest.len(), "{} {}", sticky.len(), nearest.len());
    assert!(sticky.len() < immediate.len(), "{} {}", sticky.len(), immediate.len());
}

#[test]
fn packets_in_the_air_at_a_handover_are_lost() {
    let roles = vec![terminal("nearest-grid"), terminal("immediate")];
    let request = network(&[(48.0, 11.0), (40.0, -74.0)], roles);
    let all = steps(&NetworkRequest { every: Some(STEP * 10), ..request }, 1_000);
    let mut handovers = 0;
    for pair in all.windows(2) {
        let [before, after] = [0, 1].map(|step: usize| pair[step].sights[0][0]);
        assert_eq!(before.lasts, before.satellite == after.satellite);
        handovers += u32::from(!before.lasts);
    }
    // The policy chooses each 15 s, and a satellite is the nearest for some minutes.
    assert!((2..67).contains(&handovers), "{handovers}");
}

#[test]
fn an_unknown_policy_is_an_error() {
    let request = network(&[(48.0, 11.0), (40.0, -74.0)], vec![terminal("sometimes")]);
    let error = request.validate().unwrap_err().to_string();
    assert!(error.contains("sometimes") && error.contains("sticky"), "{error}");
}

#[test]
fn demands_of_a_point_of_presence_load_the_links_of_a_gateway() {
    let places = [(48.0, 11.0), (50.0, 8.0), (52.0, 5.0)];
    let roles = vec![Role::default(), Role::Gateway, Role::PointOfPresence];
    let request = NetworkRequest { duration: STEP, ..network(&places, roles) };
    let mbps = |mbps: u64| Rate::from_bits_per_second(mbps * 1_000_000);
    let demand = |from: u32, to: u32, rate: Rate| {
        let (begins, ends) = (Instant::START, Instant::NEVER);
        Demand { from, to, rate, begins, ends }
    };
    let last = |satellite: u32, site: u32| match request.role(site) {
        Role::Terminal { .. } => Leg::OwnDown(site),
        _ => Leg::GatewayDown(satellite),
    };
    let links = Links { room: &|_| mbps(1_000), last: &last };
    let demands = [demand(2, 0, mbps(7)), demand(0, 2, mbps(3))];
    let loads = request.loads(&demands, links, 1).unwrap();
    let load = |leg: Leg| loads.legs.get(&leg).map(|pieces| pieces[0].1);
    assert_eq!(load(Leg::Up(1)), Some(mbps(7)));
    assert_eq!(load(Leg::OwnDown(0)), Some(mbps(7)));
    assert_eq!(load(Leg::Up(0)), Some(mbps(3)));
    assert_eq!(load(Leg::Up(2)), None);
    let gateway: Vec<Rate> = loads
        .legs
        .iter()
        .filter(|(leg, _)| matches!(leg, Leg::GatewayDown(_)))
        .map(|(_, pieces)| pieces[0].1)
        .collect();
    assert_eq!(gateway, [mbps(3)]);
    assert_eq!((loads.demanded_bits, loads.carried_bits), (1e6, 1e6));
}
