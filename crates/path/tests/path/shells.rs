//! Links between shells: who is linked to whom, for how long, and what this does to routes.

use std::collections::BTreeSet;

use skyhop_model::{Compat, ShellLinks};
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Vec3};
use skyhop_path::network::{NetworkRequest, NetworkSteps};
use skyhop_path::topology::{Topology, topology};
use skyhop_path::{PathOptions, PathRequest, Place};
use skyhop_units::{Duration, Instant};

use crate::network::{self, request_of_path};

/// Two shells of 16 planes with 12 satellites that turn against each other, and the first satellite of the lower one.
fn two_shells() -> (Constellation, u32) {
    let shell = |altitude: &str, inclination: u32| {
        format!(
            "[[shell]]\nplanes = 16\nsatellites_per_plane = 12\naltitude = '{altitude}'\n\
             inclination_deg = {inclination}.0\nphasing = 3\n"
        )
    };
    let head = "description = 'two shells'\nsource = 'none'\nepoch = '2026-11-01T00:00:00Z'\n\
                minimum_elevation_deg = 10.0\n";
    // The higher shell is the first in the file.
    let toml = format!("{head}{}{}", shell("1200 km", 85), shell("700 km", 40));
    (Constellation::parse(&toml, "two.toml").unwrap(), 16 * 12)
}

fn request(isl_shells: ShellLinks, every: Duration, duration: Duration) -> NetworkRequest {
    // Only the higher shell sees Svalbard.
    let sites = vec![Place::new("Svalbard", 78.0, 15.0), Place::new("Lagos", 6.5, 3.4)];
    NetworkRequest {
        every: Some(every),
        duration,
        options: PathOptions { isl_shells, ..PathOptions::default() },
        ..network::request(two_shells().0, sites, Compat::None)
    }
}

fn positions(request: &NetworkRequest, second: u64) -> Vec<Vec3> {
    let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
    let mut positions = Vec::new();
    ephemeris.earth_fixed(request.start.after(Duration::from_secs(second)), &mut positions);
    positions
}

#[test]
fn each_satellite_has_one_link_to_the_other_shell() {
    let second = Duration::from_secs(1);
    let apart = request(ShellLinks::Apart, second, second);
    let joined = request(ShellLinks::Nearest, second, second);
    let (_, first) = two_shells();
    let between = |request: &NetworkRequest| -> Vec<(u32, u32)> {
        let lasers = request.lasers().unwrap();
        let ends = lasers.iter().map(|laser| (laser.from, laser.to));
        ends.filter(|(a, b)| (*a < first) != (*b < first)).collect()
    };
    assert_eq!(between(&apart), []);
    let links = between(&joined);
    println!("{} of 384 ends", links.len());
    assert!(links.len() > 150);
    assert!(links.iter().all(|(a, b)| links.contains(&(*b, *a))));
    let mut ends: Vec<u32> = links.iter().map(|(from, _)| *from).collect();
    ends.dedup();
    assert_eq!(ends.len(), links.len(), "no satellite has two");
    let (now, later) = (positions(&joined, 0), positions(&joined, 300));
    let longest_m = |(a, b): (u32, u32)| {
        [&now, &later]
            .map(|at| at[a as usize].distance(at[b as usize]))
            .into_iter()
            .fold(0.0, f64::max)
    };
    assert!(links.iter().all(|link| longest_m(*link) <= 2.5e6));
    // The shortest of all possible links is chosen first.
    let all = (0..first).flat_map(|a| (first..2 * first).map(move |b| (a, b)));
    let best = all.min_by(|x, y| longest_m(*x).total_cmp(&longest_m(*y))).unwrap();
    assert!(links.contains(&best));
}

/// Topology of the two shells, updated at times since the start.
struct Joined {
    request: PathRequest,
    ephemeris: Ephemeris,
    topology: Box<dyn Topology>,
}

impl Joined {
    fn new() -> Self {
        let (constellation, _) = two_shells();
        let site = Place::new("a", 0.0, 0.0);
        let options = PathOptions { isl_shells: ShellLinks::Nearest, ..PathOptions::default() };
        let network = network::request(constellation, vec![site.clone(), site], Compat::None);
        let request = PathRequest {
            step: Duration::from_secs(1),
            duration: Duration::from_secs(3600),
            options,
            ..request_of_path(&network)
        };
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        Self { topology: topology(&request, &ephemeris), request, ephemeris }
    }

    /// Links between the shells at a time.
    fn at(&mut self, second: u64) -> BTreeSet<(u32, u32)> {
        let (after, mut positions) = (Duration::from_secs(second), Vec::new());
        self.ephemeris.earth_fixed(self.request.start.after(after), &mut positions);
        self.topology.update(Instant::START + after, &positions);
        let (_, first) = two_shells();
        let links = |low: u32| {
            let edges = self.topology.graph().edges(low).iter();
            edges.filter(|edge| edge.to < first && edge.is_open()).map(move |edge| (low, edge.to))
        };
        (first..2 * first).flat_map(links).collect()
    }
}

#[test]
fn links_last_for_minutes_and_change_at_whole_minutes() {
    let mut joined = Joined::new();
    let mut before = joined.at(0);
    let (mut begun, mut ended, mut links) = (0, 0, before.len());
    for second in (10..=1800).step_by(10) {
        let now = joined.at(second);
        let new = now.difference(&before).count();
        assert!(new == 0 || second % 60 == 0, "{new} new links at {second} s");
        begun += new;
        ended += before.difference(&now).count();
        links += now.len();
        before = now;
    }
    // Each link that exists at one of the times has lasted another 10 s.
    let lasts_s = links * 10 / ended.max(1);
    println!("{begun} begun, {ended} ended, {lasts_s} s each");
    assert!(begun > 50 && ended > 50);
    assert!(lasts_s > 300);
}

#[test]
fn links_do_not_depend_on_the_times_at_which_they_are_asked_for() {
    let (mut often, mut seldom) = (Joined::new(), Joined::new());
    for second in 0..=610 {
        often.at(second);
    }
    assert_eq!(often.at(611), seldom.at(611));
}

#[test]
fn routes_over_both_shells_are_never_longer_than_those_over_one() {
    let second = Duration::from_secs(1);
    let mut shorter = 0;
    let steps = |rule| NetworkSteps::new(request(rule, second * 20, second * 600), 1).unwrap();
    let [mut apart, mut joined] = [ShellLinks::Apart, ShellLinks::Nearest].map(steps);
    for _ in 0..30 {
        let delay = |steps: &mut NetworkSteps| steps.step().routes[1].up(0).unwrap().1;
        let (apart, joined) = (delay(&mut apart), delay(&mut joined));
        assert!(joined <= apart);
        shorter += u32::from(joined < apart);
    }
    assert!(shorter > 0);
}
