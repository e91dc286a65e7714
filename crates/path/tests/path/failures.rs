//! Failures of satellites, lasers and sites in a network, against a slow search over the parts that are left.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use skyhop_model::Compat;
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, LIGHT_M_PER_S, Vec3};
use skyhop_path::all_pairs::AllPairs;
use skyhop_path::failures::{Failure, Failures, Part, drawn_satellites};
use skyhop_path::network::{NetworkRequest, NetworkStep, NetworkSteps};
use skyhop_path::topology::grid_links;
use skyhop_path::{PathOptions, Place};
use skyhop_units::{Duration, Instant, Ratio};

use crate::network::{STEP, followed, request, request_of_path, small};

/// Radius that lasers keep, and lowest elevation of the small shell.
const CLEAR_RADIUS_M: f64 = 6_378_137.0 + 80e3;
const MINIMUM_ELEVATION_DEG: f64 = 10.0;

/// Parts of the network that are left at one time: positions, open lasers, and satellites in view of each site.
struct Left {
    lasers: Vec<(u32, u32, f64)>,
    in_view: Vec<Vec<(u32, f64)>>,
}

impl Left {
    fn of(request: &NetworkRequest, at: Instant, failed: &BTreeSet<Part>) -> Self {
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        let mut positions = Vec::new();
        ephemeris.earth_fixed(request.start.after(at - Instant::START), &mut positions);
        let works = |number: u32| !failed.contains(&Part::Satellite(number));
        let links = grid_links(&request.constellation.shells[0], 0, Compat::None, true);
        let laser = |(a, b): (u32, u32)| {
            let ends = [a, b].map(|number| positions[number as usize]);
            let is_up = works(a) && works(b) && !failed.contains(&Part::Laser(a.min(b), a.max(b)));
            (is_up && clears(ends)).then(|| (a, b, ends[0].distance(ends[1]) / LIGHT_M_PER_S))
        };
        let sees = |(index, place): (u32, &Place)| {
            let site = EarthModel::Wgs84.site(place.position);
            let lowest = MINIMUM_ELEVATION_DEG.to_radians().sin();
            let numbers = 0..positions.len() as u32;
            let above =
                numbers.filter(|number| site.sin_elevation(positions[*number as usize]) >= lowest);
            let usable =
                above.filter(|number| works(*number) && !failed.contains(&Part::Site(index)));
            let delay_s = |number: u32| site.range_m(positions[number as usize]) / LIGHT_M_PER_S;
            usable.map(|number| (number, delay_s(number))).collect()
        };
        Self {
            lasers: links.into_iter().filter_map(laser).collect(),
            in_view: (0..).zip(&request.sites).map(sees).collect(),
        }
    }

    /// Least delay between two sites, by relaxing all lasers until nothing changes.
    fn delay_s(&self, satellites: u32, from: usize, to: usize) -> Option<f64> {
        let mut known = vec![f64::INFINITY; satellites as usize];
        for (number, delay_s) in &self.in_view[from] {
            known[*number as usize] = *delay_s;
        }
        let mut changes = true;
        while changes {
            changes = false;
            for (a, b, delay_s) in &self.lasers {
                for [near, far] in [[*a as usize, *b as usize], [*b as usize, *a as usize]] {
                    if known[near] + delay_s < known[far] {
                        known[far] = known[near] + delay_s;
                        changes = true;
                    }
                }
            }
        }
        let totals = self.in_view[to].iter().map(|(number, s)| known[*number as usize] + s);
        totals.min_by(f64::total_cmp).filter(|total_s| *total_s < f64::INFINITY)
    }
}

/// Whether the straight line between two satellites keeps its distance from the Earth.
fn clears([a, b]: [Vec3; 2]) -> bool {
    (0..=1000).all(|part| {
        let share = f64::from(part) / 1000.0;
        (a + (b - a) * share).length_squared() >= CLEAR_RADIUS_M * CLEAR_RADIUS_M
    })
}

fn places(positions: &[(f64, f64)]) -> Vec<Place> {
    (0..)
        .zip(positions)
        .map(|(n, (lat, lon)): (u32, _)| Place::new(&n.to_string(), *lat, *lon))
        .collect()
}

fn with_failures(
    constellation: Constellation,
    sites: Vec<Place>,
    all: Vec<Failure>,
) -> NetworkRequest {
    let options = PathOptions { failures: all.into(), ..PathOptions::default() };
    NetworkRequest { options, ..request(constellation, sites, Compat::None) }
}

fn ms(time: u64) -> Instant {
    Instant::START + Duration::from_millis(time)
}

prop_compose! {
    /// Failures of parts of the small shell, between times in ms: many satellites, some of its lasers, at most a site.
    fn failures()(
        satellites in prop::collection::vec((0_u32..192, 0_u64..1500, 0_u64..1500), 0..60),
        lasers in prop::collection::vec((0_usize..384, 0_u64..1500, 0_u64..1500), 0..30),
        sites in prop::collection::vec((0_u32..2, 0_u64..1500, 0_u64..1500), 0..2),
    ) -> Vec<Failure> {
        let links = grid_links(&small().shells[0], 0, Compat::None, true);
        let failure = |part, a: u64, b: u64| Failure { part, from: ms(a.min(b)), until: ms(a.max(b)) };
        let of_satellites = satellites.into_iter().map(|(n, a, b)| failure(Part::Satellite(n), a, b));
        let of_lasers = lasers.into_iter().map(|(n, a, b)| failure(Part::Laser(links[n].1, links[n].0), a, b));
        let of_sites = sites.into_iter().map(|(n, a, b)| failure(Part::Site(n), a, b));
        of_satellites.chain(of_lasers).chain(of_sites).collect()
    }
}

/// Parts that have failed at a time, from the entries themselves.
fn failed_at(all: &[Failure], at: Instant) -> BTreeSet<Part> {
    let failed = all.iter().filter(|one| (one.from..one.until).contains(&at));
    let in_order = |part| match part {
        Part::Laser(a, b) => Part::Laser(a.min(b), a.max(b)),
        other => other,
    };
    failed.map(|one| in_order(one.part)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn routes_are_the_shortest_over_what_is_left(
        positions in prop::collection::vec((-75.0..75.0_f64, -180.0..180.0_f64), 2..5),
        all in failures(),
        threads in 1_usize..3,
    ) {
        let request = with_failures(small(), places(&positions), all.clone());
        let mut steps = NetworkSteps::new(request.clone(), threads).unwrap();
        let mut computed = 0;
        while computed < 15 {
            let step = steps.step();
            let failed = failed_at(&all, step.from);
            prop_assert!(step.until > step.from);
            let times = all.iter().flat_map(|one| [one.from, one.until]);
            let mut within = times.filter(|at| (step.from..step.until).contains(at));
            prop_assert!(within.all(|at| failed_at(&all, at) == failed));
            let left = Left::of(&request, step.from, &failed);
            for (site, sights) in step.sights.iter().enumerate() {
                for sight in sights {
                    prop_assert!(!failed.contains(&Part::Satellite(sight.satellite)));
                    prop_assert!(!failed.contains(&Part::Site(site as u32)));
                    let then = failed_at(&all, step.until);
                    let fails = then.contains(&Part::Satellite(sight.satellite))
                        || then.contains(&Part::Site(site as u32));
                    prop_assert!(!(fails && sight.lasts));
                }
            }
            if !step.from.as_nanos().is_multiple_of(STEP.as_nanos()) {
                continue;
            }
            computed += 1;
            for from in 0..positions.len() {
                for to in (0..positions.len()).filter(|to| *to != from) {
                    let ours = step.routes[to].up(from as u32).map(|(_, delay)| delay.as_secs_f64());
                    let expected = left.delay_s(192, from, to);
                    match (ours, expected) {
                        (Some(ours), Some(expected)) => prop_assert!((ours - expected).abs() < 2e-9),
                        (ours, expected) => prop_assert_eq!(ours, expected),
                    }
                    let passed = followed(&step, from, to);
                    let lasers = passed.windows(2).map(|hop| Part::Laser(hop[0].min(hop[1]), hop[0].max(hop[1])));
                    let used: Vec<Part> = passed.iter().map(|n| Part::Satellite(*n)).chain(lasers).collect();
                    prop_assert!(used.iter().all(|part| !failed.contains(part)));
                }
            }
        }
    }

    #[test]
    fn all_pairs_avoid_what_has_failed(
        positions in prop::collection::vec((-75.0..75.0_f64, -180.0..180.0_f64), 2..5),
        all in failures(),
    ) {
        let sites = places(&positions);
        let request = with_failures(small(), sites.clone(), all);
        let of_paths = request_of_path(&request);
        let mut steps = NetworkSteps::new(request, 1).unwrap();
        let mut routes = BTreeMap::new();
        for of_pairs in AllPairs::new(&of_paths, &sites).unwrap() {
            let step = step_at(&mut steps, of_pairs.at);
            routes.extend(of_pairs.changes.into_iter().map(|change| (change.pair, change.nodes)));
            let mut pair = 0;
            for from in 0..sites.len() {
                for to in from + 1..sites.len() {
                    let expected = routes.get(&pair).cloned().unwrap_or_default();
                    prop_assert_eq!(&followed(&step, from, to), &expected);
                    pair += 1;
                }
            }
        }
    }

    #[test]
    fn a_larger_share_fails_the_satellites_of_a_smaller_one(
        satellites in 1_u32..2000, shares in prop::array::uniform2(0.0..1.0_f64), seed in any::<u64>(),
    ) {
        let [less, more] = [shares[0].min(shares[1]), shares[0].max(shares[1])];
        let drawn = |share, seed| drawn_satellites(satellites, Ratio::new(share).unwrap(), seed);
        let (few, many) = (drawn(less, seed), drawn(more, seed));
        prop_assert_eq!(few.len(), (f64::from(satellites) * less).round() as usize);
        prop_assert!(few.is_sorted() && few.iter().all(|number| *number < satellites));
        prop_assert!(few.iter().all(|number| many.binary_search(number).is_ok()));
        prop_assert_eq!(&few, &drawn(less, seed));
    }
}

/// The step that begins at a time.
fn step_at(steps: &mut NetworkSteps, at: Instant) -> NetworkStep {
    loop {
        let step = steps.step();
        if step.from == at {
            return step;
        }
        assert!(step.from < at, "there is a step at {at}");
    }
}

#[test]
fn other_seeds_fail_other_satellites_and_all_equally_often() {
    let mut often = vec![0_u32; 100];
    for seed in 0..1000 {
        for number in drawn_satellites(100, Ratio::new(0.1).unwrap(), seed) {
            often[number as usize] += 1;
        }
    }
    // 100 expected of each; five standard deviations are 47.
    assert!(often.iter().all(|count| (53..147).contains(count)), "{often:?}");
}

#[test]
fn routes_follow_at_the_next_computation_and_hops_are_lost_at_once() {
    let sites = places(&[(40.0, -74.0), (-33.9, 151.2)]);
    let mut whole =
        NetworkSteps::new(with_failures(small(), sites.clone(), Vec::new()), 1).unwrap();
    let before = whole.step();
    let passed = followed(&before, 0, 1);
    let (first, last) = (passed[0], *passed.last().unwrap());
    let failure = |part| Failure { part, from: ms(130), until: ms(450) };
    let request = with_failures(
        small(),
        sites,
        vec![failure(Part::Satellite(first)), failure(Part::Site(1))],
    );
    let mut steps = NetworkSteps::new(request.clone(), 1).unwrap();
    let all: Vec<NetworkStep> = (0..8).map(|_| steps.step()).collect();
    let begins: Vec<u64> = all.iter().map(|step| step.from.as_nanos() / 1_000_000).collect();
    assert_eq!(begins, [0, 100, 130, 200, 300, 400, 450, 500]);
    let sight = |step: &NetworkStep, site: usize| {
        step.sights[site].iter().find(|sight| sight.satellite == first).copied()
    };
    // Until 130 ms nothing differs; then the satellite and the site are out of reach, on the old routes.
    assert_eq!(followed(&all[1], 0, 1), passed);
    assert!(sight(&all[0], 0).unwrap().lasts && !sight(&all[1], 0).unwrap().lasts);
    assert_eq!(sight(&all[2], 0), None);
    assert!(all[2].sights[1].is_empty());
    assert_eq!(all[2].routes[1].up(0), None, "the site has no uplink to the failed satellite");
    assert_eq!(
        all[2].routes[1].next(last),
        None,
        "the last satellite has no downlink to the failed site"
    );
    assert_eq!(all[2].routes[1].next(passed[1]), all[1].routes[1].next(passed[1]));
    // From 200 ms on routes know; at 450 ms both work again, and routes know from 500 ms on.
    assert!(all[3].routes[1].all_next().all(|next| next.is_none()));
    assert!(sight(&all[6], 0).is_some() && all[6].routes[1].up(0).is_none());
    assert!(all[7].routes[1].up(0).is_some());
    // Delays of the steps join.
    for pair in all.windows(2) {
        for sight in pair[0].sights[0].iter().filter(|sight| sight.lasts) {
            let next =
                pair[1].sights[0].iter().find(|next| next.satellite == sight.satellite).unwrap();
            assert_eq!(next.delay[0], sight.delay[1]);
        }
    }
    let lasers = request.lasers().unwrap();
    let failed = |from, to| {
        lasers.iter().find(|laser| (laser.from, laser.to) == (from, to)).unwrap().failed.clone()
    };
    assert_eq!(failed(first, passed[1]), [[ms(130), ms(450)]]);
    assert_eq!(failed(passed[1], first), [[ms(130), ms(450)]]);
    assert_eq!(lasers.iter().filter(|laser| !laser.failed.is_empty()).count(), 8);
}

#[test]
fn satellites_that_stand_still_fail_and_work_again() {
    let sites = places(&[(40.0, -74.0), (51.5, 0.0)]);
    let failure = Failure { part: Part::Site(0), from: ms(40), until: ms(70) };
    let request = NetworkRequest { every: None, ..with_failures(small(), sites, vec![failure]) };
    let mut steps = NetworkSteps::new(request, 1).unwrap();
    let [before, during, after] = [steps.step(), steps.step(), steps.step()];
    assert_eq!([before.until, during.until, after.until], [ms(40), ms(70), Instant::NEVER]);
    assert!(during.sights[0].is_empty() && during.routes[1].up(0).is_none());
    assert_eq!(before.routes, after.routes);
    assert_eq!(before.sights[0].len(), after.sights[0].len());
    assert!(before.sights[0].iter().all(|sight| !sight.lasts && sight.delay[0] == sight.delay[1]));
}

#[test]
fn times_of_a_part_are_joined_and_a_laser_fails_with_its_satellites() {
    let failure = |part, from, until| Failure { part, from: ms(from), until: ms(until) };
    let failures = Failures::from(vec![
        failure(Part::Satellite(3), 50, 80),
        failure(Part::Satellite(3), 10, 30),
        failure(Part::Satellite(3), 20, 40),
        failure(Part::Satellite(4), 90, 90),
        failure(Part::Laser(4, 3), 80, 100),
        failure(Part::Laser(3, 4), 100, 120),
    ]);
    assert_eq!(failures.times_of(Part::Satellite(3)), [[ms(10), ms(40)], [ms(50), ms(80)]]);
    assert!(failures.times_of(Part::Satellite(4)).is_empty());
    for laser in [Part::Laser(3, 4), Part::Laser(4, 3)] {
        assert_eq!(failures.times_of(laser), [[ms(10), ms(40)], [ms(50), ms(120)]]);
    }
    let text = serde_json::to_string(&failures).unwrap();
    assert_eq!(serde_json::from_str::<Failures>(&text).unwrap(), failures);
}

#[test]
fn a_satellite_that_the_constellation_does_not_have_cannot_fail() {
    let failure =
        Failure { part: Part::Satellite(192), from: Instant::START, until: Instant::NEVER };
    let request = with_failures(small(), places(&[(0.0, 0.0), (10.0, 10.0)]), vec![failure]);
    let error = request.validate().unwrap_err().to_string();
    assert_eq!(error, "satellite 192 fails, but there are 192; expected a number below that");
}
