//! Which links there are in the middle of a path: one file per relay.

mod bent_pipe;
mod grid;

use skyhop_orbit::{Ephemeris, Vec3};
use skyhop_units::Instant;

pub use bent_pipe::BentPipe;
pub use grid::{Grid, grid_links};

use crate::route::Graph;
use crate::{PathRequest, Relay};

/// The links between satellites, or between satellites and gateways, as they change over time.
///
/// Nodes 0 to N-1 are the satellites; gateways follow in their order.
pub trait Topology: Send {
    /// Brings the graph up to date with the satellites' earth-fixed positions.
    fn update(&mut self, now: Instant, positions: &[Vec3]);

    /// The graph; its weights are one-way delays in seconds.
    fn graph(&self) -> &Graph;

    /// For each node the lowest node that it has a route to.
    fn parts(&self) -> &[u32];
}

/// The topology that a request asks for.
pub fn topology(request: &PathRequest, ephemeris: &Ephemeris) -> Box<dyn Topology> {
    match request.relay {
        Relay::Isl => Box::new(Grid::new(request)),
        Relay::BentPipe => Box::new(BentPipe::new(request, ephemeris)),
    }
}
