//! Topologies: the links in the middle of a path, one file per relay.

mod access;
mod bent_pipe;
mod one_satellite;
mod plus_grid;
mod shells;

use crate::compat::CompatRules;
use skyhop_model::{Compat, Relay};
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

pub use access::Access;
pub use bent_pipe::BentPipe;
pub use one_satellite::OneSatellite;
pub use plus_grid::{PlusGrid, grid_links};
pub use shells::count_shells;

use crate::handover::Link;
use crate::route::Graph;
use crate::{PathRequest, Place};

/// The links between satellites, or between satellites and the ground, as they change over time.
///
/// Nodes 0 to N-1 are the satellites; gateways follow in their order.
pub trait Topology: Send + Sync {
    /// Update the graph from the satellites' earth-fixed positions at `now`.
    fn update(&mut self, now: Instant, positions: &[Vec3]);

    /// Graph of the links, whose weights are one-way delays in seconds.
    fn graph(&self) -> &Graph;

    /// Connected component of each node: the lowest node to which it has a route.
    fn components(&self) -> &[u32];

    /// Whether [`Topology::update`] needs the positions of satellites that neither end can see.
    fn needs_every_satellite(&self) -> bool {
        true
    }

    /// Node of the end `to` if that end has no satellite; `None` if it uses one.
    fn end_without_satellite(&self) -> Option<u32> {
        None
    }

    /// Append a route of the graph to `hops`: its nodes, and the delay of each link.
    fn hops(&self, route: &[u32], _positions: &[Vec3], hops: &mut Hops) {
        hops.nodes.extend(route.iter().map(|node| *node as i32));
        hops.delays.extend(route.windows(2).map(|hop| {
            let edge = self.graph().edges(hop[0]).iter().find(|edge| edge.to == hop[1]);
            Duration::from_secs_f64(edge.expect("a route follows edges").weight)
        }));
    }
}

/// Nodes of a path and the one-way delays between them, in the form of a frame.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hops {
    /// Node ids in the order of the path.
    pub nodes: Vec<i32>,
    /// One-way delays between consecutive nodes; one fewer than nodes when the path is complete.
    pub delays: Vec<Duration>,
}

/// Create the topology of a request's relay.
pub fn topology(request: &PathRequest, ephemeris: &Ephemeris) -> Box<dyn Topology> {
    match request.relay {
        Some(Relay::Isl) => Box::new(PlusGrid::new(request, ephemeris)),
        Some(Relay::BentPipe) => Box::new(BentPipe::new(request, ephemeris)),
        Some(Relay::Access | Relay::Starlink) => Box::new(Access::new(request, ephemeris)),
        Some(Relay::Geo) | None => Box::new(OneSatellite::new(request)),
    }
}

/// Sky over places, with the coverage and the avoidance of the geostationary arc of a request.
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

/// Write the links to the satellites in view of each place of `sky`, which was updated to these positions, into `in_view`.
pub(crate) fn look_up(sky: &Sky, compat: Compat, positions: &[Vec3], in_view: &mut [Vec<Link>]) {
    for (site, in_view) in in_view.iter_mut().enumerate() {
        let place = &sky.sites()[site];
        in_view.clear();
        in_view.extend(sky.visible(site, positions).map(|satellite| {
            let position = positions[satellite as usize];
            let delay_s = compat.ground_delay_s(position, place);
            Link { satellite, delay_s, sin_elevation: place.sin_elevation(position) }
        }));
    }
}
