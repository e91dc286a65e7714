//! Up to one satellite and down to the other end: geostationary paths, and a terminal seen alone.

use skyhop_orbit::Vec3;
use skyhop_units::Instant;

use super::Topology;
use crate::PathRequest;
use crate::route::Graph;

/// No links at all: both ends must use the same satellite.
pub struct OneSatellite {
    graph: Graph,
    parts: Vec<u32>,
}

impl OneSatellite {
    /// The satellites of a request's constellation, each for itself.
    pub fn new(request: &PathRequest) -> Self {
        let satellites = request.constellation.satellites();
        let mut graph = Graph::default();
        graph.rebuild(satellites as usize, &[]);
        Self { graph, parts: (0..satellites).collect() }
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

    fn parts(&self) -> &[u32] {
        &self.parts
    }
}
