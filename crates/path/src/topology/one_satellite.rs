//! Topology of one satellite between both ends: geostationary paths, and the satellite of a single terminal.

use skyhop_orbit::Vec3;
use skyhop_units::Instant;

use super::Topology;
use crate::PathRequest;
use crate::route::Graph;

/// Topology without links: both ends must use the same satellite.
pub struct OneSatellite {
    graph: Graph,
    components: Vec<u32>,
}

impl OneSatellite {
    /// Create the topology of a request's constellation, each satellite on its own.
    pub fn new(request: &PathRequest) -> Self {
        let satellites = request.constellation.satellites();
        let mut graph = Graph::default();
        graph.rebuild(satellites as usize, &[]);
        Self { graph, components: (0..satellites).collect() }
    }
}

impl Topology for OneSatellite {
    fn update(&mut self, _now: Instant, _positions: &[Vec3]) {}

    fn needs_every_satellite(&self) -> bool {
        false
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn components(&self) -> &[u32] {
        &self.components
    }
}
