//! +Grid: each satellite links to its neighbours in its plane and in the planes beside it.

use crate::compat::Habits;
use skyhop_model::Compat;
use skyhop_orbit::{ElementSet, Formation, Shell, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::Topology;
use crate::PathRequest;
use crate::route::Graph;

/// The equator's radius (WGS84): links must pass above the ground everywhere.
const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;

/// Inter-satellite links in a +Grid within each shell.
pub struct Grid {
    graph: Graph,
    parts: Vec<u32>,
    reach: Reach,
    light_m_per_s: f64,
    /// The links of the constellation's shells.
    shells: Vec<(u32, u32)>,
    /// The satellites by element set, where there are any.
    recovered: Option<Recovered>,
}

/// How long the formation of satellites by element set holds: their orbits differ a little, so that
/// neighbours drift apart by some degrees in a day.
const FORMATION_FOR: Duration = Duration::from_secs(600);

/// Satellites whose planes and slots are recovered from their orbits.
struct Recovered {
    sets: Vec<ElementSet>,
    /// The number of the first of them.
    first: u32,
    start: UtcInstant,
    seam: bool,
    /// When the formation was last worked out.
    at: Option<Instant>,
}

impl Recovered {
    /// The links of the formation, if it is time to work it out again.
    fn links(&mut self, now: Instant) -> Option<impl Iterator<Item = (u32, u32)> + use<>> {
        let fresh = |at: Instant| {
            at <= now && now.saturating_since(at).as_nanos() < FORMATION_FOR.as_nanos()
        };
        if self.at.is_some_and(fresh) {
            return None;
        }
        self.at = Some(now);
        let formation = Formation::of(&self.sets, self.start.after(now - Instant::START));
        let first = self.first;
        Some(formation.grid_links(self.seam).into_iter().map(move |(a, b)| (first + a, first + b)))
    }
}

/// How far links between satellites reach.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reach {
    /// As far as needed.
    Unlimited,
    /// This many metres.
    Length(f64),
    /// As long as the straight line stays this far from the Earth's centre, in metres.
    Above(f64),
}

impl Grid {
    /// The grid over a constellation's shells.
    pub fn new(request: &PathRequest) -> Self {
        let (constellation, compat) = (&request.constellation, request.compat);
        let seam = request.options.isl_seam;
        let mut shells = Vec::new();
        let mut first = 0;
        for shell in &constellation.shells {
            shells.extend(grid_links(shell, first, compat, seam));
            first += shell.satellites();
        }
        first += constellation.geostationary.len() as u32;
        let sets = constellation.element_sets.clone();
        let recovered = Recovered { sets, first, start: request.start, seam, at: None };
        let reach = match (compat, constellation.longest_isl) {
            (Compat::Leoem, _) => Reach::Unlimited,
            (Compat::Hypatia, Some(longest)) => Reach::Length(longest.metres()),
            _ => Reach::Above(EQUATORIAL_RADIUS_M + request.options.isl_clearance.metres()),
        };
        let mut grid = Self {
            graph: Graph::default(),
            parts: Vec::new(),
            reach,
            light_m_per_s: compat.earth().light_m_per_s(),
            shells,
            recovered: Some(recovered).filter(|recovered| !recovered.sets.is_empty()),
        };
        grid.rebuild(constellation.satellites() as usize, []);
        grid
    }

    /// Replaces the links of satellites by element set.
    fn rebuild(&mut self, satellites: usize, recovered: impl IntoIterator<Item = (u32, u32)>) {
        let links = self.shells.iter().copied().chain(recovered);
        let weighted: Vec<_> = links.map(|(a, b)| (a, b, 0.0)).collect();
        self.graph.rebuild(satellites, &weighted);
        self.graph.parts(&mut self.parts);
    }
}

impl Reach {
    /// Whether two satellites, `distance_m` apart, reach each other.
    fn includes(self, a: Vec3, b: Vec3, distance_m: f64) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Length(longest_m) => distance_m <= longest_m,
            Self::Above(radius_m) => {
                // How far along the line from a to b the Earth's centre is nearest.
                let along = a.dot(a - b) / (distance_m * distance_m);
                let nearest = a + (b - a) * along.clamp(0.0, 1.0);
                nearest.length_squared() >= radius_m * radius_m
            }
        }
    }
}

impl Topology for Grid {
    fn update(&mut self, now: Instant, positions: &[Vec3]) {
        if let Some(links) = self.recovered.as_mut().and_then(|recovered| recovered.links(now)) {
            self.rebuild(positions.len(), links);
        }
        let (reach, light_m_per_s) = (self.reach, self.light_m_per_s);
        let changed = self.graph.reweigh(|a, b| {
            let (a, b) = (positions[a as usize], positions[b as usize]);
            let distance_m = a.distance(b);
            if reach.includes(a, b, distance_m) {
                distance_m / light_m_per_s
            } else {
                f64::INFINITY
            }
        });
        if changed {
            self.graph.parts(&mut self.parts);
        }
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn parts(&self) -> &[u32] {
        &self.parts
    }
}

/// The links of a shell whose satellites are numbered from `first`, each once.
///
/// The neighbour in the next plane is the one of nearest argument of latitude: the same slot, or one
/// lower where Walker's F puts a plane ahead by more than half a slot. LeoEM always takes the same
/// slot, and its published paths have no link between the last plane and the first; shells whose
/// planes are spread over less than a circle (Walker star) have none either, nor has any shell
/// without `seam`.
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
            // Two slots are neighbours once, not twice; a single one has none.
            if slot + 1 < slots || slots > 2 {
                links.push((id(plane, slot), id(plane, slot + 1)));
            }
            let beside = slot + slots - lag % slots;
            if plane + 1 < planes {
                links.push((id(plane, slot), id(plane + 1, beside)));
            } else if seam {
                // A plane after the last would be plane 0 with its slots counted from F on.
                links.push((id(plane, slot), id(0, beside + shell.phasing % slots)));
            }
        }
    }
    links
}
