//! Bent-pipe topology: satellites reach each other only over gateways in view of both.

use crate::compat::CompatRules;
use skyhop_model::Compat;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::Instant;

use super::{Topology, sky};
use crate::PathRequest;
use crate::route::Graph;

/// Topology with links between each satellite and the gateways that see it.
pub struct BentPipe {
    sky: Sky,
    satellites: u32,
    compat: Compat,
    links: Vec<(u32, u32, f64)>,
    graph: Graph,
    components: Vec<u32>,
}

impl BentPipe {
    /// Create the topology of a request's constellation and gateways.
    pub fn new(request: &PathRequest, ephemeris: &Ephemeris) -> Self {
        Self {
            sky: sky(request, &request.gateways, ephemeris),
            satellites: request.constellation.satellites(),
            compat: request.compat,
            links: Vec::new(),
            graph: Graph::default(),
            components: Vec::new(),
        }
    }
}

impl Topology for BentPipe {
    fn update(&mut self, now: Instant, positions: &[Vec3]) {
        self.sky.update(now, positions);
        self.links.clear();
        for (index, site) in self.sky.sites().iter().enumerate() {
            let gateway = self.satellites + index as u32;
            self.links.extend(self.sky.visible(index, positions).map(|satellite| {
                let position = positions[satellite as usize];
                (satellite, gateway, self.compat.ground_delay_s(position, site))
            }));
        }
        let nodes = self.satellites as usize + self.sky.sites().len();
        self.graph.rebuild(nodes, &self.links);
        self.graph.components(&mut self.components);
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn components(&self) -> &[u32] {
        &self.components
    }
}
