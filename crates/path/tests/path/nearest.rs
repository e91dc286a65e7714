//! Routes from many sites to single ones and to the nearest of a group, compared with those of pairs and of networks.

use proptest::prelude::*;
use skyhop_model::{Compat, Relay};
use skyhop_orbit::{Coverage, EarthModel, Ephemeris, LIGHT_M_PER_S, Sky, Vec3};
use skyhop_path::all_pairs::{AllPairs, Destination};
use skyhop_path::failures::{Failure, Part};
use skyhop_path::handover::{IMMEDIATE, Link, POLICIES};
use skyhop_path::network::{NetworkRequest, NetworkSteps};
use skyhop_path::route::Router;
use skyhop_path::topology::topology;
use skyhop_path::{OutageModel, PathError, PathOptions, PathRequest, Place};
use skyhop_units::{Duration, Instant};

use crate::network::{self, STEP, small};

fn request(sites: &[Place], relay: Option<Relay>, handover: &str) -> PathRequest {
    let constellation = small();
    PathRequest {
        from: sites[0].clone(),
        to: sites[1].clone(),
        gateways: Vec::new(),
        relay,
        handover: handover.to_owned(),
        outage: OutageModel::None,
        intermediate_outage: Duration::ZERO,
        compat: Compat::None,
        start: constellation.epoch,
        step: STEP,
        duration: STEP * 20,
        seed: 0,
        options: PathOptions::default(),
        constellation,
    }
}

fn sites(places: &[(f64, f64)]) -> Vec<Place> {
    let named = places.iter().enumerate();
    named.map(|(n, (lat, lon))| Place::new(&n.to_string(), *lat, *lon)).collect()
}

/// Delay and route of each pair at each step; no route is empty.
type Routes = Vec<Vec<(Duration, Vec<u32>)>>;

fn all(pairs: AllPairs<'_>) -> Routes {
    let mut routes: Vec<Vec<u32>> = Vec::new();
    pairs
        .map(|step| {
            routes.resize(step.delays.len(), Vec::new());
            for change in step.changes {
                routes[change.pair as usize] = change.nodes;
            }
            step.delays.into_iter().zip(routes.iter().cloned()).collect()
        })
        .collect()
}

fn nearest(request: &PathRequest, sites: &[Place], begins: usize, groups: &[&[u32]]) -> Routes {
    let group = |group: &&[u32]| Destination::Nearest(group.to_vec());
    let groups: Vec<_> = groups.iter().map(group).collect();
    all(AllPairs::to(request, sites, begins, &groups).unwrap())
}

fn to(request: &PathRequest, sites: &[Place], begins: usize, ends: &[u32]) -> Routes {
    let ends: Vec<_> = ends.iter().copied().map(Destination::Site).collect();
    all(AllPairs::to(request, sites, begins, &ends).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn shortest_routes_to_each_site_are_those_of_a_network(
        places in prop::collection::vec((-75.0..75.0_f64, -180.0..180.0_f64), 66..70),
    ) {
        let (sites, count) = (sites(&places), places.len());
        let of_network = NetworkRequest {
            destinations: vec![3, 65],
            duration: STEP * 4,
            ..network::request(small(), sites.clone(), Compat::None)
        };
        let request = PathRequest { duration: STEP * 4, ..request(&sites, Some(Relay::Isl), IMMEDIATE) };
        let mut steps = NetworkSteps::new(of_network, 1).unwrap();
        for routes in to(&request, &sites, count, &[3, 65]) {
            let step = steps.step();
            prop_assert_eq!(routes.len(), 2 * count);
            let ups = step.routes.iter().flat_map(|to| to.all_up());
            for ((delay, route), up) in routes.iter().zip(ups) {
                let ours = route.first().map(|first| (*first, *delay));
                prop_assert_eq!(ours, up);
            }
        }
    }
}

#[test]
fn routes_to_a_group_are_those_to_the_nearest_of_its_sites() {
    let sites = sites(&[(51.5, -0.1), (40.7, -74.0), (-33.9, 151.2), (35.7, 139.7), (-1.3, 36.8)]);
    let request = request(&sites, Some(Relay::Isl), IMMEDIATE);
    let mut chosen = [0, 0];
    for routes in nearest(&request, &sites, 3, &[&[3], &[4], &[4, 3]]) {
        for site in 0..3 {
            let [tokyo, nairobi] = [&routes[site], &routes[3 + site]];
            assert!(tokyo.0 > Duration::ZERO && nairobi.0 > Duration::ZERO);
            let expected = if tokyo.0 < nairobi.0 { tokyo } else { nairobi };
            chosen[usize::from(nairobi.0 < tokyo.0)] += 1;
            assert_eq!(&routes[6 + site], expected);
        }
    }
    assert!(chosen[0] > 0 && chosen[1] > 0);
}

#[test]
fn a_policy_chooses_as_for_the_pair_of_site_and_end() {
    let sites = sites(&[(51.5, -0.1), (40.7, -74.0), (60.2, 24.9), (35.7, 139.7)]);
    for policy in POLICIES {
        let request = PathRequest {
            step: Duration::from_secs(20),
            duration: Duration::from_secs(600),
            ..request(&sites, Some(Relay::Isl), policy.name)
        };
        let pairs = all(AllPairs::new(&request, &sites).unwrap());
        let ours = to(&request, &sites, 3, &[3]);
        assert_eq!(ours.len(), 30);
        for (pairs, ours) in pairs.iter().zip(&ours) {
            // Tokyo is the last site: its pairs are the third, the fifth and the sixth.
            assert_eq!([&pairs[2], &pairs[4], &pairs[5]], [&ours[0], &ours[1], &ours[2]]);
        }
    }
}

/// Sky over the sites at the start, and the satellites' positions.
fn sky_at_start(request: &PathRequest, sites: &[Place]) -> (Sky, Vec<Vec3>) {
    let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
    let mut positions: Vec<Vec3> = Vec::new();
    ephemeris.earth_fixed(request.start, &mut positions);
    let places = sites.iter().map(|site| EarthModel::Wgs84.site(site.position)).collect();
    let degrees = request.constellation.minimum_elevation_deg;
    let mut sky = Sky::new(places, Coverage::Elevation { degrees }, &ephemeris);
    sky.update(Instant::START, &positions);
    (sky, positions)
}

#[test]
fn a_policy_chooses_the_satellite_of_a_site_alone_if_routes_end_at_a_group() {
    let sites = sites(&[(51.5, -0.1), (50.1, 8.7), (40.7, -74.0), (-26.2, 28.0)]);
    for policy in POLICIES.iter().map(|policy| policy.name).filter(|name| *name != IMMEDIATE) {
        let request = request(&sites, Some(Relay::Isl), policy);
        let (sky, positions) = sky_at_start(&request, &sites);
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        let mut topology = topology(&request, &ephemeris);
        topology.update(Instant::START, &positions);
        let light = |site: usize, id: u32| {
            let (place, position) = (&sky.sites()[site], positions[id as usize]);
            let delay_s = place.range_m(position) / LIGHT_M_PER_S;
            Link { satellite: id, delay_s, sin_elevation: place.sin_elevation(position) }
        };
        let (delay, route) = &nearest(&request, &sites, 1, &[&[3, 1, 2]])[0][0];
        let first = light(0, route[0]);
        // Frankfurt, New York and Johannesburg: the nearest one is Frankfurt.
        let mut router = Router::default();
        router.search_all(topology.graph(), &[first]);
        let of_ends = [1, 2, 3].into_iter().flat_map(|end| {
            sky.visible(end, &positions).map(|id| light(end, id)).collect::<Vec<_>>()
        });
        let total = |link: Link| router.reached(link.satellite).unwrap().0 + link.delay_s;
        let shortest_s = of_ends.map(total).fold(f64::INFINITY, f64::min);
        assert!((delay.as_secs_f64() - shortest_s).abs() < 1e-8, "{policy}");
        let highest = sky.visible(0, &positions).map(|id| light(0, id));
        let highest = highest.max_by(|a, b| a.sin_elevation.total_cmp(&b.sin_elevation)).unwrap();
        let is_highest = highest.satellite == first.satellite;
        assert!(is_highest || !policy.starts_with("max-elevation"), "{policy}");
    }
}

#[test]
fn without_lasers_site_and_end_share_the_satellite_that_the_policy_prefers() {
    let sites = sites(&[(51.5, -0.1), (48.9, 2.4), (56.0, -3.2), (-40.0, 175.0)]);
    let request = request(&sites, None, "max-elevation-grid");
    let step = &nearest(&request, &sites, 1, &[&[1, 2], &[3]])[0];
    let (sky, positions) = sky_at_start(&request, &sites);
    let sine = |id: &u32| sky.sites()[0].sin_elevation(positions[*id as usize]);
    let of_ends: Vec<u32> =
        [1, 2].into_iter().flat_map(|end| sky.visible(end, &positions)).collect();
    let common = sky.visible(0, &positions).filter(|id| of_ends.contains(id));
    let highest = common.max_by(|a, b| sine(a).total_cmp(&sine(b))).unwrap();
    assert_eq!(step[0].1, [highest]);
    let position = positions[highest as usize];
    let down_m = [1, 2]
        .into_iter()
        .filter(|end| sky.includes(*end, position))
        .map(|end| sky.sites()[end].range_m(position))
        .fold(f64::INFINITY, f64::min);
    let expected_ns = (sky.sites()[0].range_m(position) + down_m) / LIGHT_M_PER_S * 1e9;
    assert!((step[0].0.as_nanos() as f64 - expected_ns).abs() <= 1.0);
    // New Zealand sees none of the satellites of London.
    assert_eq!(step[1], (Duration::ZERO, Vec::new()));
}

#[test]
fn a_group_works_without_its_failed_sites_and_satellites() {
    let sites = sites(&[(51.5, -0.1), (50.1, 8.7), (40.7, -74.0)]);
    for policy in [IMMEDIATE, "sticky"] {
        let whole = request(&sites, Some(Relay::Isl), policy);
        let with = |part: Part| {
            let failure = Failure { part, from: Instant::START, until: Instant::NEVER };
            let failures = vec![failure].into();
            PathRequest {
                options: PathOptions { failures, ..PathOptions::default() },
                ..whole.clone()
            }
        };
        let to = |request: &PathRequest, group: &[u32]| nearest(request, &sites, 1, &[group]);
        let near = to(&whole, &[1, 2]);
        assert_eq!(near, to(&whole, &[1]));
        assert_eq!(to(&with(Part::Site(1)), &[1, 2]), to(&whole, &[2]));
        assert_ne!(to(&whole, &[2]), near);
        assert!(to(&with(Part::Site(0)), &[1]).iter().all(|step| step[0].1.is_empty()));
        let used = near[0][0].1[0];
        let failed = to(&with(Part::Satellite(used)), &[1, 2]);
        assert!(failed.iter().all(|step| !step[0].1.contains(&used) && !step[0].1.is_empty()));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sites = sites(&[(51.5, -0.1), (40.7, -74.0)]);
    let error = |relay: Option<Relay>, begins: usize, site: u32| {
        let request = request(&sites, relay, IMMEDIATE);
        let result = AllPairs::to(&request, &sites, begins, &[Destination::Nearest(vec![site])]);
        result.err().map(|error: PathError| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error(Some(Relay::Isl), 2, 1), "");
    assert!(error(Some(Relay::Isl), 3, 1).contains("site 2 of 2 sites"));
    assert!(error(None, 1, 2).contains("site 2 of 2 sites"));
    assert!(error(Some(Relay::Geo), 1, 1).contains("relay geo"));
}
