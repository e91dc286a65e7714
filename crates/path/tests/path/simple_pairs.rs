//! The simple computation of all pairs, with Dijkstra's algorithm from each site at each step, as the reference of the
//! fast one.

use proptest::prelude::*;
use skyhop_model::{Compat, Relay};
use skyhop_orbit::{Constellation, Coverage, EarthModel, Ephemeris, LIGHT_M_PER_S, Sky};
use skyhop_path::all_pairs::{AllPairs, PairsStep, RouteChange, pairs};
use skyhop_path::handover::Link;
use skyhop_path::route::Router;
use skyhop_path::topology::topology;
use skyhop_path::{OutageModel, PathOptions, PathRequest, Place};
use skyhop_units::{Duration, Instant, Length};

/// Compute the shortest routes of all pairs without a compatibility mode.
pub(crate) fn simple_pairs(request: &PathRequest, sites: &[Place]) -> Vec<PairsStep> {
    let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
    let places = sites.iter().map(|site| EarthModel::Wgs84.site(site.position)).collect();
    let degrees = request.constellation.minimum_elevation_deg;
    let mut sky = Sky::new(places, Coverage::Elevation { degrees }, &ephemeris);
    let mut topology = topology(request, &ephemeris);
    let (mut positions, mut router) = (Vec::new(), Router::default());
    let mut routes = vec![Vec::new(); pairs(sites.len())];
    let step = |number: u64| {
        let at = Instant::START + request.step * number;
        ephemeris.earth_fixed(request.start.after(at - Instant::START), &mut positions);
        topology.update(at, &positions);
        sky.update(at, &positions);
        let link = |site: usize, satellite: u32| {
            let (place, position) = (&sky.sites()[site], positions[satellite as usize]);
            let delay_s = place.range_m(position) / LIGHT_M_PER_S;
            Link { satellite, delay_s, sin_elevation: place.sin_elevation(position) }
        };
        let in_view: Vec<Vec<Link>> = (0..sites.len())
            .map(|site| sky.visible(site, &positions).map(|id| link(site, id)).collect())
            .collect();
        let (mut delays, mut changes) = (Vec::new(), Vec::new());
        for from in 0..sites.len() {
            router.search_all(topology.graph(), &in_view[from]);
            for to in &in_view[from + 1..] {
                let (delay, route) = nearest(&router, to);
                let pair = delays.len();
                delays.push(delay);
                if route != routes[pair] {
                    routes[pair].clone_from(&route);
                    changes.push(RouteChange { pair: pair as u32, nodes: route });
                }
            }
        }
        PairsStep { at, delays, changes }
    };
    (0..request.steps()).map(step).collect()
}

fn nearest(router: &Router, to: &[Link]) -> (Duration, Vec<u32>) {
    let total = |link: &Link| Some((router.reached(link.satellite)?.0 + link.delay_s, *link));
    let reached = to.iter().filter_map(total);
    let Some((delay_s, last)) = reached.reduce(|a, b| if b.0 < a.0 { b } else { a }) else {
        return (Duration::ZERO, Vec::new());
    };
    let mut route: Vec<u32> = router.route_back(last.satellite).collect();
    route.reverse();
    (Duration::from_secs_f64(delay_s), route)
}

fn shell() -> impl Strategy<Value = String> {
    let numbers = (1..14_u32, 1..20_u32, 400..1_400_u32, 0..=180_u32);
    let shape = (0..14_u32, prop_oneof![Just(180), Just(360)], any::<bool>());
    (numbers, shape).prop_map(|((planes, slots, km, deg), (phasing, span, staggered))| {
        let phasing = if staggered { 0 } else { phasing % planes };
        format!(
            "[[shell]]\nplanes = {planes}\nsatellites_per_plane = {slots}\naltitude = \"{km} km\"\n\
             inclination_deg = {deg}\nphasing = {phasing}\nnode_span_deg = {span}\n\
             staggered = {staggered}\n"
        )
    })
}

fn request() -> impl Strategy<Value = PathRequest> {
    let shells = prop::collection::vec(shell(), 1..4);
    let relay = prop_oneof![3 => Just(Relay::Isl), 1 => Just(Relay::BentPipe)];
    let gateways = prop::collection::vec(place(), 1..40);
    let times = (1..1_000_u64, 2..6_u64);
    let options = (0..40_u32, 0..600_u32, any::<bool>());
    (shells, relay, gateways, times, options).prop_map(
        |(shells, relay, gateways, (step_s, steps), (elevation, clearance_km, isl_seam))| {
            let text = format!(
                "description = \"random\"\nsource = \"test\"\nepoch = \"2026-01-01T00:00:00Z\"\n\
                 minimum_elevation_deg = {elevation}\n{}",
                shells.concat()
            );
            let constellation = Constellation::parse(&text, "random.toml").unwrap();
            PathRequest {
                start: constellation.epoch,
                constellation,
                from: gateways[0].clone(),
                to: gateways[0].clone(),
                gateways,
                relay: Some(relay),
                handover: "immediate".to_owned(),
                outage: OutageModel::None,
                intermediate_outage: Duration::ZERO,
                compat: Compat::None,
                step: Duration::from_secs(step_s),
                duration: Duration::from_secs(step_s * steps),
                seed: 0,
                options: PathOptions {
                    isl_seam,
                    isl_clearance: Length::from_kilometres(f64::from(clearance_km)),
                    ..PathOptions::default()
                },
            }
        },
    )
}

fn place() -> impl Strategy<Value = Place> {
    (-90..=90_i32, -180..180_i32)
        .prop_map(|(lat, lon)| Place::new("place", f64::from(lat), f64::from(lon)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(150)))]

    #[test]
    fn fast_pairs_are_simple_pairs(
        request in request(),
        sites in prop::collection::vec(place(), 2..9),
        threads in 1..4_usize,
    ) {
        let fast = AllPairs::new(&request, &sites).unwrap().with_threads(threads.try_into().unwrap());
        let simple = simple_pairs(&request, &sites);
        for (fast, simple) in fast.zip(simple) {
            prop_assert_eq!(fast, simple);
        }
    }
}
