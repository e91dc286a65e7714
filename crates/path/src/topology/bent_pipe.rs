//! Bent pipe: satellites reach each other only over gateways that see both.

use crate::compat::Habits;
use skyhop_model::Compat;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::Instant;

use super::{Topology, sky};
use crate::PathRequest;
use crate::route::Graph;

/// Links between satellites and the gateways that they are in view of.
pub struct BentPipe {
    sky: Sky,
    satellites: u32,
    compat: Compat,
    links: Vec<(u32, u32, f64)>,
    graph: Graph,
    parts: Vec<u32>,
}

impl BentPipe {
    /// The links between a request's constellation and its gateways.
    pub fn new(request: &PathRequest, ephemeris: &Ephemeris) -> Self {
        Self {
            sky: sky(request, &request.gateways, ephemeris),
            satellites: request.constellation.satellites(),
            compat: request.compat,
            links: Vec::new(),
            graph: Graph::default(),
            parts: Vec::new(),
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
        self.graph.parts(&mut self.parts);
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn parts(&self) -> &[u32] {
        &self.parts
    }
}
