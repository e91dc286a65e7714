//! +Grid topology: each satellite has links to its neighbours in its plane and in the adjacent planes.

use crate::compat::CompatRules;
use skyhop_model::{Compat, ShellLinks};
use skyhop_orbit::{Constellation, Ephemeris, Formation, Shell, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::Topology;
use super::shells::BetweenShells;
use crate::PathRequest;
use crate::failures::{FailedParts, Failures};
use crate::route::Graph;

/// Radius of the equator, m (WGS84): the Earth's largest radius, so that links pass above the
/// ground everywhere.
pub(super) const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;

/// Topology of inter-satellite links in a +Grid within each shell, and between shells if the request has them.
pub struct PlusGrid {
    graph: Graph,
    components: Vec<u32>,
    reach: Reach,
    light_m_per_s: f64,
    /// Links of the constellation's shells, as pairs of satellite ids.
    shells: Vec<(u32, u32)>,
    /// Satellites from element sets (TLE, OMM), if the constellation has any.
    recovered: Option<RecoveredShells>,
    /// Links between shells, if the request has them.
    between: Option<BetweenShells>,
    failures: Failures,
    failed: FailedParts,
}

/// Time for which a recovered formation is used: the orbits of element sets differ slightly, so
/// that neighbours drift apart by some degrees in a day.
const FORMATION_LIFETIME: Duration = Duration::from_secs(600);

/// Satellites from element sets, whose planes and slots are recovered from their orbits.
struct RecoveredShells {
    constellation: Constellation,
    /// Id of the first satellite that comes from an element set.
    first: u32,
    start: UtcInstant,
    seam: bool,
    /// Time of the last recovery.
    at: Option<Instant>,
    /// Links of the last recovery.
    links: Vec<(u32, u32)>,
}

impl RecoveredShells {
    /// Recover the formation and its links if [`FORMATION_LIFETIME`] is over, and return the formation.
    fn update(&mut self, now: Instant) -> Option<Formation> {
        let fresh = |at: Instant| {
            at <= now && now.saturating_since(at).as_nanos() < FORMATION_LIFETIME.as_nanos()
        };
        if self.at.is_some_and(fresh) {
            return None;
        }
        self.at = Some(now);
        let sets = &self.constellation.element_sets;
        let formation = Formation::recover(sets, self.start.after(now - Instant::START));
        let links = formation.grid_links(self.seam).into_iter();
        self.links = links.map(|(a, b)| (self.first + a, self.first + b)).collect();
        Some(formation)
    }
}

/// Limit of the reach of links between satellites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reach {
    /// Links of any length.
    Unlimited,
    /// Links of at most this length, in metres.
    Length(f64),
    /// Links whose straight line keeps at least this distance from the Earth's centre, in metres.
    Above(f64),
}

impl PlusGrid {
    /// Create the grid of a constellation's shells and element sets.
    pub fn new(request: &PathRequest, ephemeris: &Ephemeris) -> Self {
        let (constellation, compat) = (&request.constellation, request.compat);
        let seam = request.options.isl_seam;
        let mut shells = Vec::new();
        let mut first = 0;
        for shell in &constellation.shells {
            shells.extend(grid_links(shell, first, compat, seam));
            first += shell.satellites();
        }
        first += constellation.geostationary.len() as u32;
        let has_sets = !constellation.element_sets.is_empty();
        let recovered = || RecoveredShells {
            constellation: constellation.clone(),
            first,
            start: request.start,
            seam,
            at: None,
            links: Vec::new(),
        };
        let reach = match (compat, constellation.longest_isl) {
            (Compat::Leoem, _) => Reach::Unlimited,
            (Compat::Hypatia, Some(longest)) => Reach::Length(longest.metres()),
            _ => Reach::Above(EQUATORIAL_RADIUS_M + request.options.isl_clearance.metres()),
        };
        let start = request.start;
        let between = match request.options.isl_shells {
            ShellLinks::Apart => None,
            ShellLinks::Nearest => Some(BetweenShells::new(constellation, ephemeris, start, reach)),
        };
        let mut grid = Self {
            graph: Graph::default(),
            components: Vec::new(),
            reach,
            light_m_per_s: compat.earth().light_m_per_s(),
            shells,
            recovered: has_sets.then(recovered),
            between,
            failures: request.options.failures.clone(),
            failed: FailedParts::default(),
        };
        grid.rebuild(constellation.satellites() as usize);
        grid
    }

    /// Find the links of `now` again where they may have changed; return whether any may have.
    fn find_links(&mut self, now: Instant) -> bool {
        let formation = self.recovered.as_mut().and_then(|recovered| recovered.update(now));
        if let (Some(between), Some(recovered), Some(formation)) =
            (&mut self.between, &self.recovered, &formation)
        {
            between.set_shells(&recovered.constellation, formation);
        }
        let between = self.between.as_mut().is_some_and(|between| between.update(now));
        formation.is_some() || between
    }

    /// Rebuild the graph with all links: of the shells, of satellites from element sets, and between shells.
    fn rebuild(&mut self, satellites: usize) {
        let recovered = self.recovered.iter().flat_map(|recovered| &recovered.links);
        let between = self.between.iter().flat_map(BetweenShells::links);
        let links = self.shells.iter().chain(recovered).chain(between);
        let weighted: Vec<_> = links.map(|(a, b)| (*a, *b, 0.0)).collect();
        self.graph.rebuild(satellites, &weighted);
        self.graph.components(&mut self.components);
    }
}

impl Reach {
    /// Whether a link between two satellites at the distance `distance_m` is possible.
    pub(super) fn includes(self, a: Vec3, b: Vec3, distance_m: f64) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Length(longest_m) => distance_m <= longest_m,
            Self::Above(radius_m) => {
                // Point of the line from a to b nearest to the Earth's centre.
                let along = a.dot(a - b) / (distance_m * distance_m);
                let nearest = a + (b - a) * along.clamp(0.0, 1.0);
                nearest.length_squared() >= radius_m * radius_m
            }
        }
    }
}

impl Topology for PlusGrid {
    fn update(&mut self, now: Instant, positions: &[Vec3]) {
        if self.find_links(now) {
            self.rebuild(positions.len());
        }
        self.failed.update(&self.failures, now);
        let (reach, light_m_per_s, failed) = (self.reach, self.light_m_per_s, &self.failed);
        let changed = self.graph.reweigh(|a, b| {
            if failed.has_laser(a, b) {
                return f64::INFINITY;
            }
            let (a, b) = (positions[a as usize], positions[b as usize]);
            let distance_m = a.distance(b);
            if reach.includes(a, b, distance_m) {
                distance_m / light_m_per_s
            } else {
                f64::INFINITY
            }
        });
        if changed {
            self.graph.components(&mut self.components);
        }
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn components(&self) -> &[u32] {
        &self.components
    }
}

/// Return the links of a shell whose satellites are numbered from `first`, each link once.
///
/// The neighbour in the next plane is the satellite with the nearest argument of latitude: the same slot, or the one
/// before if Walker's F puts a plane ahead by more than half a slot. LeoEM always takes the same slot. The last plane
/// has links to the first only with `seam`, in a shell whose planes are spread over the full circle (not in a Walker
/// star), and not with LeoEM, whose published paths have no such links.
pub fn grid_links(shell: &Shell, first: u32, compat: Compat, seam: bool) -> Vec<(u32, u32)> {
    let (planes, slots) = (shell.planes, shell.satellites_per_plane);
    let lag = match compat {
        Compat::None if !shell.staggered => (shell.phasing * 2 + planes) / (planes * 2),
        _ => 0,
    };
    let id = |plane: u32, slot: u32| first + plane * slots + slot % slots;
    let seam = seam && compat.links_across_seam() && shell.node_span_deg >= 360.0 && planes > 2;
    let mut links = Vec::with_capacity(2 * shell.satellites() as usize);
    for plane in 0..planes {
        for slot in 0..slots {
            // A plane with two slots has one link, not two; a plane with one slot has none.
            if slot + 1 < slots || slots > 2 {
                links.push((id(plane, slot), id(plane, slot + 1)));
            }
            let neighbour = slot + slots - lag % slots;
            if plane + 1 < planes {
                links.push((id(plane, slot), id(plane + 1, neighbour)));
            } else if seam {
                // The plane after the last one is plane 0 with its slots shifted by Walker's F.
                links.push((id(plane, slot), id(0, neighbour + shell.phasing % slots)));
            }
        }
    }
    links
}
