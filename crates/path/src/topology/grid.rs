//! +Grid: each satellite links to its neighbours in its plane and in the planes beside it.

use skyhop_orbit::{Constellation, Shell, Vec3};
use skyhop_units::Instant;

use super::Topology;
use crate::Compat;
use crate::route::Graph;

/// Inter-satellite links in a +Grid within each shell.
pub struct Grid {
    graph: Graph,
    parts: Vec<u32>,
    light_m_per_s: f64,
}

impl Grid {
    /// The grid over a constellation's shells.
    pub fn new(constellation: &Constellation, compat: Compat) -> Self {
        let mut links = Vec::new();
        let mut first = 0;
        for shell in &constellation.shells {
            links.extend(grid_links(shell, first, compat));
            first += shell.satellites();
        }
        let weighted: Vec<_> = links.into_iter().map(|(a, b)| (a, b, 0.0)).collect();
        let mut graph = Graph::default();
        graph.rebuild(first as usize, &weighted);
        let mut parts = Vec::new();
        graph.parts(&mut parts);
        Self { graph, parts, light_m_per_s: compat.earth().light_m_per_s() }
    }
}

impl Topology for Grid {
    fn update(&mut self, _now: Instant, positions: &[Vec3]) {
        let light_m_per_s = self.light_m_per_s;
        self.graph.reweigh(|a, b| {
            positions[a as usize].distance_m(positions[b as usize]) / light_m_per_s
        });
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
/// planes are spread over less than a circle (Walker star) have none either.
pub fn grid_links(shell: &Shell, first: u32, compat: Compat) -> Vec<(u32, u32)> {
    let (planes, slots) = (shell.planes, shell.satellites_per_plane);
    let lag = match compat {
        Compat::None => (shell.phasing * 2 + planes) / (planes * 2),
        Compat::Leoem => 0,
    };
    let id = |plane: u32, slot: u32| first + plane * slots + slot % slots;
    let seam = compat.links_across_seam() && shell.node_span_deg >= 360.0 && planes > 2;
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
