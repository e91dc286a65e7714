//! Routings of a network, which choose the next hop of packets at every node: one file each.

mod shortest;

use skyhop_units::{Duration, Instant};

use crate::handover::Link;
use crate::route::Graph;
pub(crate) use shortest::Shortest;

/// Routes to one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutesTo {
    /// Next node of each satellite: a neighbour; the satellite itself if it sends to the destination directly; `None`
    /// without a route.
    pub next: Vec<Option<u32>>,
    /// Satellite to which each site sends, and the delay of the whole route; `None` without a route.
    pub up: Vec<Option<(u32, Duration)>>,
}

/// State of a network at a time at which routes may be computed.
#[derive(Clone, Copy)]
pub(crate) struct NetworkView<'a> {
    /// Time since the start.
    #[expect(dead_code, reason = "routings that hold their routes read it")]
    pub(crate) now: Instant,
    /// Links between satellites; those that have failed are closed.
    pub(crate) graph: &'a Graph,
    /// Satellites that each site can use, in ascending order.
    pub(crate) in_view: &'a [Vec<Link>],
    /// Indices of the sites to which packets go.
    pub(crate) destinations: &'a [u32],
}

/// Choice of the routes to all destinations.
pub(crate) trait Routing: Send {
    /// Return the routes to each destination that hold from now on; `None` if those before hold on.
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>>;
}
