//! Recovery of shells, planes and slots from element sets.

use skyhop_units::UtcInstant;

use crate::{ElementSet, Vec3};

/// Maximum difference between consecutive sorted inclinations within one shell, in degrees.
const INCLINATION_GAP_DEG: f64 = 0.05;
/// Maximum difference between consecutive sorted altitudes within one shell, in metres: OneWeb's planes are
/// 4 km apart, and Starlink keeps planes of one shell at altitudes up to 5 km apart.
const ALTITUDE_GAP_M: f64 = 6e3;
/// Size of the bins in which altitudes are counted, in metres; the few satellites in a sparse bin are on their way to
/// another altitude and do not belong to a shell.
const ALTITUDE_BIN_M: f64 = 1e3;
/// Minimum number of satellites of a shell.
const FEWEST_IN_SHELL: usize = 10;
/// Minimum number of satellites in an altitude bin and its two neighbours together; a bin with fewer is sparse.
const FEWEST_IN_BIN: usize = 5;
/// Minimum gap between the nodes of adjacent planes, in degrees.
const NODE_GAP_DEG: f64 = 0.5;
/// Minimum ratio of two consecutive sorted gaps at the border between gaps within a plane and gaps
/// between planes.
const MIN_GAP_RATIO: f64 = 3.0;
/// Node gap up to which planes always count as adjacent, in degrees.
const ADJACENT_DEG: f64 = 20.0;
const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;

/// Arrangement of satellites in shells, planes and slots.
///
/// A shell is a group of satellites of nearly the same inclination and altitude; its planes are the clusters of
/// right ascensions of the ascending nodes; the satellites of a plane are ordered by argument of latitude.
/// Satellites that do not fit into a plane (because they move up, down or to another plane) have no place.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Formation {
    /// Shells in the order of inclination, then altitude.
    pub shells: Vec<FormationShell>,
    /// Place of each satellite, in the order of the element sets; `None` for a satellite without a place.
    pub places: Vec<Option<FormationPlace>>,
}

/// Shell of a [`Formation`], with its planes.
#[derive(Debug, Clone, PartialEq)]
pub struct FormationShell {
    /// Mean inclination in degrees.
    pub inclination_deg: f64,
    /// Mean altitude above the equator's radius in metres.
    pub altitude_m: f64,
    /// Planes in the order of right ascension.
    pub planes: Vec<FormationPlane>,
}

/// Plane of a [`FormationShell`], with its satellites.
#[derive(Debug, Clone, PartialEq)]
pub struct FormationPlane {
    /// Mean right ascension of the ascending node in degrees.
    pub node_deg: f64,
    /// Satellites in the order of argument of latitude.
    pub satellites: Vec<FormationSatellite>,
}

/// Satellite of a [`FormationPlane`], with its place along the orbit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FormationSatellite {
    /// Index of the satellite among the element sets.
    pub id: u32,
    /// Argument of latitude, the angle from the ascending node to the satellite, in degrees.
    pub latitude_argument_deg: f64,
}

/// Place of a satellite in a [`Formation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormationPlace {
    /// Index of the shell.
    pub shell: u32,
    /// Index of the plane within the shell.
    pub plane: u32,
    /// Index of the satellite within the plane.
    pub slot: u32,
}

/// Orbit of a satellite at the time of the formation.
#[derive(Debug, Clone, Copy)]
struct Orbit {
    id: u32,
    inclination_deg: f64,
    altitude_m: f64,
    node_deg: f64,
    latitude_argument_deg: f64,
}

impl Formation {
    /// Recover the formation of `sets` at `time`; satellites are numbered in the order of `sets`.
    pub fn recover(sets: &[ElementSet], time: UtcInstant) -> Self {
        let orbits: Vec<Orbit> =
            (0..).zip(sets).filter_map(|(id, set)| Orbit::at(id, set, time)).collect();
        let mut shells = Vec::new();
        for mut group in runs(orbits, |o| o.inclination_deg, INCLINATION_GAP_DEG) {
            keep_crowded_altitudes(&mut group);
            let groups = runs(group, |o| o.altitude_m, ALTITUDE_GAP_M);
            shells.extend(groups.into_iter().filter_map(FormationShell::of));
        }
        let mut places = vec![None; sets.len()];
        for (shell, found) in (0..).zip(&shells) {
            for (plane, found) in (0..).zip(&found.planes) {
                for (slot, satellite) in (0..).zip(&found.satellites) {
                    places[satellite.id as usize] = Some(FormationPlace { shell, plane, slot });
                }
            }
        }
        Self { shells, places }
    }

    /// Return the links of a +Grid: from each satellite to the next one in its plane, and to the
    /// satellite in the adjacent plane with the nearest argument of latitude. A satellite has at most
    /// one link to each adjacent plane.
    ///
    /// Planes are adjacent if the gap between their nodes is at most 20 degrees or one and a half
    /// times the shell's median gap, so that there are no links across the seam of a Walker star.
    pub fn grid_links(&self, seam: bool) -> Vec<(u32, u32)> {
        let mut links = Vec::new();
        for shell in &self.shells {
            for plane in &shell.planes {
                links.extend(plane.ring());
            }
            for (a, b) in shell.neighbours(seam) {
                links.extend(a.matched(b));
            }
        }
        links
    }
}

impl Orbit {
    /// Compute the orbit from position and velocity: the plane's normal gives the node. `None` if SGP4 fails.
    fn at(id: u32, set: &ElementSet, time: UtcInstant) -> Option<Self> {
        let (position, velocity) = set.state(time).ok()?;
        let normal = position.cross(velocity);
        let node = Vec3::new(-normal.y, normal.x, 0.0);
        let along = position.dot(node) / node.length();
        let ahead = position.dot(normal.cross(node)) / (normal.length() * node.length());
        let orbit = Self {
            id,
            inclination_deg: set.elements().inclination_deg,
            altitude_m: set.semi_major_axis_m() - EQUATORIAL_RADIUS_M,
            node_deg: node.y.atan2(node.x).to_degrees().rem_euclid(360.0),
            latitude_argument_deg: ahead.atan2(along).to_degrees().rem_euclid(360.0),
        };
        // An equatorial orbit has no node.
        (orbit.node_deg.is_finite() && orbit.latitude_argument_deg.is_finite()).then_some(orbit)
    }
}

impl FormationShell {
    /// Recover the planes of a group of satellites; `None` if the group has fewer than [`FEWEST_IN_SHELL`].
    fn of(orbits: Vec<Orbit>) -> Option<Self> {
        if orbits.len() < FEWEST_IN_SHELL {
            return None;
        }
        let mean = |of: fn(&Orbit) -> f64| orbits.iter().map(of).sum::<f64>() / orbits.len() as f64;
        let (inclination_deg, altitude_m) = (mean(|o| o.inclination_deg), mean(|o| o.altitude_m));
        let mut planes = crowded_nodes(orbits);
        let mut sizes: Vec<usize> = planes.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        planes.retain(|plane| plane.len() * 4 >= median);
        let mut planes: Vec<FormationPlane> = planes.into_iter().map(FormationPlane::of).collect();
        planes.sort_by(|a, b| a.node_deg.total_cmp(&b.node_deg));
        Some(Self { inclination_deg, altitude_m, planes })
    }

    /// Pairs of adjacent planes, each pair once.
    fn neighbours(&self, seam: bool) -> Vec<(&FormationPlane, &FormationPlane)> {
        let planes = &self.planes;
        let last = match planes.len() {
            0 | 1 => return Vec::new(),
            2 => 1,
            more => more,
        };
        let gap = |index: usize| {
            let next = planes[(index + 1) % planes.len()].node_deg;
            (next - planes[index].node_deg).rem_euclid(360.0)
        };
        let mut gaps: Vec<f64> = (0..planes.len()).map(gap).collect();
        gaps.sort_by(f64::total_cmp);
        let median = gaps[gaps.len() / 2];
        (0..last)
            .filter(|index| {
                gap(*index) <= ADJACENT_DEG.max(1.5 * median) && (seam || index + 1 < planes.len())
            })
            .map(|index| (&planes[index], &planes[(index + 1) % planes.len()]))
            .collect()
    }
}

impl FormationPlane {
    fn of(orbits: Vec<Orbit>) -> Self {
        // Node offsets are relative to the first node, so that their mean is right also for a plane
        // at the equinox (0 or 360 degrees).
        let first = orbits[0].node_deg;
        let offset = |o: &Orbit| (o.node_deg - first + 180.0).rem_euclid(360.0) - 180.0;
        let mean = orbits.iter().map(offset).sum::<f64>() / orbits.len() as f64;
        let satellite = |o: &Orbit| FormationSatellite {
            id: o.id,
            latitude_argument_deg: o.latitude_argument_deg,
        };
        let mut satellites: Vec<FormationSatellite> = orbits.iter().map(satellite).collect();
        satellites.sort_by(|a, b| {
            a.latitude_argument_deg.total_cmp(&b.latitude_argument_deg).then(a.id.cmp(&b.id))
        });
        Self { node_deg: (first + mean).rem_euclid(360.0), satellites }
    }

    /// Links from each satellite of the plane to the next, and from the last to the first.
    fn ring(&self) -> Vec<(u32, u32)> {
        let ids: Vec<u32> = self.satellites.iter().map(|s| s.id).collect();
        let mut links: Vec<(u32, u32)> = ids.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if ids.len() > 2 {
            links.push((ids[ids.len() - 1], ids[0]));
        }
        links
    }

    /// Pairs of a satellite of this plane and one of the adjacent plane. The pair that is nearest
    /// in argument of latitude is formed first, and each satellite is in at most one pair.
    fn matched(&self, adjacent: &Self) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        for a in &self.satellites {
            for b in &adjacent.satellites {
                let apart = (a.latitude_argument_deg - b.latitude_argument_deg).rem_euclid(360.0);
                pairs.push((apart.min(360.0 - apart), a.id, b.id));
            }
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let (mut taken, mut links) = (std::collections::BTreeSet::new(), Vec::new());
        // Satellites that are more than a slot apart are not paired.
        let slot_deg = 360.0 / self.satellites.len().max(adjacent.satellites.len()) as f64;
        for (_, a, b) in pairs.into_iter().take_while(|(apart, _, _)| *apart <= slot_deg) {
            if !taken.contains(&a) && !taken.contains(&b) {
                taken.extend([a, b]);
                links.push((a, b));
            }
        }
        links
    }
}

/// Sort the orbits by `key`, and split them where two neighbours are more than `gap` apart.
fn runs(mut orbits: Vec<Orbit>, key: impl Fn(&Orbit) -> f64, gap: f64) -> Vec<Vec<Orbit>> {
    orbits.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.id.cmp(&b.id)));
    orbits.chunk_by(|a, b| key(b) - key(a) <= gap).map(<[Orbit]>::to_vec).collect()
}

/// Remove satellites at altitudes shared by few others.
fn keep_crowded_altitudes(orbits: &mut Vec<Orbit>) {
    let bin = |o: &Orbit| (o.altitude_m / ALTITUDE_BIN_M).floor() as i64;
    let mut counts = std::collections::BTreeMap::new();
    for orbit in orbits.iter() {
        *counts.entry(bin(orbit)).or_insert(0_usize) += 1;
    }
    let around = |at: i64| (at - 1..=at + 1).filter_map(|b| counts.get(&b)).sum::<usize>();
    orbits.retain(|orbit| around(bin(orbit)) >= FEWEST_IN_BIN);
}

/// Split satellites into planes by right ascension.
///
/// Gaps between planes are much larger than gaps within a plane. The border between both is where the
/// ratio of consecutive sorted gaps is largest, or at [`NODE_GAP_DEG`] if no ratio is large enough.
fn crowded_nodes(mut orbits: Vec<Orbit>) -> Vec<Vec<Orbit>> {
    orbits.sort_by(|a, b| a.node_deg.total_cmp(&b.node_deg).then(a.id.cmp(&b.id)));
    let count = orbits.len();
    let gap = |index: usize| {
        (orbits[(index + 1) % count].node_deg - orbits[index].node_deg).rem_euclid(360.0)
    };
    let mut gaps: Vec<f64> = (0..count).map(gap).collect();
    gaps.sort_by(|a, b| b.total_cmp(a));
    let steepness = |pair: &[f64]| pair[0] / pair[1].max(0.01);
    let border = gaps
        .windows(2)
        .filter(|pair| pair[0] >= NODE_GAP_DEG && steepness(pair) >= MIN_GAP_RATIO)
        .max_by(|a, b| steepness(a).total_cmp(&steepness(b)))
        .map_or(NODE_GAP_DEG, |pair| pair[0]);
    // Begin after a gap, so that no plane is split at the equinox.
    let begin = (0..count).find(|index| gap(*index) >= border).map_or(0, |index| index + 1);
    let mut planes = vec![Vec::new()];
    for step in 0..count {
        let index = (begin + step) % count;
        planes.last_mut().expect("never empty").push(orbits[index]);
        if gap(index) >= border && step + 1 < count {
            planes.push(Vec::new());
        }
    }
    planes
}
