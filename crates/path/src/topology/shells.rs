//! Links between the shells of a constellation: each satellite has one to a satellite of the next higher shell.
//!
//! A link is kept while it is possible and at most [`LONGEST_M`] long. Satellites without a link get one at the start and
//! then every minute: of the possible ones the link first whose longer length, now or [`AHEAD`] later, is the shortest, so
//! that satellites that cross each other's way are chosen last. A satellite has at most one link to the shell above it,
//! and one to the shell below.

use std::collections::BTreeSet;

use skyhop_orbit::{Constellation, Ephemeris, Formation, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::plus_grid::{EQUATORIAL_RADIUS_M, Reach};

/// Time between two choices of links.
const EVERY: Duration = Duration::from_secs(60);
/// Time after which the satellites of a new link must still be near each other.
const AHEAD: Duration = Duration::from_secs(300);
/// Longest link between shells, in metres: little more than between satellites of a plane.
const LONGEST_M: f64 = 2.5e6;

/// Satellites of one shell, with the altitude and inclination by which shells are in order.
pub(super) struct ShellMembers {
    altitude_m: f64,
    inclination_deg: f64,
    satellites: Vec<u32>,
}

/// Links between adjacent shells.
pub(super) struct BetweenShells {
    ephemeris: Ephemeris,
    start: UtcInstant,
    reach: Reach,
    /// Shells in ascending order of altitude, then inclination.
    shells: Vec<ShellMembers>,
    /// Links from the lower shell to the higher one, in ascending order.
    links: Vec<(u32, u32)>,
    /// Number of choices so far.
    chosen: u64,
    /// Positions at the choice, and [`AHEAD`] later.
    positions: [Vec<Vec3>; 2],
}

impl BetweenShells {
    /// Prepare the links of a path or network that begins at `start`.
    pub(super) fn new(
        constellation: &Constellation,
        ephemeris: &Ephemeris,
        start: UtcInstant,
        reach: Reach,
    ) -> Self {
        let mut between = Self {
            ephemeris: ephemeris.clone(),
            start,
            reach,
            shells: Vec::new(),
            links: Vec::new(),
            chosen: 0,
            positions: [Vec::new(), Vec::new()],
        };
        let formation = Formation::recover(&constellation.element_sets, start);
        between.set_shells(constellation, &formation);
        between
    }

    /// Set the shells to those of a constellation, whose element sets have this formation.
    pub(super) fn set_shells(&mut self, constellation: &Constellation, formation: &Formation) {
        self.shells = shells(constellation, formation);
        let place = |satellite: u32| {
            self.shells.iter().position(|shell| shell.satellites.binary_search(&satellite).is_ok())
        };
        let is_between =
            |(low, high): &(u32, u32)| place(*low).is_some_and(|low| place(*high) == Some(low + 1));
        self.links = std::mem::take(&mut self.links).into_iter().filter(is_between).collect();
    }

    /// Links at the last choice.
    pub(super) fn links(&self) -> &[(u32, u32)] {
        &self.links
    }

    /// Choose the links at all times of choice until `now`; return whether there was one.
    ///
    /// The links depend on the times of choice alone, not on the times at which they are asked for.
    pub(super) fn update(&mut self, now: Instant) -> bool {
        let before = self.chosen;
        while Instant::START + EVERY * self.chosen <= now {
            let after = EVERY * self.chosen;
            for (positions, ahead) in self.positions.iter_mut().zip([Duration::ZERO, AHEAD]) {
                self.ephemeris.earth_fixed(self.start.after(after + ahead), positions);
            }
            self.choose();
            self.chosen += 1;
        }
        self.chosen > before
    }

    fn choose(&mut self) {
        let [now, later] = &self.positions;
        let length_m = |positions: &[Vec3], a: u32, b: u32| {
            let (a, b) = (positions[a as usize], positions[b as usize]);
            let length_m = a.distance(b);
            Some(length_m).filter(|m| *m <= LONGEST_M && self.reach.includes(a, b, *m))
        };
        let mut links: Vec<(u32, u32)> = std::mem::take(&mut self.links);
        links.retain(|(a, b)| length_m(now, *a, *b).is_some());
        let mut taken: [BTreeSet<u32>; 2] = Default::default();
        for (low, high) in &links {
            taken[0].insert(*low);
            taken[1].insert(*high);
        }
        for pair in self.shells.windows(2) {
            let free = |side: usize| {
                let taken = &taken[side];
                let free = pair[side].satellites.iter().filter(|one| !taken.contains(one));
                free.copied().collect::<Vec<u32>>()
            };
            let (low, high) = (free(0), free(1));
            let mut possible = Vec::new();
            for a in &low {
                for b in &high {
                    let Some(now_m) = length_m(now, *a, *b) else { continue };
                    let Some(later_m) = length_m(later, *a, *b) else { continue };
                    possible.push((now_m.max(later_m), *a, *b));
                }
            }
            possible.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
            for (_, a, b) in possible {
                if !taken[0].contains(&a) && !taken[1].contains(&b) {
                    taken[0].insert(a);
                    taken[1].insert(b);
                    links.push((a, b));
                }
            }
        }
        links.sort_unstable();
        self.links = links;
    }
}

/// Shells of a constellation from the lowest to the highest, of equal ones the less inclined first.
fn shells(constellation: &Constellation, formation: &Formation) -> Vec<ShellMembers> {
    let mut shells = Vec::new();
    let mut first = 0;
    for shell in &constellation.shells {
        let satellites = (first..first + shell.satellites()).collect();
        first += shell.satellites();
        let altitude_m = shell.altitude.metres() + shell.reference_radius.metres();
        let inclination_deg = shell.inclination_deg;
        shells.push(ShellMembers { altitude_m, inclination_deg, satellites });
    }
    first += constellation.geostationary.len() as u32;
    for shell in &formation.shells {
        let ids = shell.planes.iter().flat_map(|plane| &plane.satellites).map(|one| first + one.id);
        let mut satellites: Vec<u32> = ids.collect();
        satellites.sort_unstable();
        let altitude_m = shell.altitude_m + EQUATORIAL_RADIUS_M;
        let inclination_deg = shell.inclination_deg;
        shells.push(ShellMembers { altitude_m, inclination_deg, satellites });
    }
    shells.sort_by(|a, b| {
        let by_altitude = a.altitude_m.total_cmp(&b.altitude_m);
        by_altitude.then(a.inclination_deg.total_cmp(&b.inclination_deg))
    });
    shells
}

/// Number of shells of a constellation at a time, those that are recovered from element sets included.
pub fn count_shells(constellation: &Constellation, time: UtcInstant) -> usize {
    let recovered = Formation::recover(&constellation.element_sets, time).shells;
    constellation.shells.len() + recovered.len()
}
