//! Which links there are in the middle of a path: one file per relay.

mod access;
mod bent_pipe;
mod grid;
mod one_satellite;

use crate::compat::Habits;
use skyhop_model::Relay;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

pub use access::Access;
pub use bent_pipe::BentPipe;
pub use grid::{Grid, grid_links};
pub use one_satellite::OneSatellite;

use crate::route::Graph;
use crate::{PathRequest, Place};

/// The links between satellites, or between satellites and the ground, as they change over time.
///
/// Nodes 0 to N-1 are the satellites; gateways follow in their order.
pub trait Topology: Send {
    /// Brings the graph up to date with the satellites' earth-fixed positions.
    fn update(&mut self, now: Instant, positions: &[Vec3]);

    /// The graph; its weights are one-way delays in seconds.
    fn graph(&self) -> &Graph;

    /// For each node the lowest node that it has a route to.
    fn parts(&self) -> &[u32];

    /// Whether it needs the positions of satellites that neither end can see.
    fn needs_every_satellite(&self) -> bool {
        true
    }

    /// The node of the end `to` where that end has no satellite of its own.
    fn end_without_satellite(&self) -> Option<u32> {
        None
    }

    /// Appends a route of the graph to `hops`: its nodes, and the delay of each link.
    fn hops(&self, route: &[u32], _positions: &[Vec3], hops: &mut Hops) {
        hops.nodes.extend(route.iter().map(|node| *node as i32));
        hops.delays.extend(route.windows(2).map(|hop| {
            let edge = self.graph().edges(hop[0]).iter().find(|edge| edge.to == hop[1]);
            Duration::from_secs_f64(edge.expect("a route follows edges").weight)
        }));
    }
}

/// A path's nodes and the one-way delays between them, as a frame has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hops {
    /// Node ids.
    pub nodes: Vec<i32>,
    /// One fewer than nodes, once the path is whole.
    pub delays: Vec<Duration>,
}

/// The topology that a request asks for.
pub fn topology(request: &PathRequest, ephemeris: &Ephemeris) -> Box<dyn Topology> {
    match request.relay {
        Some(Relay::Isl) => Box::new(Grid::new(request)),
        Some(Relay::BentPipe) => Box::new(BentPipe::new(request, ephemeris)),
        Some(Relay::Access) => Box::new(Access::new(request, ephemeris)),
        Some(Relay::Geo) | None => Box::new(OneSatellite::new(request)),
    }
}

/// The sky over some places, as a request lets them use it.
pub(crate) fn sky<'p>(
    request: &PathRequest,
    places: impl IntoIterator<Item = &'p Place>,
    ephemeris: &Ephemeris,
) -> Sky {
    let compat = request.compat;
    let sites = places.into_iter().map(|place| compat.earth().site(place.position)).collect();
    let sky = Sky::new(sites, compat.coverage(&request.constellation), ephemeris);
    match request.options.geo_avoidance_deg {
        Some(degrees) => sky.avoiding_geo_arc(degrees),
        None => sky,
    }
}
